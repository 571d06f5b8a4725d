package planner

import (
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// publish makes a plan durable and sends each constructor its part. As long as no
// trainer said where the job goes on, what is planned is a guess and not logged.
func (p *Planner) publish(s *plan.Step) {
	moves := p.remesh == nil && !s.Mesh.Equal(p.tree)
	if moves {
		p.remesh = s
	}
	parts, err := p.cutAndRecord(s)
	if err != nil {
		p.fail(err)
		return
	}
	p.steps[s.Step] = s
	for n, part := range parts {
		if part != nil {
			p.sendPart(p.constructors[n], part)
		}
	}
	p.noteWork(s)
	if moves {
		p.opts.Log.Info("the topology changes", "job", p.id.name, "step", s.Step, "to", s.Mesh.Canonical())
		p.tell(p.endOrder)
	}
}

// cutAndRecord cuts the part of each constructor, none if the step is for another
// mesh, while it writes the record of the step. Nothing that runs here changes the
// planner's state.
func (p *Planner) cutAndRecord(s *plan.Step) ([]*pb.ConstructorOrder, error) {
	parts := make([]*pb.ConstructorOrder, len(p.constructors))
	var images *stepImages
	if p.remesh == nil {
		var err error
		if images, err = p.imagesOf(s); err != nil {
			return nil, err
		}
	}
	var work errgroup.Group
	work.SetLimit(runtime.GOMAXPROCS(0))
	if p.positioned {
		work.Go(func() error { return p.record(s) })
	}
	for n, c := range p.constructors {
		if c != nil && p.remesh == nil {
			work.Go(func() error { parts[n] = p.partOf(s, images, c); return nil })
		}
	}
	return parts, work.Wait()
}

// both calls two functions at the same time. A panic of a is the caller's, after b is done.
func both(a, b func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		b()
	}()
	defer func() { <-done }()
	a()
}
