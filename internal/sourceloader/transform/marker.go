package transform

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/tokenize"
	"github.com/millrace-data/millrace/jobspec"
)

// Images whose places the text says. The tokenize step makes one token of each marker, the image
// step puts the placeholders in its place: what a marker's token is carries over to the tokens before and behind
// the placeholders, which carry no loss themselves.

// markerIn is the marker of the image step among the steps after tokenize, "" if there is none.
func markerIn(next []jobspec.Transform) string {
	for _, t := range next {
		if image, ok := t.(*jobspec.Image); ok {
			return image.Marker
		}
	}
	return ""
}

// marked returns the encoding that makes one token of a marker, and has the step allow it.
func (c *compiler) marked(enc *tokenize.Encoding, t *jobspec.Tokenize, marker string) (*tokenize.Encoding, error) {
	if slices.Contains(t.Refuse, marker) {
		return nil, fault.Userf("tokenize refuses %s in a text: take it out of refuse", marker)
	}
	made, id, err := enc.Marked(marker)
	if err != nil {
		return nil, err
	}
	c.marker = id
	if slices.Contains(made.SpecialNames(), marker) { // any other added token is one whatever is allowed
		t.Allow = append(slices.Clone(t.Allow), marker)
	}
	return made, nil
}

// inPlace says whether the placeholders of a step take the places of markers, and of which token.
func (c *compiler) inPlace(step *imageStep) error {
	switch fromColumn := c.chain.encoding == nil; {
	case step.Marker != "" && fromColumn:
		return fault.Userf("marker is a text, and the tokens come from a column: write marker_id, the id that stands for an image there")
	case step.MarkerID != 0 && !fromColumn:
		return fault.Userf("marker_id is for tokens of a column: write marker, the text that stands for an image")
	case step.MarkerID != 0:
		step.marker = step.MarkerID
	case step.Marker != "":
		step.marker = c.marker
	default:
		return nil
	}
	step.inText, c.chain.inText = true, true
	return nil
}

// placeImages puts the placeholders of the images in the places of the markers.
func (w *Worker) placeImages(step *imageStep) error {
	markers := 0
	for _, id := range w.tokens {
		if id == step.marker {
			markers++
		}
	}
	if markers != len(w.images) {
		name := step.Marker
		if name == "" {
			name = strconv.Itoa(int(step.marker))
		}
		return fault.Userf("the record has %s and %s of %s: it needs one for each image", count(len(w.images), "image"), count(markers, "marker"), name)
	}
	if markers == 0 {
		return nil
	}
	tokens, muted, masked := w.spare[:0], w.masked, []int32(nil)
	put := func(i int, id int32) { // it carries loss as token i of the text does
		for len(muted) > 0 && i >= int(muted[1]) {
			muted = muted[2:]
		}
		if len(muted) > 0 && i >= int(muted[0]) {
			masked = appendRun(masked, int32(len(tokens)), int32(len(tokens)+1))
		}
		tokens = append(tokens, id)
	}
	next := 0
	for i, id := range w.tokens {
		if id != step.marker {
			put(i, id)
			continue
		}
		x := &w.images[next]
		next++
		x.span.from = len(tokens)
		if step.Begin != 0 {
			put(i, step.Begin)
		}
		tokens = step.appendPlaceholders(tokens, x)
		if step.End != 0 {
			put(i, step.End)
		}
		x.span.to = len(tokens)
	}
	w.tokens, w.spare, w.masked = tokens, w.tokens, masked
	return nil
}

// count is a number of things, for a person.
func count(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

// joinPrefix puts what comes before the tokens there, and reports how many that is.
func (w *Worker) joinPrefix() int {
	n := len(w.prefix)
	if n == 0 {
		return 0
	}
	w.tokens, w.prefix = append(w.prefix, w.tokens...), w.tokens
	if w.chain.inText {
		for i := range w.images {
			x := &w.images[i]
			x.At, x.span = x.At+int32(n), span{x.span.from + n, x.span.to + n}
		}
	}
	return n
}

// cutAlways reports whether an image, with the tokens around it, is longer than any sample.
func (w *Worker) cutAlways() bool {
	return slices.ContainsFunc(w.images, func(x Image) bool { return x.span.to-x.span.from > w.chain.max })
}

// end returns where a piece of tokens ends that begins at a place and has most tokens: no image is
// cut.
func (w *Worker) end(at, most int) int {
	end := min(at+most, len(w.tokens))
	for i := range w.images {
		if s := w.images[i].span; s.from < end && end < s.to {
			return s.from
		}
	}
	return end
}

// imagesIn returns the images of a piece, by their places in it. Pieces are asked for in order.
func (w *Worker) imagesIn(from, to int) []Image {
	first := w.placed
	for ; w.placed < len(w.images) && w.images[w.placed].span.to <= to; w.placed++ {
		x := &w.images[w.placed]
		x.At, x.span = x.At-int32(from), span{x.span.from - from, x.span.to - from}
	}
	return w.images[first:w.placed:w.placed]
}
