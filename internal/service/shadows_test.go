package service_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/planner"
	"github.com/millrace-data/millrace/internal/planner/status"
	"github.com/millrace-data/millrace/internal/trainer"
)

// signal sends a loader a signal.
func (m *team) signal(id string, s syscall.Signal) {
	m.t.Helper()
	if err := m.loaders[id].Process.Signal(s); err != nil {
		m.t.Error(err)
	}
}

// shadowed trains with three loaders and one shadow, all processes, and calls then after each
// step. Every step has to be that of the reference. It returns the last status. A loader that says nothing for as long as
// suspect, 0 for the default, is taken for stopped.
func shadowed(t *testing.T, hot bool, suspect time.Duration, then func(m *team, step int64)) (s status.Service) {
	t.Helper()
	dir, r := writeSources(t), recipes[0]
	want := solve(t, dir, r)
	job := parse(t, dir, r.text(resources{prefetch: 4, window: 20}))
	ctx, m, end := newTeam(t, planner.Options{Job: job, Loaders: 3, Shadows: 1, HotShadows: hot, Suspect: suspect})
	defer end()
	for i := range 4 {
		m.load(fmt.Sprintf("l%d", i), dir)
	}
	res, err := trainer.Run(ctx, trainer.Options{Address: m.address, Job: job, Steps: r.steps, OnStep: func(s trainer.Step) {
		if s.Digest != want.digests[s.Step+1] {
			t.Errorf("digest step=%d %x, want %x", s.Step+1, s.Digest, want.digests[s.Step+1])
		}
		then(m, s.Step+1)
	}})
	if err != nil || res.Next != r.steps {
		t.Fatalf("%d steps: %v\n%s", res.Next, err, m.log)
	}
	if s, err = statusOf(ctx, m.address); err != nil {
		t.Fatal(err)
	}
	return s
}

// seats says who has which place, and who is a shadow.
func seats(s status.Service) string {
	text := ""
	for _, l := range s.Loaders {
		text += fmt.Sprintf("%s:%d ", l.ID, l.Place)
	}
	return text
}

// warmed waits until a shadow has all sources open, and a hot one some blocks beside the others.
func (m *team) warmed(id string, hot bool) {
	m.t.Helper()
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		s, err := statusOf(m.t.Context(), m.address)
		if err != nil {
			m.t.Fatal(err)
		}
		i := slices.IndexFunc(s.Loaders, func(l status.Loader) bool { return l.ID == id })
		if i >= 0 { // a planner that is busy for seconds names no member
			if l := s.Loaders[i]; l.Place < 0 && l.Sources == len(s.Sources) && len(l.Cold) == 0 && (l.Copies > 0) == hot {
				return
			}
		}
		if time.Since(begin) > patience {
			m.t.Fatalf("the shadow is not warm: %+v", s.Loaders)
		}
	}
}

// TestShadowTakesOver: a shadow takes the place of a loader that is killed, the one that comes
// in its place stands by and takes the place of the next; no step changes, and no block of the
// others is read again.
func TestShadowTakesOver(t *testing.T) {
	for _, hot := range []bool{false, true} {
		t.Run(fmt.Sprintf("hot=%v", hot), func(t *testing.T) {
			t.Parallel()
			s := shadowed(t, hot, patience, func(m *team, step int64) { // none that a busy machine does not run for a while
				switch step {
				case 5:
					m.warmed("l3", hot)
					m.kill("l1")
				case 10:
					m.load("l4", "")
				case 15:
					m.kill("l3") // the shadow that took the place
				}
			})
			if got := seats(s); got != "l0:0 l2:2 l4:1 " || s.Promotions != 2 {
				t.Errorf("%d promotions; places: %s", s.Promotions, got)
			}
			for _, l := range s.Loaders {
				if l.Rereads > 0 {
					t.Errorf("%s read %d blocks twice", l.ID, l.Rereads)
				}
			}
		})
	}
}

// TestShadowOfStoppedLoader: a loader that is stopped loses its place to the shadow, and stands
// by when it goes on.
func TestShadowOfStoppedLoader(t *testing.T) {
	t.Parallel()
	s := shadowed(t, false, 0, func(m *team, step int64) {
		switch step {
		case 5:
			m.signal("l1", syscall.SIGSTOP)
		case 25:
			for begin := time.Now(); !strings.Contains(m.log.String(), "a shadow takes a loader's place") && time.Since(begin) < patience; {
				time.Sleep(10 * time.Millisecond)
			}
			m.signal("l1", syscall.SIGCONT)
		}
	})
	if got := seats(s); got != "l0:0 l1:-1 l2:2 l3:1 " || s.Promotions != 1 {
		t.Errorf("%d promotions; places: %s", s.Promotions, got)
	}
}
