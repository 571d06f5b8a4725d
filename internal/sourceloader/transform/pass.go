package transform

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// A chain with functions is applied segment by segment: Begin puts the records of one unit
// of a file, in order, into a batch; Pass takes a batch through each segment but the first
// and the last; End makes samples of it. A batch holds all parts of its records, the parts
// of a record stand together, and a record with a bad part is one bad record. So whatever
// records are in a batch together, they become the same samples.

// Tally counts the records, or parts of records, that gave nothing.
type Tally struct{ Filtered, TooLong, Empty uint64 }

func (t *Tally) add(o Outcome) {
	switch o {
	case Filtered:
		t.Filtered++
	case TooLong:
		t.TooLong++
	case Empty:
		t.Empty++
	}
}

// outcome is what became of the record that these are of, which gave no sample.
func (t *Tally) outcome() Outcome {
	switch {
	case t.TooLong > 0:
		return TooLong
	case t.Empty > 0:
		return Empty
	}
	return Filtered
}

// callError is an error of class fault.User that no record is to blame for: of a function, or of
// the schema of a file.
type callError struct{ error }

func (e *callError) Unwrap() error { return e.error }

// serverError is the error of a call of a model server.
type serverError struct{ error }

func (e *serverError) Unwrap() error { return e.error }

// Asked reports whether an error is of a call of a model server, and of no record: it comes of the server and its ledger,
// and not of how the records were read.
func Asked(err error) bool {
	_, ok := errors.AsType[*serverError](err)
	return ok
}

// stepError is what a step says of a record, unlike what its reader says.
type stepError struct{ error }

func (e *stepError) Unwrap() error { return e.error }

// raisedError is what a function said of a record or a call.
type raisedError struct{ error }

func (e *raisedError) Unwrap() error { return e.error }

// Raised is the part of an error that a function said. It may say something else of the same records when it is
// called again.
func Raised(err error) (said string, ok bool) {
	e, ok := errors.AsType[*raisedError](err)
	if !ok {
		return "", false
	}
	return e.Error(), true
}

// Begin applies the first segment to a record that was read, and adds to out what it
// becomes; a bad record is added as one.
func (w *Worker) Begin(rec *format.Record, out *format.Batch) (Outcome, error) {
	if rec.Err != nil {
		out.Add(rec)
		return Kept, nil
	}
	run := &w.chain.runs[0]
	if len(rec.Values) != len(run.columns) {
		return 0, fmt.Errorf("row %d has %d values for %d columns", rec.Row, len(rec.Values), len(run.columns))
	}
	rec = w.own(rec)
	keep, err := w.steps(run, rec)
	switch {
	case fault.ClassOf(err) == fault.User && err != nil:
		out.Add(&format.Record{Row: rec.Row, Part: rec.Part, Err: &stepError{err}})
		return Kept, nil
	case err != nil:
		return 0, err
	case !keep:
		return Filtered, nil
	}
	out.Add(w.given(run, rec))
	return Kept, nil
}

// given is the record that a run gives for rec.
func (w *Worker) given(run *native, rec *format.Record) *format.Record {
	r := &w.next
	*r = format.Record{Row: rec.Row, Part: rec.Part, Values: r.Values[:0], Types: r.Types[:0]}
	for _, out := range run.out {
		v, typ := format.Value{Kind: format.String, Bytes: w.text}, format.Type{}
		if out.column != fromText {
			v, typ = rec.Values[out.column], typeOf(rec, out.column)
		}
		r.Values, r.Types = append(r.Values, v), append(r.Types, typ)
	}
	if rec.Lacks != nil {
		r.Lacks = func(column int) (string, []string) {
			if run.out[column].column == fromText {
				return "", nil
			}
			return rec.Lacks(run.out[column].column)
		}
	}
	return r
}

// Pass applies segment k, which is neither the first nor the last, to a batch. An error is
// about the whole batch: bad records are in what it returns.
func (w *Worker) Pass(ctx context.Context, k int, in *format.Batch) (out *format.Batch, tally Tally, err error) {
	tally, err = w.PassOn(ctx, k, in, 0, func(given *format.Batch, _ int) error {
		out = given
		return nil
	})
	return out, tally, err
}

// PassOn is Pass that gives what comes out piece by piece: a function is called again whenever it gave most bytes.
// Where the pieces end may differ from one time to the next, and all together they are what Pass returns.
func (w *Worker) PassOn(ctx context.Context, k int, in *format.Batch, most int64, give Give) (Tally, error) {
	if k%2 == 1 {
		run := &w.chain.runs[k/2]
		return run.after.pass(ctx, run, in, most, give)
	}
	out, tally, err := w.passNative(&w.chain.runs[k/2], in)
	if err == nil {
		err = give(out, 0)
	}
	return tally, err
}

