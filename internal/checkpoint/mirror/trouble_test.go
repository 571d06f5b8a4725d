package mirror_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object"
)

// full is a store that takes no segment until a time.
type full struct {
	object.Store
	until time.Time
}

func (f *full) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	if strings.HasPrefix(key, "segment/") && time.Now().Before(f.until) {
		return fault.Lostf("no space left on device")
	}
	return f.Store.PutIfAbsent(ctx, key, data)
}

// TestTrouble: while a write is tried again, and after it was given up, the log says why; after one that succeeded it has
// nothing to say.
func TestTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &full{Store: &object.Memory{}}
		log := newMachine(object.Retry{Store: store}).open(t)
		appendSteps(t, log, 0, 1)
		if err := log.Trouble(); err != nil {
			t.Errorf("before: %v", err)
		}
		store.until = time.Now().Add(10 * time.Second)
		ended := make(chan error)
		go func() { ended <- log.Append(1, recordOf(1), nil) }()
		time.Sleep(5 * time.Second)
		if err := log.Trouble(); err == nil || err.Error() != "no space left on device" {
			t.Errorf("while it is tried again: %v", err)
		}
		if err := <-ended; err != nil || log.Trouble() != nil {
			t.Errorf("when there is room: %v, %v", err, log.Trouble())
		}
		store.until = time.Now().Add(time.Hour)
		if err := log.Append(2, recordOf(2), nil); fault.ClassOf(err) != fault.Lost || log.Trouble() == nil {
			t.Errorf("given up: %v, %v", err, log.Trouble())
		}
	})
}
