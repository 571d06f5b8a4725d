package control

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
	"github.com/millrace-data/millrace/jobspec"
)

// ledger is what a source gave and discarded so far in this service's life.
type ledger struct {
	filtered, dropped, empty int64
	skipped                  int
	epochSkips               map[int64]skipCount
	recent                   density
	bad                      map[int64][]Skip // by block, of those that are not released
	lastSkip                 *Skip
	fields                   fields
	noLoss                   NoLoss
}

func newLedger() ledger {
	return ledger{epochSkips: map[int64]skipCount{}, bad: map[int64][]Skip{}}
}

// skipCount are the bad records of one epoch that were skipped.
type skipCount struct {
	n     int
	first []string
}

func (s *skipCount) add(list []Skip) {
	s.n += len(list)
	for _, x := range list[:min(len(list), plan.FirstBad-len(s.first))] {
		s.first = append(s.first, x.String())
	}
}

// blockRead takes in the samples of a block, once.
func (c *Core) blockRead(ev BlockRead) {
	l, i := c.members.loader(ev.Session), int(ev.Block.Source)
	if l == nil || i >= len(c.sources.specs) {
		return // it joined, and was forgotten
	}
	if err := c.data.compareBlock(&ev, l.reader); err != nil {
		c.fail(c.inSource(i, err))
		return
	}
	b := block{ev.Block.Source, ev.Block.Seq}
	c.data.copied(b, l)
	asked, ok := c.members.wanted[b]
	if !ok || l.place == noPlace {
		return // read again, or by a shadow: to be compared only
	}
	if c.members.reads(l) {
		asked = l
	}
	delete(c.members.wanted, b)
	delete(c.members.unread, b)
	c.data.keep(&ev, l.reader, asked)
	c.mirror(b)
	if !c.enterLedger(&ev) {
		return
	}
	discarded := &ev.Block.Discarded
	discarded.Bad, discarded.Absent = int64(len(ev.Skips)), nowhere(&ev)
	for _, s := range ev.Skips[:min(len(ev.Skips), plan.FirstBad)] {
		discarded.First = append(discarded.First, s.String())
	}
	c.tell(ev.Block)
}

// enterLedger enters what a block discarded into the source's ledger, and stops the job if
// more records were skipped than the source's policy allows.
func (c *Core) enterLedger(ev *BlockRead) bool {
	i := ev.Block.Source
	led, spec := &c.sources.ledgers[i], &c.sources.specs[i]
	led.filtered += ev.Block.Discarded.Filtered
	led.dropped += ev.Block.Discarded.Dropped
	led.empty += ev.Block.Discarded.Empty
	led.skipped += len(ev.Skips)
	for _, path := range led.fields.add(ev) {
		c.emit(Note{Warn, "records lack a field that the source names; the status counts them", []any{"source", spec.Name, "field", path}})
	}
	if led.noLoss.add(ev) {
		c.emit(Note{Warn, "no sample of the source that was read so far has a token that carries loss; the status counts them", []any{"source", spec.Name}})
	}
	for _, s := range ev.Skips {
		c.emit(Note{Warn, "bad record skipped", []any{"source", spec.Name, "file", s.File, "row", s.Row, "reason", s.Reason}})
		led.lastSkip = &s
	}
	if len(ev.Skips) > 0 {
		led.bad[ev.Block.Seq] = ev.Skips
	}
	epoch := ev.Block.Seq / int64(c.sources.indexed[i].Blocks)
	skips := led.epochSkips[epoch]
	skips.add(ev.Skips)
	led.epochSkips[epoch] = skips
	if err := tooManySkips(spec, skips, led.recent.add(ev, spec.BadRecords)); err != nil {
		c.fail(err)
		return false
	}
	return true
}

// tooManySkips is the error of a source of which more records were skipped than its policy
// allows, in an epoch or, if dense, in a row; nil if it allows them.
func tooManySkips(spec *jobspec.Source, epoch skipCount, dense run) error {
	policy := spec.BadRecords
	switch {
	case epoch.n > policy.Limit && epoch.n > 0:
		return fault.Userf("source %q: %d bad records in one epoch, more than bad_records.limit %d allows: %s; mend them, or raise the limit if they may be left out",
			spec.Name, epoch.n, policy.Limit, plan.FewOf(epoch.first, int64(epoch.n)))
	case dense.bad > 0:
		return fault.Userf("source %q: %d bad records of %d in a row, more than bad_records.window_limit %d of window %d allows: %s; mend them, or raise window_limit if they may be left out",
			spec.Name, dense.bad, dense.records, policy.InWindow(), policy.Window, plan.FewOf(epoch.first, int64(epoch.n)))
	}
	return nil
}

// rewind forgets what is counted again when blocks are read again.
func (s *sources) rewind() {
	for i := range s.ledgers {
		clear(s.ledgers[i].epochSkips)
		s.ledgers[i].recent = density{}
	}
}

// release forgets the bad records of blocks that no step leaves out any more.
func (s *sources) release(released []plan.Release) {
	for _, r := range released {
		bad := s.ledgers[r.Source].bad
		for seq := range bad {
			if seq < r.Before {
				delete(bad, seq)
			}
		}
	}
}

