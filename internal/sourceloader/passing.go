package sourceloader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace-data/millrace/internal/engine"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
)

// What a function gives is cut into partitions of the target size while it gives it. Where they end
// depends on the records alone, and not on how many of them a worker took at a time.

// rows are records of one unit on their way through the stages, with what was seen when they were read.
type rows struct {
	*format.Batch
	file    int
	records uint64 // that were read, bad ones included
	good    uint64 // of them
	absent  []Absent
	first   []int64 // of each absent, the row that lacks it first
	lacks   []lacking
	err     error // that ended the reading here; the batch is empty
}

// lacking is a record without a column that it must have, if a step comes to read it.
type lacking struct {
	row    int64
	column int
	hint   string
}

// rowsBytes is what rows take beside their batch; lackingBytes each entry of what is absent.
const (
	rowsBytes    = 256
	lackingBytes = 64
)

// Bytes implements engine.Partition.
func (p *rows) Bytes() int64 {
	return p.Batch.Bytes() + rowsBytes + lackingBytes*int64(len(p.lacks)+len(p.absent))
}

// Digest is that of the records. What ended the reading is in no digest, as what it says may differ.
func (p *rows) Digest() uint64 {
	if p.err != nil {
		return 0
	}
	return p.Batch.Digest()
}

// count notes what a record lacks.
func (p *rows) count(s *Source, rec *format.Record) {
	p.records++
	if rec.Err != nil {
		return
	}
	p.good++
	for i := range rec.Values {
		if !rec.Values[i].Absent {
			continue
		}
		path := s.Options.Columns[i]
		if s.Chain.Requires(i) {
			p.lacks = append(p.lacks, lacking{rec.Row, i, transform.Hint(s.Chain.Lacks(rec, i))})
			continue
		}
		at := slices.IndexFunc(p.absent, func(a Absent) bool { return a.Path == path })
		if at < 0 {
			at = len(p.absent)
			p.absent = append(p.absent, Absent{Path: path, Hint: transform.Hint(s.Chain.Lacks(rec, i))})
			p.first = append(p.first, rec.Row)
		}
		p.absent[at].Records++
	}
}

// until takes what belongs to the records up to the last one of a batch, which are the first of those in p.
// What is known of all of them together stays: the last one takes it.
func (p *rows) until(b *format.Batch) *rows {
	q := &rows{Batch: b, file: p.file}
	last := int64(-1)
	for i := range b.Len() {
		if row, _ := b.Key(i); row != last {
			last, q.records = row, q.records+1
		}
	}
	p.records -= q.records
	at, _ := slices.BinarySearch(p.first, last+1)
	q.first, q.absent = p.first[:at:at], p.absent[:at:at]
	p.first, p.absent = p.first[at:], p.absent[at:]
	at, _ = slices.BinarySearchFunc(p.lacks, last+1, func(l lacking, row int64) int { return int(l.row - row) })
	q.lacks, p.lacks = p.lacks[:at:at], p.lacks[at:]
	return q
}

// growth is how many bytes a stage gave lately for each that it took, in thousandths; 0 is not known.
type growth struct{ most atomic.Int64 }

// expect is what a task is to give for some bytes.
func (g *growth) expect(in int64) int64 { return in * max(g.most.Load(), 1000) / 1000 }

// learn takes note of what a task gave: the most, of which a tenth fades with each that gives less.
func (g *growth) learn(in, out int64) {
	g.most.Store(max(1000*out/max(in, 1), g.most.Load()*9/10))
}

// callsGive is how many partitions a function may give before it is called again: one would be a second call
// for the last few records of many.
const callsGive = 2

// passing is a partition on its way through a stage.
type passing struct {
	*flow
	ctx    context.Context
	worker *transform.Worker
	most   int64 // bytes that a call gives
	beside int64 // bytes of what it takes or gives that native steps, or putting together, copy
	call   call
	left   rows // what was not given yet of the partition
	out    *engine.Output
	cut    *format.Cutter
	given  int64
	failed error         // of out: no fault of the data
	waited time.Duration // for room
}

// pass puts partitions that follow each other through a stage. Those of one file it puts through together.
func (f *flow) pass(ctx context.Context, in []engine.Partition, out *engine.Output, st stage, grows *growth) error {
	for len(in) > 0 {
		next, n := together(in)
		in = in[n:]
		if next.err != nil {
			if err := out.Emit(next); err != nil {
				return err
			}
			continue
		}
		p := &passing{flow: f, ctx: format.WithFile(ctx, next.file), left: *next, out: out, most: callsGive * out.Target()}
		if n > 1 {
			p.beside += next.Bytes()
		}
		if st.before != "" {
			p.beside += next.Bytes()
		}
		if st.behind != "" {
			p.beside += p.most
		}
		if err := p.pass(next, st.name, st.segments, grows); err != nil {
			return err
		}
	}
	return nil
}

