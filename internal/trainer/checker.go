package trainer

import (
	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/jobspec"
)

// Checker rebuilds the global batch of a step from what the ranks of a job were given,
// for callers that run the ranks themselves. It is for one goroutine at a time.
type Checker struct{ run run }

// NewChecker returns a checker of a job on the mesh of its spec.
func NewChecker(job *jobspec.Job) *Checker {
	c := &Checker{run{opts: Options{Job: job}}}
	c.run.mesh = meshOf(job, nil, nil)
	c.run.arrange()
	return c
}

// Ranks are the ranks that fetch.
func (c *Checker) Ranks() []client.Rank { return c.run.places }

// Check rebuilds a step from the batches of all Ranks, in their order. before is the
// digest of the chain up to the step. An error says which ranks contradict each other.
func (c *Checker) Check(before [32]byte, batches []*client.Batch) (*Step, error) {
	c.run.digest = before
	return c.run.check(batches)
}
