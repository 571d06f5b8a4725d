package assemble

import (
	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/formats"
)

// Stages says which pipeline stages receive a tensor.
type Stages string

const (
	First Stages = "first"
	Last  Stages = "last"
	Every Stages = "every"
)

// has reports whether stage pp of size stages is one of them.
func (s Stages) has(pp, size int) bool {
	return s == Every || s == First && pp == 0 || s == Last && pp == size-1
}

// Condition says in which jobs a tensor is delivered.
type Condition string

const (
	Always    Condition = ""
	IfPacking Condition = "if packing"
	IfCP      Condition = "if cp > 1"
	IfSplit   Condition = "if context_split, or rows at cp"
)

// holds reports whether the jobs of a layout have the tensor.
func (c Condition) holds(l Layout) bool {
	return c == Always || c == IfPacking && l.Packed || c == IfCP && l.CP > 1 || c == IfSplit && l.Split
}

// Key documents one tensor of a format.
type Key struct {
	Name   string
	DType  batch.DType
	Shape  string // in words: rows, seq, tokens, cp, width, segments
	Stages Stages
	When   Condition
	Doc    string // what it holds, documents and padding
}

// column is a Key and how to make it.
type column struct {
	Key
	perToken bool // cut like the sequence, and read back by Verify as such
	shape    func(p *part) []int
	values
}

// values is how the elements of a column are written, one by one or as runs.
type values struct {
	wire batch.Wire
	fill func(dst []byte, p *part) // writes every byte of dst, as they travel; nil for
	runs func(p *part) []batch.Run // those that travel as runs
	// copies writes the same as runs and copies of the ids, which are the first column of each format;
	// nil for what is no copy.
	copies func(p *part) []batch.Run
}

// tokenColumn has a value for each token, in lines: [lines, length].
func tokenColumn(key Key, v values) column { return column{key, true, lineShape, v} }

// flatColumn has a value for each token, all lines end to end: [length].
func flatColumn(key Key, v values) column { return column{key, true, flatShape, v} }

// boundsColumn is short and travels as it is.
func boundsColumn(key Key, shape func(p *part) []int, fill func(dst []byte, p *part)) column {
	return column{key, false, shape, values{fill: fill}}
}

// Keys returns the tensors of a format in the order of delivery, nil for a name
// that is no format. docs/bytes.md holds the same table.
func Keys(format string) []Key {
	var keys []Key
	for _, c := range columns(format) {
		keys = append(keys, c.Key)
	}
	return keys
}

// Formats returns the names of all formats.
func Formats() []string { return formats.BatchNames() }

func columns(format string) []column {
	switch format {
	case Megatron:
		return megatronColumns
	case MegatronTHD:
		return thdColumns
	case HF:
		return hfColumns
	case Torchtitan:
		return torchtitanColumns
	case JAX:
		return jaxColumns
	default:
		return nil
	}
}

// What several formats say of a tensor.
const (
	idsText       = "token ids; padding holds `pad_id`"
	positionsText = "restart at 0 in each document; padding holds 0"
	nextText      = "the next token of the same document; the last position of each document and padding hold 0"
	maskText      = "1.0 where `labels` is a token, 0.0 at the last position of each document and in padding"
	ignoredText   = "the next token of the same document; -100 at the last position of each document and in padding"
)

var megatronColumns = []column{
	tokenColumn(Key{"tokens", batch.Int64, "[rows, seq/cp]", First, Always, idsText}, tokenIDs),
	tokenColumn(Key{"position_ids", batch.Int64, "[rows, seq/cp]", First, Always, positionsText}, positionsZeroPad),
	tokenColumn(Key{"labels", batch.Int64, "[rows, seq/cp]", Last, Always, nextText}, nextTokens),
	tokenColumn(Key{"loss_mask", batch.Float32, "[rows, seq/cp]", Last, Always, maskText}, lossMask),
	boundsColumn(Key{"cu_seqlens", batch.Int32, "[rows, width]", Every, IfPacking,
		"0, the end of each document, then `seq` in all places left; padding is the last segment"}, paddedBoundsShape, fillPaddedBounds),
	boundsColumn(Key{"max_seqlen", batch.Int32, "[rows]", Every, IfPacking,
		"the longest segment of the row, padding counted as one"}, longestShape, fillLongest),
}

