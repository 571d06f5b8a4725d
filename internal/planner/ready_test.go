package planner

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/fleet"
	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/scaling"
	"github.com/millrace-data/millrace/internal/planner/steplog"
	"github.com/millrace-data/millrace/internal/sizing"
	"github.com/millrace-data/millrace/internal/telemetry"
	"github.com/millrace-data/millrace/jobspec"
)

// TestReady: a planner is ready for its peers before they are there, and says then already how many there are to be; of a job
// that failed it says that, and no word of the error, which may quote a record.
func TestReady(t *testing.T) {
	job, findings := jobspec.Parse("demo.yaml", []byte("name: demo\nsources: [{name: web, files: web/*.jsonl}]\nbatch: {sequence_length: 8, sequences: 2}\n"), "/specs")
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	opts := Options{Job: job, Loaders: 3, Shadows: 1, Constructors: 2, Scale: scaling.Options{Fleet: fleet.Asked{}, Scaling: sizing.Scaling{Most: 6}}}
	opts.withDefaults()
	p, err := newPlanner(opts)
	if err != nil {
		t.Fatal(err)
	}
	taken := time.Now()
	p.begin(opts.stepLog(), steplog.Taken{})
	if p.started.Before(taken) {
		t.Error("the time that it stood by counts as its own")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for in := range p.inbox {
			p.take(in)
		}
	}()
	defer func() { close(p.inbox); <-done }()
	if why := p.unready(); why != "" {
		t.Errorf("a planner whose members are to come waits for %s", why)
	}
	wanted := map[string]float64{}
	p.observe(func(m telemetry.ID, value float64, labels ...string) {
		if of := telemetry.Metrics[m]; len(labels) != len(of.Labels) || labels[0] != "demo" {
			t.Errorf("%s has labels %v", of.Name, labels)
		}
		if m == telemetry.MembersWanted {
			wanted[labels[1]] = value
		}
	})
	if wanted["loader"] != 4 || wanted["constructor"] != 2 {
		t.Errorf("wanted are %v", wanted)
	}
	if s, err := p.look(t.Context()); err != nil || s.Scaling.Loaders != 4 || s.Wanted.Loaders != 4 || !strings.Contains(s.String(), "scaling: 4 loaders wanted\n") {
		t.Errorf("the status wants %v, %v, and its page is %q, %v", s.Scaling, s.Wanted, s, err)
	}
	p.inbox <- occurred{control.Failed{Err: fault.Userf("/data/a.jsonl, record 3: cannot clean 'patient Jane Doe'")}}
	if why := p.unready(); !strings.Contains(why, "failed the job (user)") || strings.Contains(why, "Jane") || strings.Contains(why, "/data") {
		t.Errorf("a job that failed waits for %q", why)
	}
}
