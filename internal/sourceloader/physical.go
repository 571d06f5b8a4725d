package sourceloader

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/formats"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// Physical is how a loader carries out the chain of a source. Its JSON form is part of the contract of
// `millrace plan --operators --json`; fields are added, never changed.
type Physical struct {
	Source      string          `json:"source"`
	Format      string          `json:"format"`
	Files       int             `json:"files"`
	Bytes       int64           `json:"bytes"`
	Chunks      int64           `json:"chunks"`           // units of reading, in an epoch
	Blocks      int64           `json:"blocks"`           // read one at a time by each worker of a loader, in an epoch
	BlockChunks int             `json:"chunks_per_block"` // of a whole block: tasks that read, and so initial partitions
	Records     int64           `json:"records"`          // in an epoch; -1: not known
	Exact       bool            `json:"records_exact"`    // all were counted
	Tried       int64           `json:"records_tried"`    // from the first chunk on, by which bytes are estimated
	Bad         int64           `json:"records_bad"`      // of those
	Partition   int64           `json:"partition_bytes"`  // target of batches between stages; 0: there are none
	Stages      []PhysicalStage `json:"stages"`
}

// PhysicalStage is what one task does.
type PhysicalStage struct {
	Operators []string           `json:"operators"`          // in order; reading, and making samples, are named beside those of the spec
	Function  string             `json:"function,omitempty"` // of a worker process
	Runtime   string             `json:"runtime,omitempty"`  // versions that no digest covers
	Needs     map[string]float64 `json:"needs"`              // slots of a task, by resource; none: it runs in who reads the block
	Why       string             `json:"why"`                // its operators are a stage of their own
	Tried     int64              `json:"bytes_tried"`        // what it gave for the records tried
	Bytes     int64              `json:"bytes"`              // about what it gives in an epoch; -1: not known
}

// Physical returns how loaders with a memory budget carry out the source. It puts the first records through
// the chain, at most n and none behind the first chunk, to estimate what stages give. Records that are
// bad are left out, whatever the source's policy.
func (s *Source) Physical(ctx context.Context, st store.Store, budget, n int64) (*Physical, error) {
	p := &Physical{
		Source: s.Spec.Name, Format: s.Format.Name(), Files: len(s.Manifest.Files), Bytes: s.Manifest.Bytes(),
		Chunks: s.Order.Layout.Chunks(), Blocks: s.Order.Blocks(), BlockChunks: s.Order.Block, Records: -1,
	}
	stages := stagesOf(s.Chain.Segments())
	if len(stages) > 1 {
		p.Partition = partitionTarget(s.Spec.Transforms, shareOf(budget))
	}
	for i, st := range stages {
		p.Stages = append(p.Stages, p.stage(stages, i, st))
	}
	t := trial{source: s, plan: p, stages: stages, left: n, worker: s.Chain.Worker()}
	whole, err := t.run(ctx, st)
	if err != nil {
		return nil, err
	}
	if whole {
		p.Records, p.Exact = p.Tried*p.Chunks, p.Chunks == 1
	} else if t.last > 0 && format.InBytes(s.Format) && formats.Codec(s.Manifest.Files[0].URI) == "" {
		p.Records = int64(float64(p.Bytes) / float64(t.last) * float64(p.Tried-1))
	}
	if limit := s.Spec.FirstRecords(); limit > 0 && p.Records > limit {
		p.Records = limit
	}
	p.estimate()
	return p, nil
}

// callOperator is that of steps which a model server answers.
var callOperator = (*jobspec.Call)(nil).Operator()

// stage describes a stage before anything is tried.
func (p *Physical) stage(all []stage, i int, st stage) PhysicalStage {
	d := PhysicalStage{Needs: map[string]float64{}}
	if st.name != "" && st.function == nil {
		d.Operators = strings.Split(st.name, "+")
	}
	first, last := i == 0, i == len(all)-1
	switch {
	case st.function != nil && st.function.Operator == callOperator:
		d.Operators, d.Function = []string{callOperator}, st.function.Name
		d.Needs[callOperator] = 1
		d.Why = "it waits for another machine, for which there are slots of their own"
	case st.function != nil:
		d.Operators, d.Function, d.Runtime = []string{st.function.Operator}, st.function.Name, st.function.Runtime
		d.Needs[pythonSlots] = 1
		d.Why = fmt.Sprintf("it runs in worker processes, which are slots of their own: records cross in batches of %d bytes", p.Partition)
	case first && last:
		d.Operators = append([]string{"read"}, append(d.Operators, "samples")...)
		d.Needs[cpuSlots] = 1
		d.Why = "all steps need the same slot, so that each record goes through all of them at once and nothing lies between stages"
	case first:
		d.Operators = append([]string{"read"}, d.Operators...)
		d.Needs[cpuSlots] = 1
		d.Why = "steps before the first function need the same slot as reading, and see each record in the reader's memory"
	case last:
		d.Operators = append(d.Operators, "samples")
		d.Why = "steps behind the last function run in who reads the block, which takes batches in the order of the files"
	default:
		d.Needs[cpuSlots] = 1
		d.Why = "native steps between two functions that take time need another slot than these"
	}
	if st.function != nil {
		d.fused(st)
	}
	return d
}

