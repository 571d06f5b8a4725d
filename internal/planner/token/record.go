package token

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/planner/plan"
	statepb "github.com/millrace-data/millrace/internal/proto/state"
)

// Record is what the log keeps of a step: what cannot be computed again without
// reading the data. It is a difference to the position before the step.
type Record struct {
	Plan    [32]byte // PlanDigest
	Placed  Placed   // PlacementOf
	Moves   []Move   // by rising source
	Carry   []Drawn  // over to the next step
	Held    []Drawn
	Changes [][]byte // that apply from this step on, in their written form

	Left   []plan.Ref    // samples left out for a ban, without their lengths
	Passed [][2]plan.Ref // plan.Step's
	Skips  []Skip        // bad records that the step is the first to leave out

	Parts    []plan.Part // plan.Step's; of the last one the units are 0, for they follow from the moves
	Deficits []int64     // of all sources; nil if they follow from the rest
}

// Move is how a source's cursor moved in a step.
type Move struct {
	Source          int32
	Blocks          int64 // on from the block that the cursor was in
	Index           int32 // its new place in the block
	Tokens, Samples int64 // drawn in the step
	InEpoch         int64 // the cursor's
}

// Drawn is a sample that was drawn and not delivered.
type Drawn struct {
	Source int32
	Back   int64 // blocks behind the source's cursor
	Index  int32
	Length int32 // tokens
	Since  int64 // Held: step in which it was drawn
}

// Skip is a bad record that its source's policy has skipped.
type Skip struct {
	Source int32
	Seq    int64 // block that it would have a sample of
	File   string
	Row    int64
	Reason string
}

// NewRecord returns the record of a step, without skips. before is the position before
// it, and must be valid until the call returns only.
func NewRecord(s *plan.Step, before plan.State) *Record {
	r := &Record{Plan: PlanDigest(s), Placed: PlacementOf(s), Passed: s.Passed}
	for i, cur := range s.After.Cursors {
		var was plan.Cursor
		if i < len(before.Cursors) {
			was = before.Cursors[i]
		}
		if cur.Samples == was.Samples && cur.Seq == was.Seq && cur.Index == was.Index {
			continue
		}
		r.Moves = append(r.Moves, Move{
			Source: int32(i), Blocks: cur.Seq - was.Seq, Index: cur.Index,
			Tokens: cur.Tokens - was.Tokens, Samples: cur.Samples - was.Samples, InEpoch: cur.InEpoch,
		})
	}
	for _, c := range s.After.Carry {
		r.Carry = append(r.Carry, drawnOf(s.After.Cursors, c, 0))
	}
	for _, h := range s.After.Held {
		r.Held = append(r.Held, drawnOf(s.After.Cursors, h.Ref, h.Since))
	}
	for _, ch := range s.Changes {
		r.Changes = append(r.Changes, ch.Text)
	}
	for _, ref := range s.Banned {
		ref.Length = 0
		r.Left = append(r.Left, ref)
	}
	switch {
	case s.Passed != nil || s.Given: // parts say nothing of what was passed over
		r.Deficits = []int64{}
		for _, cur := range s.After.Cursors {
			r.Deficits = append(r.Deficits, cur.Deficit)
		}
	case len(s.Parts) > 1 || len(s.Parts) == 1 && (s.Parts[0].Substep > 0 || s.Parts[0].Ended != nil):
		r.Parts = append(r.Parts, s.Parts...)
		r.Parts[len(r.Parts)-1].Units = 0
	}
	return r
}

func drawnOf(cursors []plan.Cursor, r plan.Ref, since int64) Drawn {
	return Drawn{Source: r.Source, Back: cursors[r.Source].Seq - r.Seq, Index: r.Index, Length: r.Length, Since: since}
}

