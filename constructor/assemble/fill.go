package assemble

import (
	"math"

	"github.com/millrace-data/millrace/internal/batch"
)

// ignored is the label that losses skip, by the custom of PyTorch and HF.
const ignored = -100

// element is what per-token values travel in. See batch.WireTensor.
type element interface{ uint8 | uint16 | int32 }

// position says how one value per token is written. doc writes those of
// positions [from, to) of a document; pad writes all of dst for the padding,
// whose first position is from. dst has exactly the room needed.
type position[T element] struct {
	doc     func(dst []T, doc []int32, from, to int)
	pad     func(dst []T, from int, padID int32)
	targets int // noTarget, nextTarget or ownTarget
}

// The token that a value asks a model to predict: none, the next one, or the one at
// its own position. Where that is the placeholder of an image, padding is written: there
// is nothing to learn.
const (
	noTarget = iota
	nextTarget
	ownTarget
)

// fill writes the values of the spans of each line of p, each once.
func (w position[T]) fill(dst []byte, p *part) {
	rest := batch.Elements[T](dst)
	for i := range p.lines {
		for _, sp := range p.spans(i) {
			w.fillSpan(rest[:sp.len()], &p.lines[i], sp, p.layout.PadID)
			rest = rest[sp.len():]
		}
	}
}

func (w position[T]) fillSpan(dst []T, line *sequence, sp span, padID int32) {
	start := 0
	for k, doc := range line.docs {
		if start >= sp.to {
			return
		}
		from, to := max(sp.from-start, 0), min(sp.to-start, len(doc))
		if from < to {
			w.doc(dst[:to-from], doc, from, to)
			if w.targets != noTarget && line.images != nil {
				w.ignore(dst, line.images[k], span{from, to}, padID)
			}
			dst = dst[to-from:]
		}
		start += len(doc)
	}
	w.pad(dst, max(sp.from-line.used, 0), padID)
}

// ignore writes positions whose targets are placeholders as padding. dst has those
// of at.
func (w position[T]) ignore(dst []T, placeholders []span, at span, padID int32) {
	for _, run := range placeholders {
		run = taught(run, w.targets)
		if from, to := max(run.from, at.from), min(run.to, at.to); from < to {
			w.pad(dst[from-at.from:to-at.from], 0, padID)
		}
	}
}

// taught returns the positions whose targets are a run of tokens.
func taught(run span, targets int) span {
	if targets == nextTarget {
		return span{run.from - 1, run.to - 1}
	}
	return run
}

// Ids and labels are int32 wherever they come from, a mask is 0 or 1.
func asInt32(p position[int32]) values {
	return values{func(*part) batch.DType { return batch.Int32 }, p.fill}
}

var (
	tokenIDs      = asInt32(position[int32]{docTokens, padTokens, noTarget})
	nextTokens    = asInt32(position[int32]{docNext, padZeros[int32], nextTarget})
	nextOrIgnored = asInt32(position[int32]{docNextOrIgnored, padIgnored, nextTarget})
	sameTokens    = asInt32(position[int32]{docSame, padIgnored, ownTarget})
	lossMask      = values{func(*part) batch.DType { return batch.Uint8 }, position[uint8]{docMask, padZeros[uint8], nextTarget}.fill}
)

// asIndex is for positions: uint16 if the job's rows are short enough.
func asIndex(short position[uint16], long position[int32]) values {
	return values{
		func(p *part) batch.DType {
			if p.shortRows() {
				return batch.Uint16
			}
			return batch.Int32
		},
		func(dst []byte, p *part) {
			if p.shortRows() {
				short.fill(dst, p)
			} else {
				long.fill(dst, p)
			}
		},
	}
}

// shortRows reports whether uint16 holds every position of a document and of
// padding, which is shorter than a row or, in a batch that is cut, than what the
// cut rounds up to.
func (p *part) shortRows() bool {
	return max(p.layout.SequenceLength, p.layout.multiple())-1 <= math.MaxUint16
}

// Padding is at position 0 for most formats and a document of its own for HF.
var (
	positionsZeroPad = asIndex(
		position[uint16]{docPositions[uint16], padZeros[uint16], noTarget},
		position[int32]{docPositions[int32], padZeros[int32], noTarget})
	positionsRampPad = asIndex(
		position[uint16]{docPositions[uint16], padPositions[uint16], noTarget},
		position[int32]{docPositions[int32], padPositions[int32], noTarget})
)

func docTokens(dst []int32, doc []int32, from, to int) { copy(dst, doc[from:to]) }

func padTokens(dst []int32, _ int, padID int32) { repeat(dst, padID) }

func padZeros[T element](dst []T, _ int, _ int32) { clear(dst) }

func padIgnored(dst []int32, _ int, _ int32) { repeat(dst, ignored) }

func padPositions[T uint16 | int32](dst []T, from int, _ int32) { ramp(dst, from) }

func docPositions[T uint16 | int32](dst []T, _ []int32, from, _ int) { ramp(dst, from) }

// docNext writes the token after each: labels that are already shifted. The
// last position of a document has nothing to predict and holds 0, like padding.
func docNext(dst []int32, doc []int32, from, _ int) {
	clear(dst[copy(dst, doc[from+1:]):])
}

// docNextOrIgnored is docNext with a label that losses skip at the last position.
func docNextOrIgnored(dst []int32, doc []int32, from, _ int) {
	repeat(dst[copy(dst, doc[from+1:]):], ignored)
}

// docSame writes each token itself: labels that the model shifts. Nothing
// predicts the first token of a document.
func docSame(dst []int32, doc []int32, from, to int) {
	copy(dst, doc[from:to])
	if from == 0 {
		dst[0] = ignored
	}
}

// docMask writes 1 where docNext has a label.
func docMask(dst []uint8, doc []int32, from, to int) {
	n := min(to+1, len(doc)) - (from + 1)
	repeat(dst[:n], 1)
	clear(dst[n:])
}

// ramp fills dst with from, from+1, ...
func ramp[T uint16 | int32](dst []T, from int) {
	for i := range dst {
		dst[i] = T(from + i)
	}
}

// repeat fills dst with value, twice as much with each copy.
func repeat[T element](dst []T, value T) {
	if len(dst) == 0 {
		return
	}
	dst[0] = value
	for n := 1; n < len(dst); n *= 2 {
		copy(dst[n:], dst[:n])
	}
}
