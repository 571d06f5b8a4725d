package assemble

import (
	"encoding/binary"
	"math"
)

// ignored is the label that losses skip, by the custom of PyTorch and HF.
const ignored = -100

// position says how one value per token is written. doc writes those of
// positions [from, to) of a document; pad writes all of dst for the padding,
// whose first position is from. dst has exactly the room needed.
type position struct {
	size int // bytes of one value
	doc  func(dst []byte, doc []int32, from, to int)
	pad  func(dst []byte, from int, padID int32)
}

// fill writes the values of the spans of each line of p, each byte once.
func (w position) fill(dst []byte, p *part) {
	for i := range p.lines {
		for _, sp := range p.spans {
			n := sp.len() * w.size
			w.fillSpan(dst[:n], &p.lines[i], sp, p.layout.PadID)
			dst = dst[n:]
		}
	}
}

func (w position) fillSpan(dst []byte, line *sequence, sp span, padID int32) {
	start := 0
	for _, doc := range line.docs {
		if start >= sp.to {
			return
		}
		from, to := max(sp.from-start, 0), min(sp.to-start, len(doc))
		if from < to {
			n := (to - from) * w.size
			w.doc(dst[:n], doc, from, to)
			dst = dst[n:]
		}
		start += len(doc)
	}
	w.pad(dst, max(sp.from-line.used, 0), padID)
}

var (
	tokenIDs   = position{8, docTokens, padTokens}
	nextTokens = position{8, docNext, padZeros}
	sameTokens = position{8, docSame, padIgnored}
	lossMask   = position{4, docMask, padZeros}
	// Padding is at position 0 for Megatron and a document of its own for HF.
	positionsZeroPad = position{8, docPositions, padZeros}
	positionsRampPad = position{8, docPositions, padPositions}
)

func docTokens(dst []byte, doc []int32, from, to int) { putTokens(dst, doc[from:to]) }

func padTokens(dst []byte, _ int, padID int32) { putRepeated(dst, int64(padID)) }

func padZeros(dst []byte, _ int, _ int32) { clear(dst) }

func padIgnored(dst []byte, _ int, _ int32) { putRepeated(dst, ignored) }

func padPositions(dst []byte, from int, _ int32) { putRamp(dst, from) }

func docPositions(dst []byte, _ []int32, from, _ int) { putRamp(dst, from) }

// docNext writes the token after each: labels that are already shifted. The
// last position of a document has nothing to predict and holds 0, like padding.
func docNext(dst []byte, doc []int32, from, to int) {
	n := min(to+1, len(doc)) - (from + 1)
	putTokens(dst[:8*n], doc[from+1:from+1+n])
	clear(dst[8*n:])
}

// docSame writes each token itself: labels that the model shifts. Nothing
// predicts the first token of a document.
func docSame(dst []byte, doc []int32, from, to int) {
	putTokens(dst, doc[from:to])
	if from == 0 {
		putRepeated(dst[:8], ignored)
	}
}

// docMask writes 1 where docNext has a label.
func docMask(dst []byte, doc []int32, from, to int) {
	n := min(to+1, len(doc)) - (from + 1)
	one := math.Float32bits(1)
	for ones := dst[:4*n]; len(ones) >= 4; ones = ones[4:] {
		binary.LittleEndian.PutUint32(ones, one)
	}
	clear(dst[4*n:])
}

// putTokens writes tokens as little-endian int64.
func putTokens(dst []byte, tokens []int32) {
	for _, token := range tokens {
		binary.LittleEndian.PutUint64(dst, uint64(int64(token)))
		dst = dst[8:]
	}
}

// putRamp fills dst with the int64 from, from+1, ...
func putRamp(dst []byte, from int) {
	for i := uint64(from); len(dst) >= 8; i++ {
		binary.LittleEndian.PutUint64(dst, i)
		dst = dst[8:]
	}
}

// putRepeated fills dst with the int64 value.
func putRepeated(dst []byte, value int64) {
	for len(dst) >= 8 {
		binary.LittleEndian.PutUint64(dst, uint64(value))
		dst = dst[8:]
	}
}