// together are the rows of the first partitions, as many as are of one file, and how many these are. What
// ended the reading stands by itself.
func together(in []engine.Partition) (all *rows, n int) {
	all = in[0].(*rows)
	batches := []*format.Batch{all.Batch}
	for n = 1; n < len(in) && all.err == nil; n++ {
		next := in[n].(*rows)
		if next.err != nil || next.file != all.file {
			break
		}
		if n == 1 {
			first := *all
			all = &first // partitions are read-only
		}
		batches = append(batches, next.Batch)
		all.records, all.good = all.records+next.records, all.good+next.good
		all.absent, all.first = slices.Concat(all.absent, next.absent), slices.Concat(all.first, next.first)
		all.lacks = slices.Concat(all.lacks, next.lacks)
	}
	all.Batch = format.Concat(batches)
	return all, n
}

func (p *passing) pass(in *rows, stage string, segments []int, grows *growth) error {
	p.worker = p.flow.worker()
	defer p.workers.Put(p.worker)
	if err := p.out.Reserve(p.beside + max(min(grows.expect(in.Bytes()), p.most), in.Bytes())); err != nil {
		return err
	}
	p.cut = format.NewCutter(p.out.Target(), func(b *format.Batch) error { return p.emit(p.left.until(b)) })
	began := time.Now()
	uri := p.source.Manifest.Files[in.file].URI
	p.call = call{calls: &p.calls, source: p.source.Spec.Name, what: fmt.Sprintf("%s has %d records of %s", stage, in.Len(), uri)}
	err := p.through(segments, in.Batch, p.collect)
	p.source.costs.stage(stage, time.Since(began)-p.waited, p.given)
	switch {
	case err == nil:
	case errors.Is(err, errStops):
		err = nil
	case p.ctx.Err() != nil, p.failed != nil:
		return err
	case fault.ClassOf(err) == fault.Lost:
		return fault.As(fault.Lost, fmt.Errorf("%s: %w", uri, err))
	}
	p.left.Batch = p.cut.Rest()
	if err != nil { // it counts where the order of the data comes to it
		p.left.Batch, p.left.err = &format.Batch{}, inFile(uri, p.source.Format, &format.Record{}, err)
	} else {
		grows.learn(in.Bytes(), p.given+p.left.Bytes())
	}
	return p.emit(&p.left)
}

// through puts a batch through some segments, piece by piece.
func (p *passing) through(segments []int, in *format.Batch, give transform.Give) error {
	if len(segments) == 0 {
		return give(in, 0)
	}
	p.call.begin()
	defer p.call.end()
	_, err := p.worker.PassOn(p.ctx, segments[0], in, p.most, func(b *format.Batch, left int) error {
		p.call.end()
		defer p.call.begin()
		return p.through(segments[1:], b, func(b *format.Batch, more int) error { return give(b, left+more) })
	})
	return err
}

// errStops is that the job stops at a record that came out: what comes behind it is not worked on.
var errStops = errors.New("a bad record stops the job")

// collect takes what came out, and makes room for what comes next.
func (p *passing) collect(b *format.Batch, left int) error {
	p.cache.work.Add(uint64(b.Len())) // a child that decodes a video takes as long as the reading of many records
	bad := p.stopsAt(b)
	if bad >= 0 { // how many came behind it depends on who worked on them
		b = b.First(bad + 1)
	}
	err := p.cut.Add(b)
	if err == nil && bad >= 0 {
		return errStops
	}
	if err == nil && left > 0 {
		began := time.Now()
		err = p.out.Reserve(p.beside + p.cut.Held() + p.most)
		p.waited += time.Since(began)
		p.failed = err
	}
	return err
}

// stopsAt is the first record of a batch that stops the job, -1 if none does.
func (p *passing) stopsAt(b *format.Batch) int {
	if !b.Refused() {
		return -1
	}
	for i := range b.Len() {
		if err := b.Bad(i); err != nil && !transform.Skips(p.source.Spec, err) {
			return i
		}
	}
	return -1
}

func (p *passing) emit(q *rows) error {
	p.given += q.Bytes()
	began := time.Now()
	if p.failed = p.out.Reserve(p.beside + q.Bytes()); p.failed == nil {
		p.failed = p.out.Emit(q)
	}
	p.waited += time.Since(began)
	return p.failed
}
