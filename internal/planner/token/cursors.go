package token

import (
	"fmt"
	"math"
	"math/bits"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace-data/millrace/internal/planner/plan"
)

// packState writes cursors, carried samples and held ones column by column, each
// number in as many bits as the largest of its column needs: about 12 bytes a source
// late in a long job, where varints would take 15.
//
// The columns by source, in the spec's order: next block, next sample in it,
// deficit (zigzag), tokens, of which keep bits are kept; for sources with a limit:
// samples of this epoch. By carried sample, after their number: source, how many
// blocks behind the source's cursor, place in the block, length. If bits of tokens
// were cut off or samples are held, two columns more: the most that were, and how many
// fewer of each source. If samples are held, the same of them as of carried ones, and
// how many steps ago each was drawn.
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
	most, fewer := cutOff(tokens, keep)
	columns := append([][]uint64{seq, index, deficit, tokens, inEpoch}, packRefs(s, s.Carry)...)
	if most > 0 || len(s.Held) > 0 {
		columns = append(columns, []uint64{most}, fewer)
	}
	if len(s.Held) > 0 {
		refs, ago := make([]plan.Ref, len(s.Held)), make([]uint64, len(s.Held))
		for i, h := range s.Held {
			refs[i], ago[i] = h.Ref, uint64(s.Step-h.Since)
		}
		columns = append(append(columns, packRefs(s, refs)...), ago)
	}
	var data []byte
	for _, column := range columns {
		data = appendColumn(data, column)
	}
	return data
}

// packRefs are the columns of samples of a position.
func packRefs(s plan.State, refs []plan.Ref) [][]uint64 {
	var source, back, place, length []uint64
	for _, r := range refs {
		source = append(source, uint64(r.Source))
		back = append(back, uint64(s.Cursors[r.Source].Seq-r.Seq))
		place = append(place, uint64(r.Index))
		length = append(length, uint64(r.Length))
	}
	return [][]uint64{{uint64(len(refs))}, source, back, place, length}
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

// unpackState reads the position after a number of steps.
func unpackState(data []byte, step int64, limited []bool) (plan.State, error) {
	sources := len(limited)
	r := columns{data: data}
	s := plan.Start(sources)
	s.Step = step
	tokens := r.cursors(&s, limited)
	carry, fits := r.refs(), true
	if len(r.data) > 0 {
		most := r.next(1)[0]
		fits = restore(tokens, most, r.next(sources))
	}
	var held packedRefs
	var ago []uint64
	if len(r.data) > 0 {
		held = r.refs()
		ago = r.next(len(held.source))
	}
	if r.short || len(r.data) > 0 || !fits {
		return plan.State{}, fmt.Errorf("its %d bytes of cursors are not those of %d sources", len(data), sources)
	}
	for i, n := range tokens {
		s.Cursors[i].Tokens = int64(n)
	}
	var err error
	if s.Carry, err = carry.of(s.Cursors); err != nil {
		return plan.State{}, err
	}
	refs, err := held.of(s.Cursors)
	if err != nil {
		return plan.State{}, err
	}
	for i, ref := range refs {
		s.Held = append(s.Held, plan.Held{Ref: ref, Since: step - int64(ago[i])})
	}
	return s, checkState(s)
}

// cursors reads those of a position but the tokens, which it returns as they are.
func (r *columns) cursors(s *plan.State, limited []bool) (tokens []uint64) {
	sources, limits := len(limited), 0
	seq, index, deficit, tokens := r.next(sources), r.next(sources), r.next(sources), r.next(sources)
	for _, l := range limited {
		if l {
			limits++
		}
	}
	inEpoch := r.next(limits)
	for i := range s.Cursors {
		s.Cursors[i] = plan.Cursor{Seq: int64(seq[i]), Index: int32(index[i]), Deficit: protowire.DecodeZigZag(deficit[i])}
		if limited[i] {
			s.Cursors[i].InEpoch, inEpoch = int64(inEpoch[0]), inEpoch[1:]
		}
	}
	return tokens
}

// packedRefs are samples of a position, in columns.
type packedRefs struct{ source, back, place, length []uint64 }

// refs reads the number of samples, and their columns. Each has a length, of a bit at
// least: no number makes it take more memory than the data is worth.
func (r *columns) refs() packedRefs {
	n := int(min(r.next(1)[0], math.MaxUint16))
	if n > 8*len(r.data) {
		n, r.short = 0, true
	}
	return packedRefs{r.next(n), r.next(n), r.next(n), r.next(n)}
}

// of are the samples of a position with these cursors.
func (p packedRefs) of(cursors []plan.Cursor) (refs []plan.Ref, err error) {
	for k, src := range p.source {
		if src >= uint64(len(cursors)) {
			return nil, fmt.Errorf("it has a sample of source %d of %d", src, len(cursors))
		}
		refs = append(refs, plan.Ref{
			Source: int32(src), Seq: cursors[src].Seq - int64(p.back[k]), Index: int32(p.place[k]), Length: int32(p.length[k]),
		})
	}
	return refs, nil
}

// checkState refuses numbers that no position has.
func checkState(s plan.State) error {
	for i, c := range s.Cursors {
		if c.Seq < 0 || c.Seq > mostCount || c.Index < 0 || c.Tokens < 0 || c.InEpoch < 0 {
			return fmt.Errorf("source %d is at block %d, sample %d, after %d tokens and %d samples of its epoch, which cannot be",
				i, c.Seq, c.Index, c.Tokens, c.InEpoch)
		}
	}
	for _, r := range s.Carry {
		if err := checkRef(s, r); err != nil {
			return err
		}
	}
	for _, h := range s.Held {
		if err := checkRef(s, h.Ref); err != nil {
			return err
		}
		if h.Since < 0 || h.Since >= s.Step {
			return fmt.Errorf("after %d steps it holds a sample of step %d, which cannot be", s.Step, h.Since)
		}
	}
	return nil
}

func checkRef(s plan.State, r plan.Ref) error {
	if r.Seq < 0 || r.Seq > s.Cursors[r.Source].Seq || r.Index < 0 || r.Length <= 0 {
		return fmt.Errorf("it carries sample %d of block %d of source %d with %d tokens, which cannot be", r.Index, r.Seq, r.Source, r.Length)
	}
	return nil
}
