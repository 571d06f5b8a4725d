package transform

import (
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/jobspec"
)

// Which tokens of a sample carry no loss is said by bounds: from, to, from, to, rising,
// of runs that do not touch. A run has no first token of a sample, which nothing
// predicts: so the bounds follow from the labels that a trainer gets.

// lossMask compiles a loss_mask step: a column with a value for each of the tokens.
func (c *compiler) lossMask(label string, column jobspec.LossMask) error {
	path := string(column)
	switch {
	case !c.hasTokens || c.chain.encoding != nil:
		return fault.Userf("a loss_mask step has a value for each token of a column: put it after a tokens step")
	case c.hasEnd:
		return fault.Userf("a loss_mask step comes before append_eod, whose token the column does not have")
	case c.chain.inText:
		return fault.Userf("a loss_mask step comes before an image step with a marker, whose placeholders the column does not have")
	case c.chain.masks:
		return fault.Userf("an earlier step says which tokens carry loss; a chain has one loss_mask or chat step")
	}
	place, err := c.required(path)
	if err == nil {
		err = c.takes(path, maskNeed)
	}
	if err != nil {
		return err
	}
	c.chain.masks = true
	c.add(label, func(w *Worker, rec *format.Record) (bool, error) {
		if rec.Values[place].Absent {
			return false, absent(rec, place, path, "leave the record out by a filter before this step")
		}
		if err := w.takeMask(&rec.Values[place]); err != nil {
			return false, inColumn(rec, place, path, err)
		}
		return true, nil
	})
	return nil
}

// takeMask reads a list of 0 and 1, or of bools, for the tokens. Null means that all carry loss.
func (w *Worker) takeMask(v *format.Value) error {
	n := len(v.List) + len(v.Tokens)
	switch v.Kind {
	case format.Null:
		return nil
	case format.Tokens, format.List:
	default:
		return fault.Userf("no loss mask: it is a list of 0 and 1, or of booleans, one for each token")
	}
	if n != len(w.tokens) {
		return fault.Userf("a loss mask of %d for %d tokens: it has one value for each", n, len(w.tokens))
	}
	for i := range n {
		carries, err := maskValue(v, i)
		if err != nil {
			return err
		}
		if !carries {
			w.masked = appendRun(w.masked, int32(i), int32(i)+1)
		}
	}
	return nil
}

func maskValue(v *format.Value, i int) (carries bool, err error) {
	if v.Kind == format.Tokens {
		if x := v.Tokens[i]; x != 0 && x != 1 {
			return false, fault.Userf("element %d of the loss mask is %d; valid are 0 (no loss) and 1", i, x)
		}
		return v.Tokens[i] == 1, nil
	}
	switch x := &v.List[i]; {
	case (x.Kind == format.Int || x.Kind == format.Bool) && (x.Int == 0 || x.Int == 1):
		return x.Int == 1, nil
	case x.Kind == format.Float && (x.Float == 0 || x.Float == 1):
		return x.Float == 1, nil
	}
	return false, fault.Userf("element %d of the loss mask is neither 0 nor 1, nor a boolean", i)
}

// appendRun adds a run that begins where the last one ends, or behind it.
func appendRun(bounds []int32, from, to int32) []int32 {
	switch last := len(bounds) - 1; {
	case from >= to:
		return bounds
	case last > 0 && bounds[last] == from:
		bounds[last] = to
		return bounds
	}
	return append(bounds, from, to)
}

// maskAsBefore makes the token that was appended last carry loss if the one before it does.
func (w *Worker) maskAsBefore() {
	if n := len(w.masked); n > 0 && int(w.masked[n-1]) == len(w.tokens)-1 {
		w.masked[n-1]++
	}
}

// maskOf returns the bounds for tokens [from, to) of the record, of which placeholders are
// the first: w.masked counts from behind them, and w.muted are bounds among them.
func (w *Worker) maskOf(from, to, placeholders int) []int32 {
	if len(w.masked)+len(w.muted) == 0 {
		return nil
	}
	w.piece = w.piece[:0]
	for k := 0; k+1 < len(w.muted); k += 2 {
		w.piece = appendRun(w.piece, int32(max(int(w.muted[k])-from, 1)), int32(min(int(w.muted[k+1]), to)-from))
	}
	for k := 0; k+1 < len(w.masked); k += 2 {
		start, end := int(w.masked[k])+placeholders, int(w.masked[k+1])+placeholders
		w.piece = appendRun(w.piece, int32(max(start-from, 1)), int32(min(end, to)-from))
	}
	if len(w.piece) == 0 {
		return nil
	}
	return w.piece
}

// NoLoss reports whether nothing is learned of the sample: of its tokens but the first, each carries no loss or stands
// for an image.
func (s *Sample) NoLoss() bool {
	masked, at := s.Masked, 1
	for at < len(s.Tokens) {
		i := slices.IndexFunc(s.Images, func(x Image) bool { return x.span.from <= at && at < x.span.to })
		switch {
		case i >= 0:
			at = s.Images[i].span.to
		case len(masked) > 0 && int(masked[1]) <= at:
			masked = masked[2:]
		case len(masked) > 0 && int(masked[0]) <= at:
			at = int(masked[1])
		default:
			return false
		}
	}
	return true
}
