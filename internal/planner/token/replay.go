package token

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/planner/plan"
	statepb "github.com/millrace-data/millrace/internal/proto/state"
)

// DecodeRecord reads what Encode wrote. Whatever it reads, Encode writes so that it is
// read as the same again; whether the record fits a position is found by After.
func DecodeRecord(data []byte) (*Record, error) {
	m := &statepb.StepRecord{}
	if err := proto.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("the record (%d bytes) cannot be read: %w", len(data), err)
	}
	if err := checkColumns(m); err != nil {
		return nil, err
	}
	r := &Record{Plan: [32]byte(m.Plan), Placed: Placed(m.Placed), Changes: m.Changes, Deficits: m.Deficit}
	for i, source := range m.Source {
		x := Move{Source: int32(source), Blocks: int64(m.SeqDelta[i]), Index: int32(m.Index[i]), Tokens: int64(m.Tokens[i]), Samples: int64(m.Samples[i])}
		if len(m.InEpoch) > 0 {
			x.InEpoch = int64(m.InEpoch[i])
		}
		r.Moves = append(r.Moves, x)
	}
	for i, source := range m.CarrySource {
		r.Carry = append(r.Carry, Drawn{int32(source), int64(m.CarryBack[i]), int32(m.CarryIndex[i]), int32(m.CarryLength[i]), 0})
	}
	for i, source := range m.HeldSource {
		r.Held = append(r.Held, Drawn{int32(source), int64(m.HeldBack[i]), int32(m.HeldIndex[i]), int32(m.HeldLength[i]), int64(m.HeldSince[i])})
	}
	for i, source := range m.LeftSource {
		r.Left = append(r.Left, plan.Ref{Source: int32(source), Seq: int64(m.LeftSeq[i]), Index: int32(m.LeftIndex[i])})
	}
	for i := range m.PassedFromSeq {
		source := int32(i)
		r.Passed = append(r.Passed, [2]plan.Ref{
			{Source: source, Seq: int64(m.PassedFromSeq[i]), Index: int32(m.PassedFromIndex[i])},
			{Source: source, Seq: int64(m.PassedToSeq[i]), Index: int32(m.PassedToIndex[i])},
		})
	}
	for k, substep := range m.PartSubstep {
		x := plan.Part{Substep: int32(substep)}
		if k < len(m.PartUnits) {
			x.Units = int64(m.PartUnits[k])
		}
		r.Parts = append(r.Parts, x)
	}
	for i, k := range m.EndedPart {
		r.Parts[k].Ended = append(r.Parts[k].Ended, int32(m.EndedSource[i]))
	}
	for _, x := range m.Skips {
		r.Skips = append(r.Skips, Skip{int32(x.Source), int64(x.Seq), x.File, x.Row, x.Reason})
	}
	return r, nil
}

// checkColumns refuses columns of one group that are not equally long, and what
// names no part.
func checkColumns(m *statepb.StepRecord) error {
	for _, group := range [][]int{
		{len(m.Plan), 32},
		{len(m.Source), len(m.SeqDelta), len(m.Index), len(m.Tokens), len(m.Samples)},
		{len(m.InEpoch), min(len(m.InEpoch), 1) * len(m.Source)},
		{len(m.CarrySource), len(m.CarryBack), len(m.CarryIndex), len(m.CarryLength)},
		{len(m.HeldSource), len(m.HeldBack), len(m.HeldIndex), len(m.HeldLength), len(m.HeldSince)},
		{len(m.LeftSource), len(m.LeftSeq), len(m.LeftIndex)},
		{len(m.PassedFromSeq), len(m.PassedFromIndex), len(m.PassedToSeq), len(m.PassedToIndex)},
		{len(m.PartUnits), max(len(m.PartSubstep)-1, 0)},
		{len(m.EndedPart), len(m.EndedSource)},
	} {
		for _, n := range group {
			if n != group[0] {
				return fmt.Errorf("the record has columns of %v values, which cannot be", group)
			}
		}
	}
	for _, k := range m.EndedPart {
		if int(k) >= len(m.PartSubstep) {
			return fmt.Errorf("the record has part %d of %d", k, len(m.PartSubstep))
		}
	}
	return nil
}

// Replay leads from a position through the records from its step on, which records hands to
// its argument one after the other, and returns the position after the last. The pending
// changes of from are those of the log whose step is from's or later, of all branches: in a log that
// parted into several, one that a record lacks was made in another branch than the records are of, and is dropped.
// Errors are those of records, and of a record that cannot be read, lacks a change or is of another position.
func Replay(cfg *plan.Config, from plan.State, parted bool, records func(each func(step int64, record []byte) error) error) (plan.State, error) {
	at := from.Clone()
	err := records(func(step int64, data []byte) error {
		if step != at.Step {
			return fmt.Errorf("the log has a record of step %d after %d steps", step, at.Step)
		}
		r, err := DecodeRecord(data)
		if err == nil {
			elsewhere := func(ch plan.Change) bool { return parted && ch.Step == step && !r.Made(ch.Text) }
			at.Pending = slices.DeleteFunc(at.Pending, elsewhere)
			at, err = r.After(cfg, at)
		}
		if err != nil {
			return fmt.Errorf("step %d of the log: %w", step, err)
		}
		return nil
	})
	return at, err
}