var thdColumns = []column{
	flatColumn(Key{"tokens", batch.Int64, "[rows·seq/cp]", First, Always,
		"token ids; padding holds 0"}, tokenIDs),
	flatColumn(Key{"position_ids", batch.Int64, "[rows·seq/cp]", First, Always, positionsText}, positionsZeroPad),
	flatColumn(Key{"labels", batch.Int64, "[rows·seq/cp]", Last, Always, nextText}, nextTokens),
	flatColumn(Key{"loss_mask", batch.Float32, "[rows·seq/cp]", Last, Always, maskText}, lossMask),
	boundsColumn(Key{"cu_seqlens", batch.Int32, "[segments+1]", Every, Always,
		"0, then the sum of the tokens of all segments so far; the rest of a row has none"}, segmentBoundsShape, fillTokenBounds),
	boundsColumn(Key{"cu_seqlens_padded", batch.Int32, "[segments+1]", Every, Always,
		"0, then the end of each segment, its padding included; the last is rows·seq"}, segmentBoundsShape, fillSegmentBounds),
	boundsColumn(Key{"max_seqlen", batch.Int32, "[1]", Every, Always,
		"the longest segment, its padding included"}, oneShape, fillLongestSegment),
	boundsColumn(Key{"local_cp_size", batch.Int32, "[1]", Every, IfSplit,
		"the ranks that share the row, which take the place of cp in it"}, oneShape, fillRanks),
}

var hfColumns = []column{
	tokenColumn(Key{"input_ids", batch.Int64, "[1, tokens/cp]", First, Always, idsText}, tokenIDs),
	tokenColumn(Key{"position_ids", batch.Int64, "[1, tokens/cp]", First, Always,
		"restart at 0 in each document and in padding"}, positionsRampPad),
	tokenColumn(Key{"labels", batch.Int64, "[1, tokens/cp]", Last, Always,
		"the token itself (the model shifts); -100 at the first position of each document and in padding"}, sameTokens),
	tokenColumn(Key{"shift_labels", batch.Int64, "[1, tokens/cp]", Last, IfCP, ignoredText}, nextOrIgnored),
	boundsColumn(Key{"cu_seq_lens_q", batch.Int32, "[segments+1]", Every, Always,
		"0, the end of each document, the end of padding if there is any"}, boundsShape, fillBounds),
	boundsColumn(Key{"cu_seq_lens_k", batch.Int32, "[segments+1]", Every, Always,
		"the same"}, boundsShape, fillBounds),
	boundsColumn(Key{"max_length_q", batch.Int32, "[]", Every, Always,
		"the longest segment, padding counted as one"}, scalarShape, fillLongest),
	boundsColumn(Key{"max_length_k", batch.Int32, "[]", Every, Always,
		"the same"}, scalarShape, fillLongest),
}

var torchtitanColumns = []column{
	flatColumn(Key{"input", batch.Int64, "[rows·seq]", Every, Always, idsText}, tokenIDs),
	flatColumn(Key{"positions", batch.Int64, "[rows·seq]", Every, Always,
		"restart at 0 in each document and in the padding of each row"}, positionsRampPad),
	flatColumn(Key{"labels", batch.Int64, "[rows·seq]", Every, Always, ignoredText}, nextOrIgnored),
}

var jaxColumns = []column{
	tokenColumn(Key{"inputs", batch.Int32, "[rows, seq/cp]", Every, Always, idsText}, tokenIDs),
	tokenColumn(Key{"inputs_position", batch.Int32, "[rows, seq/cp]", Every, Always, positionsText}, positionsZeroPad),
	tokenColumn(Key{"inputs_segmentation", batch.Int32, "[rows, seq/cp]", Every, Always,
		"1 in the first document of a row, 2 in the next, and so on; padding holds 0"}, segmentIDs),
	tokenColumn(Key{"targets", batch.Int32, "[rows, seq/cp]", Every, Always, nextText}, nextTokens),
	tokenColumn(Key{"targets_position", batch.Int32, "[rows, seq/cp]", Every, Always,
		"as `inputs_position`"}, positionsZeroPad),
	tokenColumn(Key{"targets_segmentation", batch.Int32, "[rows, seq/cp]", Every, Always,
		"as `inputs_segmentation`, but 0 at the last position of each document: where it is 0 there is no loss"}, targetSegmentIDs),
}
