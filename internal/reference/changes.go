package reference

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/jobspec"
)

// changed is the effect of changes on a job.
type changed struct {
	changes []change.Change // to come
	set     []uint64        // shares that were set by hand
	added   []uint64        // shares of the sources that joined
	banned  map[ban]bool
}

// ban is a banned record.
type ban struct {
	source string
	file   string
	row    int64
}

// changeAt applies the changes of a step, and returns the number of steps to skip
// before it.
func (r *reader) changeAt(n int64) (skip int64, err error) {
	for len(r.changes) > 0 && r.changes[0].Step <= n {
		c := r.changes[0]
		r.changes = r.changes[1:]
		skip += c.Skip
		if err := r.change(c); err != nil {
			return 0, fault.As(fault.ClassOf(err), fmt.Errorf("%sthe change %s: %w", c.Origin, c, err))
		}
	}
	return skip, nil
}

func (r *reader) change(c change.Change) error {
	at := &source{}
	if name := c.Source(); name != "" {
		i, err := change.Find(r.names(), name)
		if err != nil {
			return err
		}
		at = r.sources[i]
	}
	at.paused = at.paused && c.Resume == "" || c.Pause != ""
	if c.Drop != "" {
		at.dropped, at.owed = true, 0
	}
	if c.Sequences > 0 {
		r.seats = c.Sequences
	}
	if c.SequenceLength > 0 {
		r.length = c.SequenceLength
	}
	if c.Ban != nil {
		file, err := at.Manifest.Find(c.Ban.File)
		if err != nil {
			return err
		}
		r.banned[ban{at.spec.Name, at.Manifest.Name(int32(file)), c.Ban.Row}] = true
	}
	if c.Schedule {
		r.set = nil
	}
	if c.Weights != nil {
		weights, err := c.WeightsOf(r.names())
		if err != nil {
			return err
		}
		r.set = mix.FromWeights(weights)
	}
	if c.Add != nil {
		return r.add(c.Add)
	}
	return r.strategy.remesh(c.Topology) // else the topology changes no batch
}

// add opens a source that joins the job.
func (r *reader) add(a *change.Add) error {
	spec, findings := jobspec.ParseSource(r.job, a.Source)
	if err := findings.Err(); err != nil {
		return fault.As(fault.User, err)
	}
	job := *r.job
	job.Sources = []jobspec.Source{spec}
	s, err := r.open(&job.ResolvedSources()[0])
	if err != nil {
		return err
	}
	r.sources = append(r.sources, s)
	r.added = append(r.added, uint64(a.Weight*(1<<whole)))
	return nil
}
