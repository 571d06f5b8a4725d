package pool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnforked: a pool that can fork no worker is there, and says what it lacks, in place of coming and going with each batch; it
// serves once it can, and the batch that waits is run.
func TestUnforked(t *testing.T) {
	text := strings.Replace(code, "import millrace\n", `import millrace

fork = os.fork


def crowded():
    if os.path.exists(os.path.join(os.path.dirname(__file__), "full")):
        raise BlockingIOError(11, "no more processes")
    return fork()


os.fork = crowded
`, 1)
	there := modules(t, text)
	full := filepath.Join(there, "full")
	if err := os.WriteFile(full, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	p := serve(t, Options{Path: []string{there}})
	l := load(t, modules(t, text), -1, p.address)
	f := l.function(t, "upper")
	got := make(chan string, 1)
	go func() { got <- said(t.Context(), f, "a") }()
	until(t, "nobody hears that the pool can fork no worker", func() bool {
		u := l.client.Usage(l.Environment)[0]
		return u.Connected && strings.HasPrefix(u.Problem, "function steps:upper: no worker can be started, after ") && strings.Contains(u.Problem, "ulimit -u")
	})
	losses := l.client.Usage(l.Environment)[0].Losses
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	if out := <-got; out != "0:0: A" {
		t.Error(out)
	}
	if u := l.client.Usage(l.Environment)[0]; !u.Connected || u.Problem != "" || u.Losses != losses || u.Workers != 2 {
		t.Errorf("in the end: %+v", u)
	}
	l.client.Close()
	for line, want := range map[string]int{"is not there": 1, "does not serve a function": 1, "serves a function again": 1} {
		if n := strings.Count(l.log.String(), line); n != want {
			t.Errorf("the log says %d times %q, want %d:\n%s", n, line, want, l.log)
		}
	}
}
