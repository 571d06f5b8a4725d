package assemble

import (
	"math"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/formats"
)

// Formats: whose key names, types and rules the tensors follow.
const (
	Megatron    = formats.BatchMegatron
	MegatronTHD = formats.BatchMegatronTHD
	HF          = formats.BatchHF
	Torchtitan  = formats.BatchTorchtitan
	JAX         = formats.BatchJAX
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
	Format           string // one of Formats
	CPSlicing        string // Zigzag, Contiguous or Whole
	SequenceLength   int    // tokens of a row, padding counted
	PadID            int32  // token id of padding, in the tensor of tokens only
	CP, PP           int    // sizes of these axes of the mesh, at least 1
	Packed           bool   // several documents a row; Megatron batches carry cu_seqlens only then
	DocumentMultiple int    // MegatronTHD: tokens of a document are padded to a multiple of it; 0 is 1
	Masks            bool   // documents may have tokens without loss, which Verify takes from the labels
	Copies           bool   // labels may travel as copies of the tokens
	Split            bool   // MegatronTHD: rows have several widths, and Layout is one of [Layout.Over]
}

// Validate returns an error of class fault.User that names the field and what
// would be valid, or nil.
func (l Layout) Validate() error {
	if columns(l.Format) == nil {
		return fault.Userf("output.format: %q is not a format: write one of %s", l.Format, strings.Join(Formats(), ", "))
	}
	if l.CP < 1 || l.PP < 1 {
		return fault.Userf("topology: cp is %d and pp is %d: both must be at least 1", l.CP, l.PP)
	}
	if l.SequenceLength < 1 || l.SequenceLength > math.MaxInt32 {
		return fault.Userf("batch.sequence_length: %d is out of range: write a number from 1 to %d", l.SequenceLength, math.MaxInt32)
	}
	if l.PadID < 0 {
		return fault.Userf("output.pad_id: %d is not a token id, and embeddings would read out of bounds: write 0 or an id of the vocabulary", l.PadID)
	}
	switch l.CPSlicing {
	case Zigzag, Contiguous, Whole:
	default:
		return fault.Userf("output.cp_slicing: %q is not a way to cut a sequence: write %s, %s or %s", l.CPSlicing, Zigzag, Contiguous, Whole)
	}
	if l.Format == MegatronTHD {
		return l.validateTHD()
	}
	return l.validateSlicing()
}

func (l Layout) validateSlicing() error {
	if l.DocumentMultiple > 1 {
		return fault.Userf("output.document_multiple: %d, but format %s does not pad documents: leave it out, or write format %s", l.DocumentMultiple, l.Format, MegatronTHD)
	}
	if l.Format == Torchtitan && l.CP > 1 && l.CPSlicing != Whole {
		return fault.Userf("output.cp_slicing: %s, but torchtitan cuts the sequence itself: write %s", l.CPSlicing, Whole)
	}
	// HF batches are padded to what the cut needs; rows of the others have one length.
	if l.Format == HF || l.CPSlicing == Whole || l.SequenceLength%l.multiple() == 0 {
		return nil
	}
	return fault.Userf("batch.sequence_length: %d cannot be cut %s over cp %d: write a multiple of %d, such as %d",
		l.SequenceLength, l.CPSlicing, l.CP, l.multiple(), roundUp(l.SequenceLength, l.multiple()))
}

func (l Layout) validateTHD() error {
	m := max(l.DocumentMultiple, 1)
	switch {
	case l.PadID != 0:
		return fault.Userf("output.pad_id: %d, but the padding of format %s holds 0: write 0", l.PadID, l.Format)
	case l.CPSlicing == Contiguous && l.CP > 1:
		return fault.Userf("output.cp_slicing: %s would cut through documents, which format %s cuts one by one: write %s or %s", Contiguous, l.Format, Zigzag, Whole)
	case m%l.multiple() != 0:
		return fault.Userf("output.document_multiple: a document of %d tokens cannot be cut over cp %d: write a multiple of %d", m, l.CP, l.multiple())
	case l.SequenceLength%m != 0:
		return fault.Userf("batch.sequence_length: %d is not a multiple of output.document_multiple %d: write such as %d", l.SequenceLength, m, roundUp(l.SequenceLength, m))
	}
	return nil
}

// Over returns the layout of a microbatch whose row width ranks share, for a job with
// Split: they take the place of the CP ranks, and each gets as many tokens as a row
// of width 1 has.
func (l Layout) Over(width int) Layout {
	l.CP, l.SequenceLength = width, width*l.SequenceLength
	return l
}

// room returns the tokens that a document takes of its row.
func (l Layout) room(tokens int) int {
	return roundUp(tokens, max(l.DocumentMultiple, 1))
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
func (l *Layout) spans(length, cp int) [2]span {
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
