package assemble

import (
	"math"

	"github.com/millrace-data/millrace/internal/fault"
)

// Formats: whose key names, types and rules the tensors follow.
const (
	Megatron = "megatron" // Megatron-LM: (rows, sequence length), labels already shifted
	HF       = "hf"       // Hugging Face padding-free: (1, tokens), labels not shifted
)

// Ways of cutting the sequence over the CP ranks.
const (
	Zigzag     = "zigzag"     // 2·CP chunks; rank r takes chunks r and 2·CP-1-r
	Contiguous = "contiguous" // CP chunks; rank r takes chunk r
	Whole      = "none"       // every CP rank takes the whole sequence and cuts it itself
)

// Layout says how batches look to the trainers of one job. It is a value; make
// it once and Validate it.
type Layout struct {
	Format         string // Megatron or HF
	CPSlicing      string // Zigzag, Contiguous or Whole
	SequenceLength int    // tokens of a row, padding counted
	PadID          int32  // token id of padding, in tokens and input_ids only
	CP, PP         int    // sizes of these axes of the mesh, at least 1
	Packed         bool   // several documents a row; Megatron batches carry cu_seqlens only then
}

// Validate returns an error of class fault.User that names the field and what
// would be valid, or nil.
func (l Layout) Validate() error {
	if columns(l.Format) == nil {
		return fault.Userf("output.format: %q is no format: write %s or %s", l.Format, Megatron, HF)
	}
	if l.CP < 1 || l.PP < 1 {
		return fault.Userf("topology: cp is %d and pp is %d: both must be at least 1", l.CP, l.PP)
	}
	if l.SequenceLength < 1 || l.SequenceLength > math.MaxInt32 {
		return fault.Userf("batch.sequence_length: %d is out of range: write a number from 1 to %d", l.SequenceLength, math.MaxInt32)
	}
	if l.PadID < 0 {
		return fault.Userf("output.pad_id: %d is no token id, and embeddings would read out of bounds: write 0 or an id of the vocabulary", l.PadID)
	}
	return l.validateSlicing()
}

func (l Layout) validateSlicing() error {
	switch l.CPSlicing {
	case Zigzag, Contiguous, Whole:
	default:
		return fault.Userf("output.cp_slicing: %q is no way to cut a sequence: write %s, %s or %s", l.CPSlicing, Zigzag, Contiguous, Whole)
	}
	// HF batches are padded to what the cut needs; Megatron rows have one length.
	if l.Format != Megatron || l.CPSlicing == Whole || l.SequenceLength%l.multiple() == 0 {
		return nil
	}
	return fault.Userf("batch.sequence_length: %d cannot be cut %s over cp %d: write a multiple of %d, such as %d",
		l.SequenceLength, l.CPSlicing, l.CP, l.multiple(), roundUp(l.SequenceLength, l.multiple()))
}

// multiple is what the length of a sequence must be a multiple of, so that all
// CP ranks get equally many tokens. Whole counts like Zigzag, the more
// demanding of the cuts that a trainer may make itself.
func (l Layout) multiple() int {
	switch {
	case l.CP == 1:
		return 1
	case l.CPSlicing == Contiguous:
		return l.CP
	default:
		return 2 * l.CP
	}
}

// span is the part [from, to) of a sequence.
type span struct{ from, to int }

func (s span) len() int { return s.to - s.from }

// spans returns what rank cp takes of a sequence of length tokens, in the order
// of delivery. The second span is empty unless the cut is a zigzag.
func (l Layout) spans(length, cp int) [2]span {
	if l.CP == 1 || l.CPSlicing == Whole {
		return [2]span{{0, length}}
	}
	if l.CPSlicing == Contiguous {
		chunk := length / l.CP
		return [2]span{{cp * chunk, (cp + 1) * chunk}}
	}
	chunk := length / (2 * l.CP)
	mirror := 2*l.CP - 1 - cp
	return [2]span{{cp * chunk, (cp + 1) * chunk}, {mirror * chunk, (mirror + 1) * chunk}}
}

func roundUp(n, multiple int) int {
	return (n + multiple - 1) / multiple * multiple
}
