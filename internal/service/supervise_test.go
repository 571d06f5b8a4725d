package service_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object/objecttest"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/trainer"
)

// stalls are the times between steps of a trainer.
type stalls struct {
	last    time.Time
	longest time.Duration
}

func (s *stalls) step() {
	if now := time.Now(); s.last.IsZero() {
		s.last = now
	} else {
		s.longest, s.last = max(s.longest, now.Sub(s.last)), now
	}
}

// supervised runs a job by processes to its end, and calls then after each step. set, if not nil, sets more options.
func supervised(t *testing.T, s setting, log *slog.Logger, set func(*service.Options), then func(step int64)) {
	t.Helper()
	dir, r := writeSources(t), recipes[0]
	want := solve(t, dir, r)
	s.processes = true
	opts := s.options(t, dir, r)
	output := new(syncBuffer)
	opts.Stderr, opts.LogDir, opts.Log = output, t.TempDir(), log
	if set != nil {
		set(&opts)
	}
	job := parse(t, dir, r.text(s.resources))
	err := service.Run(t.Context(), opts, func(ctx context.Context, address string) error {
		var between stalls
		res, err := trainer.Run(ctx, trainer.Options{
			Address: address, Job: job, StateEvery: 1, Steps: want.steps(),
			OnState: func(int64, []byte) {},
			OnStep: func(step trainer.Step) {
				between.step()
				then(step.Step)
				time.Sleep(20 * time.Millisecond)
			},
		})
		if err == nil && res.Digest != want.digests[want.steps()] {
			t.Errorf("digest step=%d %x, want %x", res.Next, res.Digest, want.digests[want.steps()])
		}
		t.Logf("the longest stall was %v", between.longest)
		return err
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
}

// TestKilledRoles: processes that are killed, one after the other, are started again, and the
// run goes on to the end with the same digest. The planner goes on from its log.
func TestKilledRoles(t *testing.T) {
	log := new(syncBuffer)
	kills := map[int64]string{5: "loader", 15: "constructor", 25: "planner", 35: "loader"}
	supervised(t, setting{loaders: 3, constructors: 2}, slog.New(slog.NewTextHandler(log, nil)), nil, func(step int64) {
		if role := kills[step]; role != "" {
			kill(t, role)
		}
	})
	if n := strings.Count(log.String(), "a role's process died and is started again"); n < len(kills) {
		t.Errorf("%d deaths are logged, there were %d:\n%s", n, len(kills), log)
	}
}

// TestDrainedRoles: a loader and a constructor that are asked to stop leave within ten seconds,
// and nobody notices but by the time that it takes to start another one.
func TestDrainedRoles(t *testing.T) {
	var leaving []chan time.Duration
	leave := func(role string) {
		pid, begin, gone := signalRole(t, role, syscall.SIGTERM), time.Now(), make(chan time.Duration, 1)
		leaving = append(leaving, gone)
		go func() {
			for syscall.Kill(pid, 0) == nil && time.Since(begin) < patience {
				time.Sleep(10 * time.Millisecond)
			}
			gone <- time.Since(begin)
		}()
	}
	supervised(t, setting{loaders: 2, constructors: 2}, nil, nil, func(step int64) {
		switch step {
		case 5:
			leave("loader")
		case 15:
			leave("constructor")
		}
	})
	for i, gone := range leaving {
		if took := <-gone; took > 10*time.Second {
			t.Errorf("role %d took %v to leave", i, took)
		} else {
			t.Logf("role %d took %v to leave", i, took)
		}
	}
}

// TestKilledPlanner: without a log, a planner that is killed ends the service, which says what
// would have kept it.
func TestKilledPlanner(t *testing.T) {
	dir := writeSources(t)
	opts := setting{loaders: 2, processes: true}.options(t, dir, recipes[0])
	opts.Stderr = new(syncBuffer)
	err := service.Run(t.Context(), opts, func(ctx context.Context, _ string) error {
		kill(t, "planner")
		<-ctx.Done()
		return nil
	})
	if fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), "the process of the planner ended") || !strings.Contains(err.Error(), "give a --log-dir") {
		t.Errorf("the planner was killed: %v", err)
	}
}