// After is the position after the step, from the one before it, whose pending changes
// are those that the log has. It is what a planner that planned the step went on from,
// but for plan.Cursor.Samples, which count from wherever the first position was. An error
// means that the record is not one of this job at this position.
func (r *Record) After(cfg *plan.Config, before plan.State) (plan.State, error) {
	s := before.Clone()
	made, err := s.Begin(cfg)
	if err == nil {
		err = r.changed(made)
	}
	if err != nil {
		return s, err
	}
	s.Carry, s.Held = nil, nil
	units := make([]int64, len(s.Cursors))
	if err := r.checkSources(cfg, s); err != nil {
		return s, err
	}
	begun := slices.Clone(s.Cursors)
	for _, x := range r.Moves {
		cur := &s.Cursors[x.Source]
		cur.Seq, cur.Index, cur.InEpoch = cur.Seq+x.Blocks, x.Index, x.InEpoch
		cur.Tokens, cur.Samples = cur.Tokens+x.Tokens, cur.Samples+x.Samples
		if units[x.Source] = x.Tokens; cfg.CountSamples {
			units[x.Source] = x.Samples
		}
	}
	deficits := r.Deficits
	if deficits == nil {
		from := s
		from.Cursors = begun
		deficits = cfg.Deficits(from, r.parts(units), units)
	}
	for i, deficit := range deficits {
		s.Cursors[i].Deficit = deficit
	}
	for _, x := range r.Carry {
		s.Carry = append(s.Carry, x.of(s.Cursors))
	}
	for _, x := range r.Held {
		s.Held = append(s.Held, plan.Held{Ref: x.of(s.Cursors), Since: x.Since})
	}
	s.Step++
	return s, checkState(s)
}

func (x Drawn) of(cursors []plan.Cursor) plan.Ref {
	return plan.Ref{Source: x.Source, Seq: cursors[x.Source].Seq - x.Back, Index: x.Index, Length: x.Length}
}

// Made says whether a change was made at the step, by its written form.
func (r *Record) Made(text []byte) bool {
	return slices.ContainsFunc(r.Changes, func(made []byte) bool { return bytes.Equal(made, text) })
}

// changed checks that the changes that were made at the step are those of the record.
func (r *Record) changed(made []plan.Change) error {
	if len(made) != len(r.Changes) {
		return fmt.Errorf("the log has %d changes that are due at the step, and its record %d", len(made), len(r.Changes))
	}
	for i, ch := range made {
		if !bytes.Equal(ch.Text, r.Changes[i]) {
			return fmt.Errorf("the change %s is due at the step, and its record has %s", ch.Text, r.Changes[i])
		}
	}
	return nil
}

// checkSources refuses numbers of sources that a position does not have, and counts
// that none can have.
func (r *Record) checkSources(cfg *plan.Config, s plan.State) error {
	n := int32(len(s.Cursors))
	sources := []int32{}
	for _, x := range r.Moves {
		if x.Blocks < 0 || x.Tokens < 0 || x.Samples < 0 || x.Blocks > math.MaxInt64-max(s.Cursors[min(max(x.Source, 0), n-1)].Seq, 0) {
			return fmt.Errorf("the record moves source %d by %d blocks and %d tokens, which cannot be", x.Source, x.Blocks, x.Tokens)
		}
		sources = append(sources, x.Source)
	}
	for _, x := range slices.Concat(r.Carry, r.Held) {
		sources = append(sources, x.Source)
	}
	for _, x := range r.Parts {
		if sources = append(sources, x.Ended...); x.Substep < 0 || x.Substep > 0 && cfg.Grain != "substep" {
			return fmt.Errorf("the record has weights of part %d of the step, which cannot be", x.Substep)
		}
	}
	for _, i := range sources {
		if i < 0 || i >= n {
			return fmt.Errorf("the record has source %d of %d", i, n)
		}
	}
	if r.Deficits != nil && len(r.Deficits) != int(n) {
		return fmt.Errorf("the record has deficits of %d sources, of %d", len(r.Deficits), n)
	}
	return nil
}

// parts are those of the step, the last one with the units that are left of all.
func (r *Record) parts(units []int64) []plan.Part {
	parts := []plan.Part{{}}
	if len(r.Parts) > 0 {
		parts = slices.Clone(r.Parts)
	}
	left := int64(0)
	for _, n := range units {
		left += n
	}
	for _, x := range parts[:len(parts)-1] {
		left -= x.Units
	}
	parts[len(parts)-1].Units = left
	return parts
}
