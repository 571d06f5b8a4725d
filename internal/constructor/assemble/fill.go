package assemble

import "github.com/millrace-data/millrace/internal/batch"

// ignored is the label that losses skip, by the custom of PyTorch and HF.
const ignored = -100

// tokenwise says how token ids and labels are written. doc writes those of
// positions [from, to) of a document; dst has exactly the room needed. ignored is what
// labels hold where there is nothing to predict, padding included; that of ids is pad_id.
type tokenwise struct {
	doc     func(dst []int32, doc []int32, from, to int)
	ignored int32
	targets int // noTarget, nextTarget or ownTarget
}

// The token that a value asks a model to predict: none, the next one, or the one at
// its own position. Where that is the placeholder of an image, or a token without loss,
// padding is written: there is nothing to learn.
const (
	noTarget = iota
	nextTarget
	ownTarget
)

// fill writes the values of the spans of each line of p, each once.
func (w tokenwise) fill(dst []byte, p *part) {
	rest := batch.Elements[int32](dst)
	for i := range p.lines {
		for _, sp := range p.spans(i) {
			w.fillSpan(rest[:sp.len()], &p.lines[i], sp, p.layout.PadID)
			rest = rest[sp.len():]
		}
	}
}

func (w tokenwise) fillSpan(dst []int32, line *sequence, sp span, padID int32) {
	for k, in := range line.within(sp) {
		part := dst[:in.len()]
		w.doc(part, line.docs[k], in.from, in.to)
		if w.targets != noTarget {
			w.ignore(part, line.untaughtOf(k), in)
		}
		dst = dst[in.len():]
	}
	if w.targets != noTarget {
		padID = w.ignored
	}
	repeat(dst, padID)
}

// ignore writes positions whose targets are in runs as padding. dst has those
// of at.
func (w tokenwise) ignore(dst []int32, runs []span, at span) {
	for _, run := range runs {
		run = taught(run, w.targets)
		if from, to := max(run.from, at.from), min(run.to, at.to); from < to {
			repeat(dst[from-at.from:to-at.from], w.ignored)
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

// asInt32 is for ids and labels, which are int32 wherever they come from.
func asInt32(w tokenwise) values { return values{wire: batch.AsInt32, fill: w.fill} }

// asCopies is for labels, which may travel as copies of ids, too.
func asCopies(w tokenwise) values {
	return values{wire: batch.AsInt32, fill: w.fill, copies: w.copies}
}

var (
	tokenIDs      = asInt32(tokenwise{docTokens, 0, noTarget})
	nextTokens    = asCopies(tokenwise{docNext, 0, nextTarget})
	nextOrIgnored = asCopies(tokenwise{docNextOrIgnored, ignored, nextTarget})
	sameTokens    = asCopies(tokenwise{docSame, ignored, ownTarget})
)

func docTokens(dst []int32, doc []int32, from, to int) { copy(dst, doc[from:to]) }

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

// repeat fills dst with value.
func repeat(dst []int32, value int32) {
	for i := range dst {
		dst[i] = value
	}
}
