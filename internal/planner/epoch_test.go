package planner

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/control"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/jobspec"
)

// TestEpochRises: each planner of a log has a higher epoch than the one before, which is in the
// log before anyone hears of it. One that stands by waits for the log.
func TestEpochRises(t *testing.T) {
	opts := Options{LogDir: "log", LogFS: vfs.NewMem()}
	root := [32]byte{7}
	from, err := takeLog(t.Context(), &opts)
	if err != nil || from.log != nil || from.epoch != 1 || from.resumes() {
		t.Fatalf("without a log: %+v, %v", from, err)
	}
	w := &logWriter{opts: opts, earlier: from}
	log, err := w.openLog(root)
	if err != nil || log.Epoch() != 1 {
		t.Fatalf("a log begins: %v", err)
	}
	if err := log.Append(0, []byte("record"), []byte("frame")); err != nil {
		t.Fatal(err)
	}

	opts.Standby = true
	taken := make(chan earlier)
	go func() {
		next, err := takeLog(t.Context(), &opts)
		if err != nil {
			t.Error(err)
		}
		taken <- next
	}()
	select {
	case <-taken:
		t.Fatal("a planner took over while another one has the log")
	case <-time.After(4 * standbyEvery):
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	from = <-taken
	if from.log == nil || from.epoch != 2 || from.log.Epoch() != 2 || !from.resumes() {
		t.Fatalf("after the first planner ended: %+v", from)
	}
	w = &logWriter{opts: opts, earlier: from}
	if _, err := w.openLog([32]byte{8}); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "belongs to the job with identity") {
		t.Errorf("with other data: %v", err)
	}
}

// TestDeposed: a planner that somebody names a higher epoch ends, and says why; its own or a
// lower one is nothing.
func TestDeposed(t *testing.T) {
	p := &Planner{epoch: 3, inbox: make(chan input, 1), over: make(chan struct{}), done: make(chan struct{})}
	for _, epoch := range []uint64{0, 2, 3} {
		if err := p.checkEpoch(t.Context(), epoch, "loader a"); err != nil {
			t.Errorf("epoch %d: %v", epoch, err)
		}
	}
	err := p.checkEpoch(t.Context(), 4, "loader a")
	if fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), "loader a has heard of the planner of epoch 4") {
		t.Errorf("epoch 4: %v", err)
	}
	if in, ok := (<-p.inbox).(deposed); !ok || in.error != err {
		t.Errorf("the loop hears %v", in)
	}
	if n := p.staleRefused(); n != 1 {
		t.Errorf("%d refusals were counted, want 1", n)
	}
}

// TestZombieRefusesTrainers: a planner whose place another one took refuses whatever a trainer
// asks that knows; a request for another job says nothing of this one's planners. Of what trainers
// and roles refused, the planner that took over knows.
func TestZombieRefusesTrainers(t *testing.T) {
	job, findings := jobspec.Parse("demo.yaml", []byte("name: demo\nsources: [{name: web, files: web/*.jsonl}]\nbatch: {sequence_length: 8, sequences: 2}\n"), "/specs")
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	for name, ask := range map[string]func(p *Planner, identity []byte, epoch uint64) error{
		"Join": func(p *Planner, identity []byte, epoch uint64) error {
			_, err := p.Join(t.Context(), &pb.JoinRequest{Identity: identity, Epoch: epoch, Protocol: rpc.Protocol, StaleRefused: 5})
			return err
		},
		"State": func(p *Planner, identity []byte, epoch uint64) error {
			_, err := p.State(t.Context(), &pb.StateRequest{Identity: identity, Epoch: epoch, StaleRefused: 5})
			return err
		},
		"Change": func(p *Planner, identity []byte, epoch uint64) error {
			_, err := p.Change(t.Context(), &pb.ChangeRequest{Identity: identity, Epoch: epoch, StaleRefused: 5})
			return err
		},
		"Report": func(p *Planner, identity []byte, epoch uint64) error {
			_, err := p.Report(t.Context(), &pb.ReportRequest{Identity: identity, Epoch: epoch, StaleRefused: 5})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Planner{epoch: 3, opts: Options{Job: job}, spec: job.Identity(), inbox: make(chan input, 1), over: make(chan struct{}), done: make(chan struct{})}
			if err := rpc.FromStatus(ask(p, []byte("another"), 4)); fault.ClassOf(err) != fault.User || len(p.inbox) > 0 || p.staleRefused() > 0 {
				t.Errorf("of another job: %v, %d inputs, %d refused", err, len(p.inbox), p.staleRefused())
			}
			err := rpc.FromStatus(ask(p, p.spec[:], 4))
			if fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), "has heard of the planner of epoch 4") || p.staleRefused() != 1 {
				t.Errorf("of this one: %v, %d refused", err, p.staleRefused())
			}
			if in, ok := (<-p.inbox).(deposed); !ok {
				t.Errorf("the loop hears %v", in)
			}
			close(p.done) // the loop is not there to answer
			p.loaders = map[control.Session]*loaderSession{1: {}}
			p.loaders[1].usage.Store(&pb.LoaderUsage{StaleRefused: 20})
			_ = ask(p, p.spec[:], 3) // whoever asks hears of no planner
			if p.staleRefused() != 1+5+20 {
				t.Errorf("a trainer told of 5 refusals and a loader of 20: %d are known", p.staleRefused())
			}
		})
	}
}

// TestLogLost: that another planner took the log over is no failure of the job, and any other error
// of the log is.
func TestLogLost(t *testing.T) {
	taken := fmt.Errorf("another planner %w the log", checkpoint.ErrDeposed)
	for _, ev := range []control.Event{control.Persisted{Err: taken}, control.LogRead{Err: taken}, control.LogOpened{Err: taken}} {
		if err := logLost(ev); err != taken {
			t.Errorf("%T: %v", ev, err)
		}
	}
	for _, ev := range []control.Event{control.Persisted{Err: errors.New("the disk is full")}, control.Persisted{}, control.Idle{}} {
		if err := logLost(ev); err != nil {
			t.Errorf("%T: %v", ev, err)
		}
	}
}
