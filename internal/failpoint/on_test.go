//go:build failpoint

package failpoint

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestOrders(t *testing.T) {
	o, err := parse("loader.read.before=error@2,planner.join=sleep(20ms)")
	if err != nil {
		t.Fatal(err)
	}
	o.hits = filepath.Join(t.TempDir(), "hits")
	for i, want := range []string{"", "error", ""} {
		if got := o.pass(ReadBefore); got != want {
			t.Errorf("pass %d: %q, want %q", i+1, got, want)
		}
	}
	begin := time.Now()
	if got := o.pass(Join); got != "sleep" || time.Since(begin) < 20*time.Millisecond {
		t.Errorf("%q after %v", got, time.Since(begin))
	}
	o.pass(FrameMiddle)
	if text, err := os.ReadFile(o.hits); err != nil || string(text) != "loader.read.before error 2\nplanner.join sleep 1\n" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestOrdersAreChecked(t *testing.T) {
	for _, text := range []string{"x=kill", "planner.join=die", "planner.join=kill@0", "planner.join=kill@x", "planner.join=sleep(1)", "planner.join"} {
		if _, err := parse(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
