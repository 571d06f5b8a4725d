//go:build failpoint

package failpoint

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
)

// Enabled says whether the binary was built with the tag failpoint.
const Enabled = true

// SmallLog is the number of steps that EnvSmallLog is about; 0 if it is not set.
func SmallLog() int {
	if os.Getenv(EnvSmallLog) == "" {
		return 0
	}
	return 8
}

// Hit passes a site.
func Hit(s Site) { _ = armed().pass(s) }

// Error passes a site whose operation may fail there.
func Error(s Site) error {
	if armed().pass(s) == "error" {
		return fault.Lostf("the failpoint %s", s)
	}
	return nil
}

// Tear passes a site with what is to be written: write half of it if torn, and call Die.
func Tear(s Site) (torn bool) { return armed().note(s) != nil }

// Die ends the process as kill does.
func Die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// order is what is to happen at a site, once.
type order struct {
	action string
	pause  time.Duration
	at     int64 // the pass that it happens at
	passed int64
}

// orders are those of a process.
type orders struct {
	mu   sync.Mutex // guards the counts, never held during an action
	of   map[Site]*order
	hits string // file
}

// armed reads the environment once. What it says wrong ends the process: a test that
// meant to break something and did not would pass.
var armed = sync.OnceValue(func() *orders {
	o, err := parse(os.Getenv(Env))
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", Env, err)
		os.Exit(2)
	}
	o.hits = os.Getenv(EnvHits)
	return o
})

func parse(text string) (*orders, error) {
	o := &orders{of: map[Site]*order{}}
	known := map[Site]bool{}
	for _, s := range Sites {
		known[s.Site] = true
	}
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		site, what, _ := strings.Cut(part, "=")
		action, at, counted := strings.Cut(what, "@")
		x := &order{at: 1}
		var err error
		if counted {
			x.at, err = strconv.ParseInt(at, 10, 64)
		}
		if pause, ok := strings.CutPrefix(action, "sleep("); ok && err == nil {
			action = "sleep"
			x.pause, err = time.ParseDuration(strings.TrimSuffix(pause, ")"))
		}
		x.action = action
		switch {
		case err != nil || x.at < 1:
			return nil, fmt.Errorf("%q: %w", part, cmp.Or(err, fmt.Errorf("passes count from 1")))
		case !known[Site(site)]:
			return nil, fmt.Errorf("%q: there is no site %q", part, site)
		case action != "kill" && action != "stop" && action != "sleep" && action != "error":
			return nil, fmt.Errorf("%q: valid actions are kill, stop, sleep(DURATION), error", part)
		}
		o.of[Site(site)] = x
	}
	return o, nil
}

// note counts a pass, and returns what is to happen now, after noting it in the file.
func (o *orders) note(s Site) *order {
	x := o.of[s]
	if x == nil {
		return nil
	}
	o.mu.Lock()
	x.passed++
	due := x.passed == x.at
	o.mu.Unlock()
	if !due {
		return nil
	}
	if o.hits != "" {
		f, err := os.OpenFile(o.hits, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = fmt.Fprintf(f, "%s %s %d\n", s, x.action, x.at)
			_ = f.Close()
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", EnvHits, err)
			os.Exit(2)
		}
	}
	return x
}

// pass carries out what is due and returns its name; "" if nothing is.
func (o *orders) pass(s Site) string {
	x := o.note(s)
	if x == nil {
		return ""
	}
	switch x.action {
	case "kill":
		Die()
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "sleep":
		time.Sleep(x.pause)
	}
	return x.action
}