// TestPlannerAwayFromLog: a planner that was killed, and does not get to its log when it is started again, is started once
// more. One that does not get to it when the service begins ends the service.
func TestPlannerAwayFromLog(t *testing.T) {
	for life, ends := range map[int]bool{1: true, 2: false} {
		dir := writeSources(t)
		opts := setting{processes: true}.options(t, dir, recipes[0])
		lives, failed := filepath.Join(t.TempDir(), "lives"), errors.New("the service ended, or the planner was not started again")
		script := fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = planner ]; then echo life >> %[1]s; if [ $(wc -l < %[1]s) = %d ]; then echo no answer >&2; exit 4; fi; fi\nexec %s \"$@\"\n",
			lives, life, opts.Executable)
		opts.Executable, opts.LogDir, opts.Stderr = filepath.Join(t.TempDir(), "millrace"), t.TempDir(), new(syncBuffer)
		if err := os.WriteFile(opts.Executable, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		err := service.Run(t.Context(), opts, func(ctx context.Context, _ string) error {
			kill(t, "planner")
			for begin := time.Now(); ctx.Err() == nil && time.Since(begin) < patience; time.Sleep(10 * time.Millisecond) {
				if b, err := os.ReadFile(lives); err != nil || strings.Count(string(b), "life") == 3 {
					return err
				}
			}
			return failed
		})
		if (err != nil) != ends || ends && (fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), "exit status 4: no answer")) {
			t.Errorf("the log is away in life %d: %v", life, err)
		}
	}
}

// TestPlannerDeniedMirror: a planner that was killed, and is denied access to the mirror of its log for a while when it is
// started again, tries again and goes on. One that is denied access when the service begins ends the service at once.
func TestPlannerDeniedMirror(t *testing.T) {
	fake := objecttest.NewFake(t)
	lives, on := filepath.Join(t.TempDir(), "lives"), filepath.Join(t.TempDir(), "on")
	lived := func() int {
		b, _ := os.ReadFile(lives) // there is none before the first one
		return strings.Count(string(b), "life")
	}
	mirrored := func(opts *service.Options) {
		script := fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = planner ]; then echo life >> %[1]s; while [ $(wc -l < %[1]s) -gt 1 ] && [ ! -e %[2]s ]; do sleep 0.01; done; fi\nexec %[3]s \"$@\"\n",
			lives, on, opts.Executable)
		opts.Executable, opts.LogMirror = filepath.Join(t.TempDir(), "millrace"), fake.URL
		if err := os.WriteFile(opts.Executable, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	supervised(t, setting{loaders: 1, constructors: 1}, nil, mirrored, func(step int64) {
		if step != 5 {
			return
		}
		kill(t, "planner")
		for begin := time.Now(); lived() < 2; time.Sleep(10 * time.Millisecond) {
			if time.Since(begin) > patience {
				t.Fatal("the planner is not started again")
			}
		}
		fake.Deny.Store(4)
		if err := os.WriteFile(on, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	})
	if n, left := lived(), fake.Deny.Load(); n != 2 || left > 0 {
		t.Errorf("the planner lived %d times, and %d more requests were to be denied", n, left)
	}

	fake.Denied.Store(true)
	opts := setting{processes: true}.options(t, writeSources(t), recipes[0])
	opts.LogDir, opts.LogMirror, opts.Stderr = t.TempDir(), fake.URL, new(syncBuffer)
	err := service.Run(t.Context(), opts, func(context.Context, string) error { return nil })
	if fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "trying the mirror of the log") {
		t.Errorf("denied access at first: class %v, %v", fault.ClassOf(err), err)
	}
}

// TestDyingRole: a role that dies again and again, and one that says that the job is at fault,
// end the service.
func TestDyingRole(t *testing.T) {
	for _, c := range []struct {
		code  int
		class fault.Class
		text  string
		lives int
	}{
		{4, fault.Lost, "it was the 6th time within 1m0s, and it is not started again", 6},
		{3, fault.User, "exit status 3: out of luck", 1},
	} {
		dir := writeSources(t)
		opts := setting{processes: true}.options(t, dir, recipes[0])
		lives := filepath.Join(t.TempDir(), "lives")
		script := fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = loader ]; then echo life >> %s; echo out of luck >&2; exit %d; fi\nexec %s \"$@\"\n", lives, c.code, opts.Executable)
		opts.Executable = filepath.Join(t.TempDir(), "millrace")
		if err := os.WriteFile(opts.Executable, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		log := new(syncBuffer)
		opts.Stderr, opts.Log = new(syncBuffer), slog.New(slog.NewTextHandler(log, nil))
		err := service.Run(t.Context(), opts, func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return nil
		})
		if fault.ClassOf(err) != c.class || err == nil || !strings.Contains(err.Error(), "the process of loader-0 ended") || !strings.Contains(err.Error(), c.text) {
			t.Errorf("exit %d: %v", c.code, err)
		}
		if b, err := os.ReadFile(lives); err != nil || strings.Count(string(b), "life") != c.lives {
			t.Errorf("exit %d: it lived %d times, %v", c.code, strings.Count(string(b), "life"), err)
		}
		if last := fmt.Sprintf("of=5 within=1m0s in_all=%d", c.lives-1); c.lives > 1 && !strings.Contains(log.String(), last) {
			t.Errorf("exit %d: the log does not say %q:\n%s", c.code, last, log)
		}
	}
}
