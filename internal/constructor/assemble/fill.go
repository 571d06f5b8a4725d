package assemble

import "github.com/millrace-data/millrace/internal/batch"

// ignored is the label that losses skip, by the custom of PyTorch and HF.
const ignored = -100

// tokenwise says how token ids and labels are written. doc writes those of
// positions [from, to) of a document, and pad those of padding. dst has exactly the
// room needed.
type tokenwise struct {
	doc     func(dst []int32, doc []int32, from, to int)
	pad     func(dst []int32, padID int32)
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
		if w.targets != noTarget && line.untaught != nil {
			w.ignore(part, line.untaught[k], in, padID)
		}
		dst = dst[in.len():]
	}
	w.pad(dst, padID)
}

// ignore writes positions whose targets are in runs as padding. dst has those
// of at.
func (w tokenwise) ignore(dst []int32, runs []span, at span, padID int32) {
	for _, run := range runs {
		run = taught(run, w.targets)
		if from, to := max(run.from, at.from), min(run.to, at.to); from < to {
			w.pad(dst[from-at.from:to-at.from], padID)
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

var (
	tokenIDs      = asInt32(tokenwise{docTokens, repeat, noTarget})
	nextTokens    = asInt32(tokenwise{docNext, padZeros, nextTarget})
	nextOrIgnored = asInt32(tokenwise{docNextOrIgnored, padIgnored, nextTarget})
	sameTokens    = asInt32(tokenwise{docSame, padIgnored, ownTarget})
)

func docTokens(dst []int32, doc []int32, from, to int) { copy(dst, doc[from:to]) }

func padZeros(dst []int32, _ int32) { clear(dst) }

func padIgnored(dst []int32, _ int32) { repeat(dst, ignored) }

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
