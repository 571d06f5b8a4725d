package planner

import (
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/control"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/jobspec"
)

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
