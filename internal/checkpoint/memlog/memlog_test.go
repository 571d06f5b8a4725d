package memlog_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/checkpoint/logtest"
	"github.com/millrace-data/millrace/internal/checkpoint/memlog"
	"github.com/millrace-data/millrace/internal/fault"
)

func TestLog(t *testing.T) {
	logtest.Run(t, func(*testing.T) *logtest.Fixture {
		var store memlog.Store
		return &logtest.Fixture{Open: func(opts checkpoint.Options) (checkpoint.Log, error) {
			log, err := store.Open(opts)
			if err != nil {
				return nil, err
			}
			return log, nil
		}}
	})
}

// A log that fails says so from then on, and what was written before is there when it is
// opened again.
func Example() {
	var store memlog.Store
	log, _ := store.Open(checkpoint.Options{})
	fmt.Println(log.Append(0, []byte("step 0"), nil))
	log.Fail(errors.New("no space left"))
	err := log.Append(1, []byte("step 1"), nil)
	fmt.Println(fault.ClassOf(err), err)
	fmt.Println(log.Close())

	log, _ = store.Open(checkpoint.Options{})
	fmt.Println(log.Last())
	// Output:
	// <nil>
	// lost the log has stopped: no space left
	// the log has stopped: no space left
	// 0 true
}
