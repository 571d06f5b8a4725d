package service_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/service"
)

// hung is where the strategy "hangs" waits for the end of a test.
var hung chan struct{}

// TestStrategyThatHangs: the status names a strategy that does not return, and the
// service ends when it is to.
func TestStrategyThatHangs(t *testing.T) {
	hung = make(chan struct{})
	t.Cleanup(func() { close(hung) })
	r := own
	r.spec = strings.Replace(own.spec, "alternate", "hangs", 1)
	const patience = 30 * time.Second
	ended := make(chan error, 1)
	go func() {
		ended <- service.Run(t.Context(), setting{loaders: 1, constructors: 1}.options(t, writeSources(t), r), func(ctx context.Context, address string) error {
			for began := time.Now(); time.Since(began) < patience; time.Sleep(100 * time.Millisecond) {
				status, err := statusOf(ctx, address)
				if err != nil {
					t.Error(err)
				}
				if strings.Contains(status.WaitingFor, `step 0 to be planned by strategy "hangs"`) {
					return nil
				}
			}
			t.Error("the status never named the strategy")
			return nil
		})
	}()
	select {
	case err := <-ended:
		if fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), `it waits for step 0 to be planned by strategy "hangs"`) {
			t.Errorf("got %v", err)
		}
	case <-time.After(2 * patience):
		t.Fatal("the service does not end")
	}
}
