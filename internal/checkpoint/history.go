package checkpoint

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
)

// Branch is a line of a log's history: the steps that were appended one after the other, until
// the job went back and its log was truncated, which opened the next branch. A branch has the
// steps From to Next-1 itself, and those before From of its parent.
type Branch struct {
	Number     uint64 // from 0 on; the highest is the one that is written
	Parent     uint64 // Number itself if there is none
	From, Next int64  // no step of its own if they are equal
}

// piece is the steps of a branch's history that are one branch's own.
type piece struct {
	branch uint64
	span
}

// History is all branches of a log, by rising number. There is one at least.
type History []Branch

// NewHistory is that of an empty log.
func NewHistory() History { return History{{}} }

// Current is the branch that is written.
func (h History) Current() *Branch { return &h[len(h)-1] }

func (h History) find(number uint64) (*Branch, bool) {
	i, ok := slices.BinarySearchFunc(h, number, func(b Branch, n uint64) int { return cmp.Compare(b.Number, n) })
	if !ok {
		return nil, false
	}
	return &h[i], true
}

// pieces are the steps that lead to the end of a branch, in order, without empty ones.
func (h History) pieces(number uint64) (all []piece) {
	before := int64(-1) // of the branch that was looked at last: where it begins
	for b, ok := h.find(number); ok; b, ok = h.find(b.Parent) {
		own := span{b.From, b.Next}
		if before >= 0 {
			own = own.clamp(b.From, before)
		}
		if !own.empty() {
			all = append(all, piece{b.Number, own})
		}
		if before = b.From; b.Parent == b.Number {
			break
		}
	}
	slices.Reverse(all)
	return all
}

// root is the branch that has the first step which leads to the end of another, or of the same.
func (h History) root(number uint64) uint64 {
	for _, p := range h.pieces(number) {
		return p.branch
	}
	return number
}

// Parted says whether the job ever left a branch, so that changes of the log may be another branch's.
func (h History) Parted() bool { return h.Current().Number > 0 }

// Steps are those that lead to the end of the current branch: none if first and next are equal.
func (h History) Steps() (first, next int64) {
	s := h.span(h.Current().Number)
	return s.first, s.next
}

// span is the steps that lead to the end of a branch.
func (h History) span(number uint64) span {
	all := h.pieces(number)
	if len(all) == 0 {
		return span{}
	}
	return span{all[0].first, all[len(all)-1].next}
}

// Find returns a branch. An error is of class fault.User.
func (h History) Find(number uint64) (Branch, error) {
	b, ok := h.find(number)
	if !ok {
		return Branch{}, fault.Userf("the log has no branch %d: valid is %d, the one that is written, or one before it that `millrace log check` names", number, h.Current().Number)
	}
	return *b, nil
}

// Has says whether a step which is a branch's own leads to the end of another branch, or of
// the same.
func (h History) Has(number, own uint64, step int64) bool {
	return slices.ContainsFunc(h.pieces(number), func(p piece) bool { return p.branch == own && p.has(step) })
}

// owner is the branch that has a step of the current one as its own.
func (h History) owner(step int64) uint64 {
	b := h.Current()
	for step < b.From && b.Parent != b.Number {
		b, _ = h.find(b.Parent)
	}
	return b.Number
}

// Add adds the next step, which is step in an empty log.
func (h History) Add(step int64) {
	b := h.Current()
	if b.From == b.Next && b.Parent == b.Number {
		b.From = step
	}
	b.Next = step + 1
}

// free is the number of the next branch: a branch that has no step of its own gives it its number.
func (h History) free() uint64 {
	b := h.Current()
	if b.From == b.Next {
		return b.Number
	}
	return b.Number + 1
}

// Truncated leaves the current branch at a step that it has: another one begins. One that has no
// step of its own begins again instead.
func (h History) Truncated(from int64) History {
	return h.opening(Fork{Number: h.free(), Parent: h.Current().Number, From: from})
}

// Forked leaves the current branch for one that goes on from another.
func (h History) Forked(op Fork) History {
	op.Number = max(op.Number, h.free())
	return h.opening(op)
}

func (h History) opening(op Fork) History {
	next := Branch{Number: op.Number, Parent: op.Number}
	for _, p := range h.pieces(op.Parent) {
		if p.has(op.From - 1) {
			next.Parent, next.From, next.Next = p.branch, op.From, op.From
		}
	}
	if left := h.Current(); left.From == left.Next {
		*left = next
		return h
	}
	return append(h, next)
}