// Encode writes the record. Equal records give equal bytes.
func (r *Record) Encode() []byte {
	m := &statepb.StepRecord{Plan: r.Plan[:], Placed: uint64(r.Placed), Changes: r.Changes, Deficit: r.Deficits}
	inEpoch := false
	for _, x := range r.Moves {
		m.Source, m.SeqDelta, m.Index = append(m.Source, uint32(x.Source)), append(m.SeqDelta, uint64(x.Blocks)), append(m.Index, uint32(x.Index))
		m.Tokens, m.Samples, m.InEpoch = append(m.Tokens, uint64(x.Tokens)), append(m.Samples, uint64(x.Samples)), append(m.InEpoch, uint64(x.InEpoch))
		inEpoch = inEpoch || x.InEpoch != 0
	}
	if !inEpoch {
		m.InEpoch = nil
	}
	for _, x := range r.Carry {
		m.CarrySource, m.CarryBack = append(m.CarrySource, uint32(x.Source)), append(m.CarryBack, uint64(x.Back))
		m.CarryIndex, m.CarryLength = append(m.CarryIndex, uint32(x.Index)), append(m.CarryLength, uint32(x.Length))
	}
	for _, x := range r.Held {
		m.HeldSource, m.HeldBack = append(m.HeldSource, uint32(x.Source)), append(m.HeldBack, uint64(x.Back))
		m.HeldIndex, m.HeldLength = append(m.HeldIndex, uint32(x.Index)), append(m.HeldLength, uint32(x.Length))
		m.HeldSince = append(m.HeldSince, uint64(x.Since))
	}
	for _, x := range r.Left {
		m.LeftSource, m.LeftSeq, m.LeftIndex = append(m.LeftSource, uint32(x.Source)), append(m.LeftSeq, uint64(x.Seq)), append(m.LeftIndex, uint32(x.Index))
	}
	for _, x := range r.Passed {
		m.PassedFromSeq, m.PassedToSeq = append(m.PassedFromSeq, uint64(x[0].Seq)), append(m.PassedToSeq, uint64(x[1].Seq))
		m.PassedFromIndex, m.PassedToIndex = append(m.PassedFromIndex, uint32(x[0].Index)), append(m.PassedToIndex, uint32(x[1].Index))
	}
	for k, x := range r.Parts {
		m.PartSubstep = append(m.PartSubstep, uint32(x.Substep))
		if k < len(r.Parts)-1 {
			m.PartUnits = append(m.PartUnits, uint64(x.Units))
		}
		for _, source := range x.Ended {
			m.EndedPart, m.EndedSource = append(m.EndedPart, uint32(k)), append(m.EndedSource, uint32(source))
		}
	}
	for _, x := range r.Skips {
		m.Skips = append(m.Skips, &statepb.SkippedRecord{Source: uint32(x.Source), Seq: uint64(x.Seq), File: x.File, Row: x.Row, Reason: x.Reason})
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("token: a record does not encode: %v", err)) // only invalid UTF-8 could
	}
	return data
}

// PlanDigest is SHA-256 over a plan: the step, then row by row the number of
// samples and each sample's source, block, place and length, all uint64.
func PlanDigest(s *plan.Step) [32]byte {
	h := sha256.New()
	var b []byte
	put := func(v int64) { b = binary.LittleEndian.AppendUint64(b, uint64(v)) }
	put(s.Step)
	blocks := s.Placed.Blocks()
	for row, n := range s.Rows {
		put(int64(n))
		for _, x := range s.Placed.Row(row) {
			put(int64(blocks[x.Block].Source))
			put(blocks[x.Block].Seq)
			put(int64(x.Index))
			put(int64(x.Tokens))
		}
		h.Write(b)
		b = b[:0]
	}
	h.Write(b)
	return [32]byte(h.Sum(nil))
}

// Placed says on which mesh a step was planned and which rank has which row of it, in 32 bits each of
// a digest. 0 is that of a record of a build that wrote none.
type Placed uint64

// PlacementOf is over the mesh's canonical form, and over the columns of the step's Placed.
func PlacementOf(s *plan.Step) Placed {
	on := sha256.Sum256([]byte(s.Mesh.Canonical()))
	var b []byte
	for _, column := range [][]int32{s.Placed.Rank, s.Placed.Microbatch, s.Placed.Position, s.Placed.Width, s.Placed.Encoder} {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(column)))
		for _, v := range column {
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		}
	}
	placement := sha256.Sum256(b)
	return Placed(binary.BigEndian.Uint64(append(on[:4:4], placement[:4]...)))
}

// Comparable says whether two placements are of the same mesh, so that those of the same step are equal.
func (p Placed) Comparable(q Placed) bool { return p != 0 && q != 0 && p>>32 == q>>32 }
