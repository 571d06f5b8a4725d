package sourceloader

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
)

// Probe is what the first records of a source, in the order of its files, came to.
type Probe struct {
	*Block           // without samples: what was counted
	Kept    uint64   // records that gave a sample, or came to a call step that is Unasked
	Samples uint64   // that these gave
	Roles   []string // of the messages of conversations, the first few, in order of appearance
	Lacked  uint64   // records that cannot be used since they lack a field
	Bad     uint64   // records that cannot be used for another reason
	First   error    // what is wrong with the first of those; it names file and place
}

// errProbed ends a reading that has enough.
var errProbed = errors.New("as many records as were asked for are read")

// Probe reads the first n records as a block is read, whatever the source's policy for
// bad records, and keeps no sample. An error is one that would stop a job that gets there.
func (s *Source) Probe(ctx context.Context, st store.Store, n int64) (*Probe, error) {
	p := &Probe{Block: &Block{hasMasks: s.Spec.Masks()}}
	r := &reading{source: s, worker: s.Chain.Worker(), block: p.Block}
	left := n
	record := func(rec *format.Record) error {
		if left == 0 {
			return errProbed
		}
		left--
		return p.take(ctx, r, rec)
	}
	for chunk := range s.Order.Layout.Chunks() {
		for _, unit := range s.Order.Layout.Units(chunk) {
			r.file = unit.File
			err := s.ReadUnit(ctx, st, unit, record)
			if errors.Is(err, errProbed) {
				return p, nil
			}
			if err != nil {
				return p, fault.As(fault.ClassOf(err), fmt.Errorf("source %q: %w", s.Spec.Name, err))
			}
		}
	}
	return p, nil
}

// take counts one record.
func (p *Probe) take(ctx context.Context, r *reading, rec *format.Record) error {
	r.count(rec)
	outcome, err := r.worker.Apply(format.WithFile(ctx, r.file), rec, p.sample)
	p.roles(r.worker.Roles())
	column, lacks := transform.AbsentColumn(err)
	switch {
	case errors.Is(err, errUnasked):
		p.Kept++
	case lacks:
		p.Lacked++
		r.absent(rec, column)
	case err != nil && fault.ClassOf(err) != fault.User:
		return err
	case err != nil:
		if p.Bad++; p.First == nil {
			p.First = inFile(r.source.Manifest.Files[r.file].URI, r.source.Format, rec, err)
		}
	case outcome == transform.Kept:
		p.Kept++
	default:
		r.outcome(outcome)
	}
	return nil
}

func (p *Probe) sample(s *transform.Sample) error {
	p.Samples++
	if p.hasMasks {
		p.countLoss(s)
	}
	return nil
}

// fewRoles is how many roles of messages a probe names: more than any template knows.
const fewRoles = 8

func (p *Probe) roles(said []string) {
	for _, role := range said {
		if len(p.Roles) < fewRoles && !slices.Contains(p.Roles, role) {
			p.Roles = append(p.Roles, role)
		}
	}
}