// passNative applies a run between two functions to a batch.
func (w *Worker) passNative(run *native, in *format.Batch) (*format.Batch, Tally, error) {
	out, tally := &format.Batch{}, Tally{}
	var rec format.Record
	err := records(in, func(lo, hi int) error {
		kept := out
		if hi-lo > 1 { // no part is kept if one of them is bad
			kept = &format.Batch{}
		}
		for i := lo; i < hi; i++ {
			in.Record(i, &rec)
			outcome, err := w.middle(run, &rec, kept)
			if err != nil && (fault.ClassOf(err) != fault.User) {
				return err
			}
			if err != nil {
				out.Add(&format.Record{Row: rec.Row, Err: err})
				return nil
			}
			tally.add(outcome)
		}
		for i := 0; kept != out && i < kept.Len(); i++ {
			kept.Record(i, &rec)
			out.Add(&rec)
		}
		return nil
	})
	return out, tally, err
}

// middle applies a run between two functions to a part of a record. Its error of class
// fault.User makes the record bad.
func (w *Worker) middle(run *native, rec *format.Record, out *format.Batch) (Outcome, error) {
	if rec.Err != nil {
		return 0, rec.Err
	}
	keep, err := w.steps(run, rec)
	if err != nil {
		return 0, &stepError{err}
	}
	if !keep {
		return Filtered, nil
	}
	out.Add(w.given(run, rec))
	return Kept, nil
}

// End applies the last segment to a batch. It calls emit for each sample, as Apply does,
// in order, the pieces of a record counted over all of its parts; and bad for each bad
// record, whose Err is set if its reader refused it. No sample of a bad record is emitted.
func (w *Worker) End(in *format.Batch, emit func(*Sample) error, bad func(*format.Record, error) error) (tally Tally, err error) {
	run := &w.chain.runs[len(w.chain.runs)-1]
	var rec format.Record
	err = records(in, func(lo, hi int) error {
		samples := numbering{whole: hi-lo == 1, emit: emit}
		for i := lo; i < hi; i++ {
			in.Record(i, &rec)
			outcome, err := w.last(run, &rec, samples.take)
			switch {
			case err != nil && (samples.err != nil || fault.ClassOf(err) != fault.User):
				return err
			case err != nil:
				return refuse(&rec, err, bad)
			}
			tally.add(outcome)
		}
		return samples.rest()
	})
	return tally, err
}

// numbering emits the samples of a record. Those of one that has several parts wait until
// all of them are known to be good.
type numbering struct {
	whole   bool // the record has one part
	emit    func(*Sample) error
	err     error // of emit
	pieces  int32
	waiting Copies
}

func (n *numbering) take(s *Sample) error {
	s.Piece = n.pieces
	n.pieces++
	if n.whole {
		n.err = n.emit(s)
		return n.err
	}
	n.waiting.Add(s)
	return nil
}

func (n *numbering) rest() error {
	var s Sample
	for i := range n.waiting.Len() {
		n.waiting.Sample(i, &s)
		if err := n.emit(&s); err != nil {
			return err
		}
	}
	return nil
}

// last applies the last run to a part of a record.
func (w *Worker) last(run *native, rec *format.Record, emit func(*Sample) error) (Outcome, error) {
	if rec.Err != nil {
		return 0, rec.Err
	}
	keep, err := w.steps(run, rec)
	if err != nil {
		return 0, err
	}
	if !keep {
		return Filtered, nil
	}
	return w.emit(rec, emit)
}

// refuse reports a bad record. Its Err is left to what its reader says.
func refuse(rec *format.Record, err error, bad func(*format.Record, error) error) error {
	r := &format.Record{Row: rec.Row}
	if rec.Err != nil {
		if _, step := errors.AsType[*stepError](err); !step {
			r.Err = err
		}
	}
	return bad(r, err)
}

// records calls do for each record of a batch, with where its parts are.
func records(b *format.Batch, do func(lo, hi int) error) error {
	for lo, hi := 0, 0; lo < b.Len(); lo = hi {
		row, last := b.Key(lo)
		for hi = lo + 1; hi < b.Len(); hi++ {
			next, part := b.Key(hi)
			if next != row {
				break
			}
			if part <= last {
				return fmt.Errorf("row %d of a batch has part %d after part %d", row, part, last)
			}
			last = part
		}
		if err := do(lo, hi); err != nil {
			return err
		}
	}
	return nil
}

// apply is Apply of a chain with functions: the record is a batch of its own.
func (w *Worker) apply(ctx context.Context, rec *format.Record, emit func(*Sample) error) (Outcome, error) {
	batch := &format.Batch{}
	outcome, err := w.Begin(rec, batch)
	if err != nil || outcome != Kept {
		return outcome, err
	}
	var all Tally
	for k := 1; k < 2*len(w.chain.runs)-2; k++ {
		var tally Tally
		if batch, tally, err = w.Pass(ctx, k, batch); err != nil {
			return 0, err
		}
		all.Filtered += tally.Filtered
	}
	emitted := false
	tally, err := w.End(batch, func(s *Sample) error {
		emitted = true
		return emit(s)
	}, func(_ *format.Record, err error) error { return err })
	if err != nil || emitted {
		return Kept, err
	}
	return tally.outcome(), nil
}
