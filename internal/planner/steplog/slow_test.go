package steplog

import (
	"log/slog"
	"testing"
	"time"
)

// TestSlow: of a write that takes long there is one warning, and one of its end.
func TestSlow(t *testing.T) {
	told := make(lines, 10)
	w := &Writer{opts: Options{Dir: "log", Logger: slog.New(warnings{told})}}
	for _, c := range []struct {
		taken time.Duration
		want  string
	}{
		{0, ""}, {4 * time.Second, ""}, {5 * time.Second, "a write to the log takes long: what is planned waits for it"}, {time.Minute, ""},
		{0, "the log is written again"}, {time.Second, ""}, {0, ""}, {6 * time.Second, "a write to the log takes long: what is planned waits for it"},
		{100 * time.Millisecond, "the log is written again"},
	} {
		got := ""
		if w.Slow(c.taken); len(told) > 0 {
			got = <-told
		}
		if got != c.want || len(told) > 0 {
			t.Errorf("after %v: %q and %d more, want %q", c.taken, got, len(told), c.want)
		}
	}
}
