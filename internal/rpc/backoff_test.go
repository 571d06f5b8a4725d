package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/rpc"
)

// TestBackoff: pauses grow from about 50 ms to about a second, differ by name, are the same
// for the same name, and begin again after a reset.
func TestBackoff(t *testing.T) {
	firsts := map[time.Duration]bool{}
	for n := range 100 {
		b, same := rpc.Backoff{Name: fmt.Sprint(n)}, rpc.Backoff{Name: fmt.Sprint(n)}
		first := b.Next()
		firsts[first] = true
		if same.Next() != first {
			t.Fatalf("two pauses of %d differ", n)
		}
		sum, want := first, 50*time.Millisecond
		for k := 1; k < 20; k++ {
			want = min(want*13/10, time.Second)
			pause := b.Next()
			if pause < want*8/10-1 || pause > want*12/10+1 {
				t.Fatalf("pause %d is %v, want about %v", k, pause, want)
			}
			sum += pause
		}
		if sum < 9*time.Second || sum > 15*time.Second {
			t.Errorf("20 pauses take %v", sum)
		}
		if b.Reset(); b.Next() != first {
			t.Error("a reset does not begin again")
		}
	}
	if len(firsts) < 90 {
		t.Errorf("100 names have %d first pauses: they come back together", len(firsts))
	}
}

// TestBackoffWaits: a wait takes the pause, and ends early with its context.
func TestBackoffWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, want := rpc.Backoff{Name: "x"}, rpc.Backoff{Name: "x"}
		begin := time.Now()
		if err := b.Wait(t.Context()); err != nil || time.Since(begin) != want.Next() {
			t.Errorf("it waited %v: %v", time.Since(begin), err)
		}
		gone, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := b.Wait(gone); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 100*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
	})
}
