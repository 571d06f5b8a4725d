package planner

import (
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/planner/control"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/jobspec"
)

// TestListen: a member that says nothing is silent, but for one that sends no beats, one that
// is being listened to, and all while the planner itself was stopped.
func TestListen(t *testing.T) {
	job, findings := jobspec.Parse("demo.yaml", []byte("name: demo\nsources: [{name: web, files: web/*.jsonl}]\nbatch: {sequence_length: 8, sequences: 2}\n"), "/specs")
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	p, err := newPlanner(Options{Job: job, Suspect: DefaultSuspect})
	if err != nil {
		t.Fatal(err)
	}
	p.core = control.New(p.cfg)
	built := &constructorSession{out: rpc.NewOutbox[*pb.ConstructorOrder]()}
	built.session, built.beats = 3, true
	p.constructors[3] = built
	for s := range control.Session(3) {
		l := &loaderSession{out: rpc.NewOutbox[*pb.LoaderOrder]()}
		l.session, l.beats = s, s != 2
		p.loaders[s] = l
	}
	now := time.Hour
	said := func(s control.Session, ago time.Duration) { p.loaders[s].heard.Store(int64(now - ago)) }
	pass := func(d time.Duration) {
		for end := now + d; now < end; {
			now += tickEvery
			p.listen(now)
		}
	}
	want := func(when string, silent ...bool) {
		t.Helper()
		for s, x := range silent {
			if p.loaders[control.Session(s)].silent != x {
				t.Errorf("%s: loader %d is silent: %v", when, s, !x)
			}
		}
	}
	p.listen(now)
	for s := range control.Session(3) {
		said(s, 0)
	}
	built.heard.Store(int64(now))
	pass(quietFor - tickEvery)
	if built.faint {
		t.Error("a constructor is quiet too early")
	}
	pass(DefaultSuspect/2 - quietFor + tickEvery)
	if !built.faint || built.silent {
		t.Errorf("a constructor that missed a few beats: quiet is %v, silent %v", built.faint, built.silent)
	}
	built.heard.Store(int64(now))
	pass(tickEvery)
	if built.faint {
		t.Error("a constructor is quiet when it speaks again")
	}
	want("at first", false, false, false)
	p.loaders[0].heard.Store(speaking)
	pass(2 * DefaultSuspect)
	want("after a while", false, true, false)
	said(1, 0)
	pass(tickEvery)
	want("when it speaks again", false, false, false)
	now += time.Minute // the planner was stopped
	said(0, time.Minute)
	p.listen(now)
	want("after the planner was stopped", false, false, false)
	pass(DefaultSuspect + tickEvery)
	want("and nobody spoke since", true, true, false)
}

// TestQuiet: how long a session has said nothing is known of loaders and of constructors; one that speaks right now, or
// did after the time that is asked for, is not quiet.
func TestQuiet(t *testing.T) {
	now := time.Hour
	p := &Planner{
		loaders:      map[control.Session]*loaderSession{1: {}, 2: {}},
		constructors: map[control.Session]*constructorSession{3: {}, 4: {}},
	}
	p.loaders[1].heard.Store(int64(now - 12*time.Second))
	p.loaders[2].heard.Store(speaking)
	p.constructors[3].heard.Store(int64(now - time.Second))
	p.constructors[4].heard.Store(int64(now + time.Second))
	for of, want := range map[control.Session]time.Duration{1: 12 * time.Second, 2: 0, 3: time.Second, 4: 0} {
		if got := p.quiet(now)(of); got != want {
			t.Errorf("session %d: %v, want %v", of, got, want)
		}
	}
}