// fused adds the native steps that run in a function's task.
func (d *PhysicalStage) fused(st stage) {
	if st.before != "" {
		d.Operators = append(strings.Split(st.before, "+"), d.Operators...)
		d.Why += "; " + st.before + " before it takes little time, and needs no slot of its own"
	}
	if st.behind != "" {
		d.Operators = append(d.Operators, strings.Split(st.behind, "+")...)
		d.Why += "; " + st.behind + " behind it makes less of what it gives, so that less lies between stages"
	}
}

// estimate makes estimates of an epoch of what was tried.
func (p *Physical) estimate() {
	for i := range p.Stages {
		s := &p.Stages[i]
		s.Bytes = -1
		if p.Records >= 0 && p.Tried > 0 {
			s.Bytes = int64(float64(s.Tried) / float64(p.Tried) * float64(p.Records))
		} else if p.Records == 0 {
			s.Bytes = 0
		}
	}
}

// trial puts the first records of a source through its stages.
type trial struct {
	source *Source
	plan   *Physical
	stages []stage
	left   int64 // records that may be read yet
	worker *transform.Worker
	last   int64 // row of the last record of the first file
}

// run reports whether it came to the end of the first chunk.
func (t *trial) run(ctx context.Context, st store.Store) (whole bool, err error) {
	for _, unit := range t.source.Order.Layout.Units(0) {
		ctx := format.WithFile(ctx, unit.File)
		batch := &format.Batch{}
		err := t.source.ReadUnit(ctx, st, unit, func(rec *format.Record) error {
			if t.left == 0 {
				return errProbed
			}
			t.left--
			t.plan.Tried++
			if unit.File == 0 {
				t.last = rec.Row
			}
			return t.record(ctx, rec, batch)
		})
		ended := errors.Is(err, errProbed)
		if err != nil && !ended {
			return false, fault.As(fault.ClassOf(err), fmt.Errorf("source %q: %w", t.source.Spec.Name, err))
		}
		if err := t.batch(ctx, batch); err != nil || ended {
			return false, err
		}
	}
	return true, nil
}

// record puts a record through the first stage.
func (t *trial) record(ctx context.Context, rec *format.Record, batch *format.Batch) error {
	if len(t.stages) > 1 {
		_, err := t.worker.Begin(rec, batch)
		return err
	}
	_, err := t.worker.Apply(ctx, rec, t.sample)
	if err != nil && fault.ClassOf(err) == fault.User {
		t.plan.Bad++
		return nil
	}
	return err
}

// batch puts what the first stage gave through the others.
func (t *trial) batch(ctx context.Context, batch *format.Batch) error {
	if len(t.stages) == 1 || batch.Len() == 0 {
		return nil
	}
	for i, st := range t.stages[:len(t.stages)-1] {
		for _, k := range st.segments {
			if k == 0 {
				continue
			}
			var err error
			if batch, _, err = t.worker.Pass(ctx, k, batch); err != nil {
				return fault.As(fault.ClassOf(err), fmt.Errorf("source %q: %w", t.source.Spec.Name, err))
			}
		}
		t.plan.Stages[i].Tried += batch.Bytes()
	}
	_, err := t.worker.End(batch, t.sample, func(*format.Record, error) error {
		t.plan.Bad++
		return nil
	})
	return err
}

// sample counts what a sample takes: token ids, kept columns and encoded images.
func (t *trial) sample(s *transform.Sample) error {
	n := 4 * len(s.Tokens)
	for _, extra := range s.Extras {
		n += len(extra)
	}
	for i := range s.Images {
		n += len(s.Images[i].Data)
	}
	t.plan.Stages[len(t.plan.Stages)-1].Tried += int64(n)
	return nil
}