// skipsOf are the bad records that a step is the first to leave out: those of the blocks
// that it is the first to draw from. They depend on positions alone, so that a step has
// the same whenever it is planned.
func (c *Core) skipsOf(before plan.State, s *plan.Step) (list []token.Skip) {
	for i, to := range s.After.Cursors {
		bad := c.sources.ledgers[i].bad
		if len(bad) == 0 {
			continue
		}
		var from plan.Cursor
		if i < len(before.Cursors) {
			from = before.Cursors[i]
		}
		var seqs []int64
		for seq := range bad {
			if entered(from, to, seq) {
				seqs = append(seqs, seq)
			}
		}
		if len(seqs) > 0 && c.sources.specs[i].Limit > 0 {
			seqs = c.upToLimit(int32(i), s, seqs)
		}
		slices.Sort(seqs)
		for _, seq := range seqs {
			for _, s := range bad[seq] {
				list = append(list, token.Skip{Source: int32(i), Seq: seq, File: s.File, Row: s.Row, Reason: s.Reason})
			}
		}
	}
	return list
}

// entered says whether the samples from one position to another are the first of a block.
func entered(from, to plan.Cursor, seq int64) bool {
	return (seq > from.Seq || seq == from.Seq && from.Index == 0) && (seq < to.Seq || seq == to.Seq && to.Index > 0)
}

// upToLimit leaves those blocks out that a source's limit passes over, whether they were
// read ahead or not: in an epoch that the step ends, those behind the last one drawn from.
func (c *Core) upToLimit(source int32, s *plan.Step, seqs []int64) []int64 {
	blocks := int64(c.sources.indexed[source].Blocks)
	last := map[int64]int64{} // by epoch
	note := func(r plan.Ref) {
		if r.Source == source {
			last[r.Seq/blocks] = max(last[r.Seq/blocks], r.Seq)
		}
	}
	for _, refs := range [][]plan.Ref{s.Samples(), s.After.Carry, s.Banned} {
		for _, r := range refs {
			note(r)
		}
	}
	for _, h := range s.After.Held {
		note(h.Ref)
	}
	now := s.After.Cursors[source].Seq / blocks
	return slices.DeleteFunc(seqs, func(seq int64) bool {
		end, drawn := last[seq/blocks]
		return seq/blocks < now && (!drawn || seq > end)
	})
}

// AbsentField is a field that a source names and some of its records lack.
type AbsentField struct {
	Field   string `json:"field"`
	Records uint64 `json:"records"` // that lack it
	Of      uint64 `json:"of"`      // records read
	Hint    string `json:"hint"`    // what one of them has in its place
}

// Nowhere says that no record has the field.
func (f AbsentField) Nowhere() bool { return f.Records == f.Of }

// String says so, for a person.
func (f AbsentField) String() string {
	if f.Nowhere() {
		return fmt.Sprintf("none of the %d records read has a field %q%s", f.Of, f.Field, f.Hint)
	}
	return fmt.Sprintf("%d of the %d records read have no field %q", f.Records, f.Of, f.Field)
}

// fields counts the records of a source, and the fields that they lack.
type fields struct {
	records uint64
	absent  []AbsentField // by path
}

// add counts a block, and returns the fields that no earlier one lacked.
func (f *fields) add(b *BlockRead) (first []string) {
	f.records += b.Records
	for _, a := range b.Absent {
		at, known := slices.BinarySearchFunc(f.absent, a.Field, func(x AbsentField, path string) int { return strings.Compare(x.Field, path) })
		if !known {
			f.absent = slices.Insert(f.absent, at, AbsentField{Field: a.Field, Hint: a.Hint})
			first = append(first, a.Field)
		}
		f.absent[at].Records += a.Records
	}
	return first
}

func (f *fields) list() (list []AbsentField) {
	for _, a := range f.absent {
		a.Of = f.records
		list = append(list, a)
	}
	return list
}

// nowhere says that no record of a block has some field; "" if there is no such.
func nowhere(b *BlockRead) string {
	for _, a := range b.Absent {
		if a.Of = b.Records; a.Nowhere() {
			return a.String()
		}
	}
	return ""
}

// Absent are the fields that source i names and records lack, of all blocks that were
// read so far.
func (c *Core) Absent(i int) []AbsentField { return c.sources.ledgers[i].fields.list() }

// NoLoss counts the samples of a source of which no token carries loss.
type NoLoss struct {
	Samples uint64 `json:"samples"`
	Of      uint64 `json:"of"` // samples read
}

// All says that the source has no other samples.
func (s NoLoss) All() bool { return s.Of > 0 && s.Samples == s.Of }

// String says so, for a person.
func (s NoLoss) String() string {
	if s.All() {
		return fmt.Sprintf("none of the %d samples read has a token that carries loss: nothing is learned from them", s.Of)
	}
	return fmt.Sprintf("%d of the %d samples read have no token that carries loss", s.Samples, s.Of)
}

// add counts a block, and reports whether it is the first with samples, of which none has any.
func (s *NoLoss) add(b *BlockRead) (first bool) {
	first = s.Of == 0
	s.Samples += b.NoLoss
	s.Of += uint64(len(b.Block.Lengths))
	return first && s.All()
}

// NoLoss are the samples of source i of which no token carries loss, of all blocks that were read so far; nil if there
// are none.
func (c *Core) NoLoss(i int) *NoLoss {
	s := c.sources.ledgers[i].noLoss
	if s.Samples == 0 {
		return nil
	}
	return &s
}
