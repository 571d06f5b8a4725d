package planner

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// ledger is what a source gave and lost so far in this service's life.
type ledger struct {
	filtered, dropped, empty uint64
	skipped                  uint64
	epochSkips               map[int64]skips
	lastSkip                 *pb.Skip
	fields                   fields
}

// note enters what a block lost into the source's ledger, and stops the job if
// more records were skipped than the source's policy allows.
func (p *Planner) note(b *pb.BlockRead) bool {
	led, spec := &p.ledger[b.Source], p.sources[b.Source]
	led.filtered += b.Filtered
	led.dropped += b.Dropped
	led.empty += b.Empty
	led.skipped += uint64(len(b.Skips))
	for _, path := range led.fields.add(b) {
		p.opts.Log.Warn("records lack a field that the source names; the status counts them", "source", spec.Name, "field", path)
	}
	for _, s := range b.Skips {
		p.opts.Log.Warn("bad record skipped", "source", spec.Name, "file", s.File, "row", s.Row, "reason", s.Reason)
		led.lastSkip = s
	}
	epoch := int64(b.Seq / p.indexed[b.Source].Blocks)
	skips := led.epochSkips[epoch]
	skips.add(b.Skips)
	led.epochSkips[epoch] = skips
	if skips.n > spec.BadRecords.Limit && skips.n > 0 {
		p.fail(fault.Userf("source %q: %d bad records in one epoch, more than bad_records.limit %d allows: %s",
			spec.Name, skips.n, spec.BadRecords.Limit, plan.FewOf(skips.first, int64(skips.n))))
		return false
	}
	return true
}

// skips are bad records of one epoch that were skipped.
type skips struct {
	n     int
	first []string
}

func (s *skips) add(list []*pb.Skip) {
	s.n += len(list)
	for _, x := range list[:min(len(list), plan.FirstBad-len(s.first))] {
		s.first = append(s.first, skipText(x))
	}
}

// skipText says where a bad record is, and what is wrong with it.
func skipText(s *pb.Skip) string { return fmt.Sprintf("%s row %d: %s", s.File, s.Row, s.Reason) }