// Trimmed is the history without the steps before one that the current branch has.
func (h History) Trimmed(before int64) (kept History) {
	last := h.Current().Number
	for _, b := range h {
		if b.Number != last && b.Next <= before {
			continue
		}
		if b.From <= before {
			b.From, b.Parent = before, b.Number
		}
		kept = append(kept, b)
	}
	return kept
}

// stored is what the database has of the branches, by number. Of the one that is written it
// has where it comes from: the mark says the rest.
func (h History) stored() map[uint64][]byte {
	all := map[uint64][]byte{}
	for _, b := range h {
		if b.Number == h.Current().Number {
			if b.Number == 0 {
				continue
			}
			if b.Next = b.From; b.Parent == b.Number { // they are the mark's first
				b.From, b.Next = 0, 0
			}
		}
		value := binary.BigEndian.AppendUint64(nil, b.Parent)
		value = binary.BigEndian.AppendUint64(value, uint64(b.From))
		all[b.Number] = binary.BigEndian.AppendUint64(value, uint64(b.Next))
	}
	return all
}

// decodeBranch is the inverse of stored.
func decodeBranch(number uint64, value []byte) (b Branch, ok bool) {
	if len(value) != 3*8 {
		return b, false
	}
	b = Branch{
		Number: number, Parent: binary.BigEndian.Uint64(value),
		From: int64(binary.BigEndian.Uint64(value[8:])), Next: int64(binary.BigEndian.Uint64(value[16:])),
	}
	return b, b.Parent <= number && 0 <= b.From && b.From <= b.Next
}

// opened completes the branches of a database with the steps that its mark has.
func (h History) opened(steps span) History {
	if len(h) == 0 {
		h = NewHistory()
	}
	b := h.Current()
	if b.Next = steps.next; b.Parent == b.Number {
		b.From = steps.first
	}
	return h
}

// String is a branch as messages have it.
func (b Branch) String() string {
	if b.Parent == b.Number {
		return fmt.Sprintf("branch %d, steps %d to %d", b.Number, b.From, b.Next-1)
	}
	return fmt.Sprintf("branch %d, of branch %d up to step %d, steps %d to %d", b.Number, b.Parent, b.From-1, b.From, b.Next-1)
}

// Begins says whether the branch that is written has no step of its own yet: the first one should
// come with a key frame, so that a copy of the log can begin with it.
func Begins(log Reader) bool {
	all := log.Branches()
	b := all[len(all)-1]
	return b.From == b.Next
}

// GoOn are the operations by which a log goes on at a step, in a branch of its own. What the log
// has before the step, in its newest branch whose chain has the digest there, is the new branch's too:
// it leads there. Else all is left, from step 0 on, wherever this copy of the log begins: others may
// reach back further, also where this one has no step left.
func GoOn(log Reader, step int64, digest [32]byte) ([]Op, error) {
	h := History(log.Branches())
	if h[0] == (Branch{}) {
		return nil, nil // nothing was ever written
	}
	current := h.Current().Number
	for _, b := range slices.Backward(h) {
		if log.Trimmed() > 0 && h.root(b.Number) != h.root(current) {
			continue // it was cut where it may have no key frame, and the mirror may have let go of it
		}
		steps, err := log.Branch(b.Number)
		if err != nil {
			return nil, err
		}
		switch known, ok, err := steps.ReadDigest(step - 1); {
		case err != nil:
			return nil, err
		case !ok || known != digest:
		case b.Number == current:
			return []Op{Truncate{From: step}}, nil
		default:
			return []Op{Fork{Number: h.free(), Parent: b.Number, From: step}}, nil
		}
	}
	return []Op{Truncate{From: 0}}, nil
}

// Follow takes in an operation of a log that is read in the order in which it was written. For one
// of a step it returns the branch whose own the step is; ok is false for any other.
func (h *History) Follow(op Op) (branch uint64, step int64, ok bool) {
	last := h.Current()
	switch steps := h.span(last.Number); op := op.(type) {
	case Append:
		if last.From == last.Next && op.Frame != nil && op.Step != steps.next {
			*last = Branch{Number: last.Number, Parent: last.Number} // all was left: earlier builds wrote the first step of their copy for that
		}
		if !h.span(last.Number).has(op.Step) {
			h.Add(op.Step)
		}
		return h.owner(op.Step), op.Step, true
	case SetDigest:
		return h.owner(op.Step), op.Step, true
	case Truncate:
		if steps.has(max(op.From, steps.first)) {
			*h = h.Truncated(op.From)
		}
	case Fork:
		*h = h.Forked(op)
	case InBranch:
		*last = Branch{Number: op.Number, Parent: op.Number}
	}
	return 0, 0, false
}
