package engine

import "context"

// PipelineUsage is what a pipeline does now.
type PipelineUsage struct {
	Stored  int64 // bytes of its partitions
	Spilled int64 // bytes of those outside of memory
	Written int64 // bytes of all that ever were
	Stages  []StageUsage
}

// StageUsage is what a stage does now. Queued tasks have their input, and wait for a slot or for their turn.
type StageUsage struct {
	Name        string
	Running     int // tasks
	Waiting     int // of them, for room for what they give
	Queued      int
	QueuedBytes int64
}

// Usage asks the executor's loop what the pipeline does.
func (p *Pipeline) Usage(ctx context.Context) (PipelineUsage, error) {
	a := surveyed{p, make(chan PipelineUsage, 1)}
	if err := p.ex.send(ctx, a); err != nil {
		return PipelineUsage{}, err
	}
	select {
	case u := <-a.reply:
		return u, nil
	case <-ctx.Done():
		return PipelineUsage{}, context.Cause(ctx)
	case <-p.ex.stopped:
		return PipelineUsage{}, whyStopped(ctx)
	}
}

// surveyed is a question of what a pipeline does.
type surveyed struct {
	pipeline *Pipeline
	reply    chan PipelineUsage
}

func (a surveyed) apply(e *Executor) {
	p := a.pipeline
	u := PipelineUsage{Stored: p.used, Spilled: p.spilled, Written: p.written, Stages: make([]StageUsage, len(p.stages))}
	for op := range u.Stages {
		s := &u.Stages[op]
		s.Name, s.Running = p.stages[op].Name, len(p.running[op])
		for _, r := range p.runs {
			s.Queued += len(r.ready[op])
			for _, n := range r.ready[op] {
				s.QueuedBytes += n.bytes
			}
		}
	}
	for _, t := range e.waiting {
		if t.node.src.run.pipeline == p {
			u.Stages[t.node.op].Waiting++
		}
	}
	a.reply <- u
}
