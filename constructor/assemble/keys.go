package assemble

import "github.com/millrace-data/millrace/internal/batch"

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

// Key documents one tensor of a format.
type Key struct {
	Name   string
	DType  batch.DType
	Shape  string // in words: rows, seq, tokens, cp, width, segments
	Stages Stages
	Packed bool   // only in jobs that pack
	Doc    string // what it holds, documents and padding
}

// column is a Key and how to make it.
type column struct {
	Key
	perToken bool // cut like the sequence, and read back by Verify as such
	shape    func(p *part) []int
	fill     func(dst []byte, p *part)
}

func tokenColumn(key Key, values position) column {
	return column{key, true, tokenShape, values.fill}
}

func boundsColumn(key Key, shape func(p *part) []int, fill func(dst []byte, p *part)) column {
	return column{key, false, shape, fill}
}

// Keys returns the tensors of a format in the order of delivery, nil for a name
// that is no format. docs/format.md holds the same table.
func Keys(format string) []Key {
	var keys []Key
	for _, c := range columns(format) {
		keys = append(keys, c.Key)
	}
	return keys
}

func columns(format string) []column {
	switch format {
	case Megatron:
		return megatronColumns
	case HF:
		return hfColumns
	default:
		return nil
	}
}

var megatronColumns = []column{
	tokenColumn(Key{"tokens", batch.Int64, "[rows, seq/cp]", First, false,
		"token ids; padding holds `pad_id`"}, tokenIDs),
	tokenColumn(Key{"position_ids", batch.Int64, "[rows, seq/cp]", First, false,
		"restart at 0 in each document; padding holds 0"}, positionsZeroPad),
	tokenColumn(Key{"labels", batch.Int64, "[rows, seq/cp]", Last, false,
		"the next token of the same document; the last position of each document and padding hold 0"}, nextTokens),
	tokenColumn(Key{"loss_mask", batch.Float32, "[rows, seq/cp]", Last, false,
		"1.0 where `labels` is a token, 0.0 at the last position of each document and in padding"}, lossMask),
	boundsColumn(Key{"cu_seqlens", batch.Int32, "[rows, width]", Every, true,
		"0, the end of each document, then `seq` in all places left; padding is the last segment"}, paddedBoundsShape, fillPaddedBounds),
	boundsColumn(Key{"max_seqlen", batch.Int32, "[rows]", Every, true,
		"the longest segment of the row, padding counted as one"}, longestShape, fillLongest),
}

var hfColumns = []column{
	tokenColumn(Key{"input_ids", batch.Int64, "[1, tokens/cp]", First, false,
		"token ids; padding holds `pad_id`"}, tokenIDs),
	tokenColumn(Key{"position_ids", batch.Int64, "[1, tokens/cp]", First, false,
		"restart at 0 in each document and in padding"}, positionsRampPad),
	tokenColumn(Key{"labels", batch.Int64, "[1, tokens/cp]", Last, false,
		"the token itself (the model shifts); -100 at the first position of each document and in padding"}, sameTokens),
	boundsColumn(Key{"cu_seq_lens_q", batch.Int32, "[segments+1]", Every, false,
		"0, the end of each document, the end of padding if there is any"}, boundsShape, fillBounds),
	boundsColumn(Key{"cu_seq_lens_k", batch.Int32, "[segments+1]", Every, false,
		"the same"}, boundsShape, fillBounds),
	boundsColumn(Key{"max_length_q", batch.Int32, "[]", Every, false,
		"the longest segment, padding counted as one"}, scalarShape, fillLongest),
	boundsColumn(Key{"max_length_k", batch.Int32, "[]", Every, false,
		"the same"}, scalarShape, fillLongest),
}

func tokenShape(p *part) []int {
	return []int{len(p.lines), p.spans[0].len() + p.spans[1].len()}
}

func paddedBoundsShape(p *part) []int { return []int{len(p.lines), boundsWidth(p.lines)} }

func longestShape(p *part) []int { return []int{len(p.lines)} }

func boundsShape(p *part) []int { return []int{boundsCount(&p.lines[0])} }

func scalarShape(*part) []int { return []int{} }
