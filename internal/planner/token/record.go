package token

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/planner/plan"
	statepb "github.com/millrace-data/millrace/internal/proto/state"
)

// EncodeRecord writes what the log keeps of a step: what cannot be computed again
// without reading the data. before is the position before the step.
func EncodeRecord(s *plan.Step, before plan.State) []byte {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(stepRecord(s, before))
	if err != nil {
		panic(fmt.Sprintf("token: a record does not encode: %v", err)) // it has no text that could be invalid
	}
	return data
}

// stepRecord is what cannot be computed again without reading the data.
func stepRecord(s *plan.Step, before plan.State) *statepb.StepRecord {
	digest := PlanDigest(s)
	r := &statepb.StepRecord{Plan: digest[:]}
	for _, ch := range s.Changes {
		r.Changes = append(r.Changes, ch.Text)
	}
	for i, cur := range s.After.Cursors {
		var was plan.Cursor
		if i < len(before.Cursors) {
			was = before.Cursors[i]
		}
		if cur.Samples == was.Samples && cur.Seq == was.Seq && cur.Index == was.Index {
			continue
		}
		r.Source = append(r.Source, uint32(i))
		r.SeqDelta = append(r.SeqDelta, uint64(cur.Seq-was.Seq))
		r.Index = append(r.Index, uint32(cur.Index))
		r.Tokens = append(r.Tokens, uint64(cur.Tokens-was.Tokens))
		r.Samples = append(r.Samples, uint64(cur.Samples-was.Samples))
		if cur.InEpoch > 0 {
			r.InEpoch = append(r.InEpoch, uint64(cur.InEpoch))
		}
	}
	for _, c := range s.After.Carry {
		r.CarrySource = append(r.CarrySource, uint32(c.Source))
		r.CarryBack = append(r.CarryBack, uint64(s.After.Cursors[c.Source].Seq-c.Seq))
		r.CarryIndex = append(r.CarryIndex, uint32(c.Index))
		r.CarryLength = append(r.CarryLength, uint32(c.Length))
	}
	for _, h := range s.After.Held {
		r.HeldSource = append(r.HeldSource, uint32(h.Source))
		r.HeldBack = append(r.HeldBack, uint64(s.After.Cursors[h.Source].Seq-h.Seq))
		r.HeldIndex = append(r.HeldIndex, uint32(h.Index))
		r.HeldLength = append(r.HeldLength, uint32(h.Length))
		r.HeldSince = append(r.HeldSince, uint64(h.Since))
	}
	for _, ref := range s.Banned {
		r.LeftSource = append(r.LeftSource, uint32(ref.Source))
		r.LeftSeq = append(r.LeftSeq, uint64(ref.Seq))
		r.LeftIndex = append(r.LeftIndex, uint32(ref.Index))
	}
	for _, p := range s.Passed {
		r.PassedFromSeq, r.PassedToSeq = append(r.PassedFromSeq, uint64(p[0].Seq)), append(r.PassedToSeq, uint64(p[1].Seq))
		r.PassedFromIndex, r.PassedToIndex = append(r.PassedFromIndex, uint32(p[0].Index)), append(r.PassedToIndex, uint32(p[1].Index))
	}
	return r
}

// PlanDigest is SHA-256 over a plan: the step, then row by row the number of
// samples and each sample's source, block, place and length, all uint64.
func PlanDigest(s *plan.Step) [32]byte {
	h := sha256.New()
	var b []byte
	put := func(v int64) { b = binary.LittleEndian.AppendUint64(b, uint64(v)) }
	put(s.Step)
	x := s.Buffer
	for row, n := range s.Rows {
		put(int64(n))
		for _, i := range s.Placed.Samples(row) {
			put(int64(x.Source[i]))
			put(x.Seq[i])
			put(int64(x.Index[i]))
			put(int64(x.Tokens[i]))
		}
		h.Write(b)
		b = b[:0]
	}
	h.Write(b)
	return [32]byte(h.Sum(nil))
}
