package planner

import (
	"fmt"
	"math"
	"math/bits"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace-data/millrace/planner/plan"
)

// packState writes cursors and carried samples column by column, each number in
// as many bits as the largest of its column needs: about 12 bytes a source late
// in a long job, where varints would take 15.
//
// The columns by source, in the spec's order: next block, next sample in it,
// deficit (zigzag), tokens, of which keep bits are kept; for sources with a limit:
// samples of this epoch. By carried sample, after their number: source, how many
// blocks behind the source's cursor, place in the block, length. If bits of tokens
// were cut off, two columns more: the most that were, and how many fewer of each source.
func packState(s plan.State, limited []bool, keep int) []byte {
	var seq, index, deficit, tokens, inEpoch []uint64
	for i, c := range s.Cursors {
		seq = append(seq, uint64(c.Seq))
		index = append(index, uint64(c.Index))
		deficit = append(deficit, protowire.EncodeZigZag(c.Deficit))
		tokens = append(tokens, uint64(c.Tokens))
		if limited[i] {
			inEpoch = append(inEpoch, uint64(c.InEpoch))
		}
	}
	var source, back, place, length []uint64
	for _, r := range s.Carry {
		source = append(source, uint64(r.Source))
		back = append(back, uint64(s.Cursors[r.Source].Seq-r.Seq))
		place = append(place, uint64(r.Index))
		length = append(length, uint64(r.Length))
	}
	most, fewer := cutOff(tokens, keep)
	columns := [][]uint64{seq, index, deficit, tokens, inEpoch, {uint64(len(s.Carry))}, source, back, place, length}
	if most > 0 {
		columns = append(columns, []uint64{most}, fewer)
	}
	var data []byte
	for _, column := range columns {
		data = appendColumn(data, column)
	}
	return data
}

// cutOff leaves the highest keep bits of each value, rounded, in place. It returns
// the most bits that were cut off one, and how many fewer of each.
func cutOff(values []uint64, keep int) (most uint64, fewer []uint64) {
	fewer = make([]uint64, len(values))
	for i, v := range values {
		cut := max(bits.Len64(v)-keep, 0)
		if cut > 0 {
			v = v>>cut + v>>(cut-1)&1
		}
		values[i], fewer[i] = v, uint64(cut)
		most = max(most, fewer[i])
	}
	for i, cut := range fewer {
		fewer[i] = most - cut
	}
	return most, fewer
}

// restore is the inverse of cutOff; false if there is no such value in 63 bits.
func restore(values []uint64, most uint64, fewer []uint64) bool {
	for i, v := range values {
		cut := most - fewer[i]
		if fewer[i] > most || bits.Len64(v)+int(min(cut, 64)) > 63 {
			return false
		}
		values[i] = v << cut
	}
	return true
}

func unpackState(data []byte, limited []bool) (plan.State, error) {
	sources := len(limited)
	r := columns{data: data}
	seq, index, deficit, tokens := r.next(sources), r.next(sources), r.next(sources), r.next(sources)
	limits := 0
	for _, l := range limited {
		if l {
			limits++
		}
	}
	inEpoch := r.next(limits)
	n := int(min(r.next(1)[0], math.MaxUint16))
	source, back, place, length := r.next(n), r.next(n), r.next(n), r.next(n)
	fits := true
	if len(r.data) > 0 {
		most := r.next(1)[0]
		fits = restore(tokens, most, r.next(sources))
	}
	if r.short || len(r.data) > 0 || !fits {
		return plan.State{}, fmt.Errorf("its %d bytes of cursors are not those of %d sources", len(data), sources)
	}
	s := plan.Start(sources)
	for i := range s.Cursors {
		s.Cursors[i] = plan.Cursor{
			Seq: int64(seq[i]), Index: int32(index[i]), Deficit: protowire.DecodeZigZag(deficit[i]), Tokens: int64(tokens[i]),
		}
		if limited[i] {
			s.Cursors[i].InEpoch, inEpoch = int64(inEpoch[0]), inEpoch[1:]
		}
	}
	for k, src := range source {
		if src >= uint64(sources) {
			return plan.State{}, fmt.Errorf("it carries a sample of source %d of %d", src, sources)
		}
		s.Carry = append(s.Carry, plan.Ref{
			Source: int32(src), Seq: s.Cursors[src].Seq - int64(back[k]), Index: int32(place[k]), Length: int32(length[k]),
		})
	}
	return s, checkState(s)
}

// checkState refuses numbers that no position has.
func checkState(s plan.State) error {
	for i, c := range s.Cursors {
		if c.Seq < 0 || c.Index < 0 || c.Tokens < 0 || c.InEpoch < 0 {
			return fmt.Errorf("source %d is at block %d, sample %d, after %d tokens and %d samples of its epoch, which cannot be",
				i, c.Seq, c.Index, c.Tokens, c.InEpoch)
		}
	}
	for _, r := range s.Carry {
		if r.Seq < 0 || r.Index < 0 || r.Length <= 0 {
			return fmt.Errorf("it carries sample %d of block %d of source %d with %d tokens, which cannot be", r.Index, r.Seq, r.Source, r.Length)
		}
	}
	return nil
}
