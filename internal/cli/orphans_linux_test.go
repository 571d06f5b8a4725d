package cli

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestReapOrphans: what a dead child leaves behind is waited for, and a child of one's own is not taken from who waits for it.
func TestReapOrphans(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Skipf("this process cannot be the one that orphans go to: %v", err)
	}
	defer unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	if err := exec.Command("sh", "-c", "sleep 0.1 & sleep 0.1 & exit 0").Run(); err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(hangs)
	for len(deadChildren()) < 2 {
		if time.Now().After(until) {
			t.Fatalf("%d orphans are here", len(deadChildren()))
		}
		time.Sleep(10 * time.Millisecond)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); reapOrphans(ctx, 50*time.Millisecond) }()
	for range 20 {
		if err := exec.Command("sh", "-c", "exit 7").Run(); err == nil || err.Error() != "exit status 7" {
			t.Errorf("a child of one's own ended with %v", err)
		}
	}
	for len(deadChildren()) > 0 {
		if time.Now().After(until) {
			t.Fatalf("%d orphans are left", len(deadChildren()))
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	<-ended
}
