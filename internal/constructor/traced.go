package constructor

import (
	"time"

	"github.com/millrace-data/millrace/internal/constructor/deliver"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/telemetry"
)

// tracing is what a constructor knows of the traces of its job.
type tracing struct {
	identity [32]byte
	every    uint64 // steps to one that is traced; 0: none
}

// tracingOf is what the planner says of it.
func tracingOf(job *pb.ConstructorJob) *tracing {
	t := &tracing{every: job.TraceEvery}
	copy(t.identity[:], job.Identity)
	return t
}

// trace records a part of the work on a step, if that is traced.
func (c *Constructor) trace(generation, step uint64, name, who string, begin, end time.Time, notes ...telemetry.Note) {
	t := c.tracing.Load()
	if t == nil || !c.opts.Telemetry.Traces(step, t.every) {
		return
	}
	c.opts.Telemetry.Record(telemetry.Span{
		Of: telemetry.StepID{Identity: t.identity, Generation: generation, Step: step}, Name: name, Who: who, Begin: begin, End: end, Notes: notes,
	})
}

// traceDelivery records that a rank got its part of a step: from when it could have until all of it was handed to the
// network, or to memory that is shared.
func (c *Constructor) traceDelivery(r deliver.Rank, step *deliver.Step, begin time.Time, bytes int, way string) {
	c.trace(step.Generation, step.Number, telemetry.SpanDeliver, r.Label(), begin, time.Now(), telemetry.Note{Key: "bytes", Value: int64(bytes)}, telemetry.Note{Key: "way", Value: way})
}
