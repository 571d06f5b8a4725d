package planner

import (
	"fmt"
	"strings"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// tellTime is how long all are told why a job failed for good, before the planner
// ends: as long as ranks that have batches take to ask for the next.
const tellTime = 5 * time.Second

// fail ends the job: from now on everybody is told err. What the user can mend is
// told until he stops the service; anything else ends it.
func (p *Planner) fail(err error) {
	if p.failed != nil {
		return
	}
	p.failed = err
	class := fault.ClassOf(err)
	p.opts.Log.Error("job failed", "job", p.id.name, "class", class.String(), "err", err)
	p.tell(func(*constructorSession) *pb.ConstructorOrder {
		return &pb.ConstructorOrder{Order: &pb.ConstructorOrder_Failure{Failure: rpc.ToFailure(err, -1)}}
	})
	if class != fault.User {
		p.last = time.After(tellTime)
	}
}

// logStopped is closed when the log can take no more, whether there is something to log
// or not; nil once the job has failed.
func (p *Planner) logStopped() <-chan struct{} {
	if p.log == nil || p.failed != nil {
		return nil
	}
	return p.log.Stopped()
}

func (p *Planner) failByLog() { p.fail(p.log.Err()) }

// end takes note that there is no step e.Step, and none after it.
func (p *Planner) end(e plan.End) {
	p.ended = e.Step
	p.opts.Log.Info("end of data", "job", p.id.name, "step", e.Step)
	if p.endReason = p.whyWithheld(e); p.endReason != "" {
		p.opts.Log.Warn("the data ends early", "job", p.id.name, "step", e.Step, "reason", p.endReason)
	}
	if p.remesh == nil {
		p.tell(p.endOrder)
	}
}

// whyWithheld says in words why there is no step though there is data.
func (p *Planner) whyWithheld(e plan.End) string {
	if len(e.Withheld) == 0 {
		return ""
	}
	var names []string
	for _, i := range e.Withheld {
		names = append(names, p.sources[i].Name)
	}
	return fmt.Sprintf("ended at step %d: all sources with weight are paused or dropped (%s): to go on, start from a token of a step before, "+
		"with --changes that by step %d resume one of them or give weight to another", e.Step, strings.Join(names, ", "), e.Step)
}

// endOrder says where the data ends, for the ranks of this mesh at least.
func (p *Planner) endOrder(*constructorSession) *pb.ConstructorOrder {
	end := &pb.EndOfData{Generation: p.generation, Step: uint64(p.ended)}
	if p.remesh != nil {
		end.Step, end.Topology = uint64(p.remesh.Step), p.remesh.Mesh.Canonical()
	}
	return &pb.ConstructorOrder{Order: &pb.ConstructorOrder_End{End: end}}
}
