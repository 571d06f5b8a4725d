package transform

import (
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/imaging"
	"github.com/millrace-data/millrace/internal/media/audio"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/tokenize"
	"github.com/millrace-data/millrace/internal/sourceloader/transform/filter"
)

// maxScratch is the scratch memory in bytes, for each buffer, that a Worker
// keeps between records: one huge record must not hold its memory for
// the rest of the job.
const maxScratch = 16 << 20

// Worker applies a Chain, one record at a time. It is not safe for concurrent
// use: each goroutine makes its own. Its output does not depend
// on earlier records.
type Worker struct {
	chain *Chain
	input filter.Input

	text      []byte // the current text: borrowed from the record or in buffers
	buffers   [2][]byte
	tokens    []int32
	loss      []tokenize.Part // of the text, that carry loss, after a chat step
	lossOnAll bool            // the whole text does
	roles     []string        // of the messages that the last chat step read
	masked    []int32         // bounds of the runs of tokens without loss
	piece     []int32         // those of the sample that is emitted
	prefix    []int32         // placeholders, which come before the tokens
	muted     []int32         // bounds of those of sounds, which carry no loss
	images    []Image
	placed    int     // images that samples have by now
	spare     []int32 // memory of tokens
	decoder   imaging.Decoder
	sound     audio.Decoder
	arrays    [][]byte      // by step: what it put in a column's place
	record    format.Record // a copy, if steps change its values
	extras    [][]byte
	numbers   []byte // memory of extras that are not in the record
	sample    Sample
	next      format.Record // for the next segment
	watch     func(step string, bytes int)
}

// Watch has a function called when a step of the chain has ended for a record, with the step's place in the
// whole chain (transforms[1].tokenize) and the bytes that the worker holds of the record then: its text, tokens and
// images. It is called in order, by the goroutine of the worker, until Watch is called again; nil ends it.
func (w *Worker) Watch(watch func(step string, bytes int)) { w.watch = watch }

// Roles are those of the messages of the last conversation that the worker read; nil if it read none.
func (w *Worker) Roles() []string { return w.roles }

// holds is about what the worker has of the record.
func (w *Worker) holds() int {
	n := len(w.text) + 4*(len(w.tokens)+len(w.prefix))
	for i := range w.images {
		n += len(w.images[i].Data)
	}
	return n
}

// Worker returns a new worker: scratch that grows with the longest record.
func (c *Chain) Worker() *Worker {
	return &Worker{chain: c, decoder: imaging.Decoder{Room: c.room}, sound: audio.Decoder{Room: c.room}}
}

// Apply turns rec, whose values are those of Chain.Columns, into samples and
// calls emit for each, in order of Piece. Samples have 1 to sequenceLength tokens
// and are valid during emit only, which must not call Apply of the same worker.
// rec is not changed. The outcome has no meaning with an error.
//
// rec.Err and an error of emit are returned as they are. An error about a value
// is of class fault.User, names row, step and column (the reader knows source and
// file), and precedes the first sample of the record. A record with other columns than
// the chain's is a bug. Functions are called for this record alone, until ctx ends.
func (w *Worker) Apply(ctx context.Context, rec *format.Record, emit func(*Sample) error) (Outcome, error) {
	if rec.Err != nil {
		return 0, rec.Err
	}
	run := &w.chain.runs[0]
	if len(rec.Values) != len(run.columns) {
		return 0, fmt.Errorf("row %d has %d values for %d columns", rec.Row, len(rec.Values), len(run.columns))
	}
	if run.after != nil {
		return w.apply(ctx, rec, emit)
	}
	rec = w.own(rec)
	keep, err := w.steps(run, rec)
	if err != nil {
		return 0, err
	}
	if !keep {
		return Filtered, nil
	}
	return w.emit(rec, emit)
}

// steps applies the steps of a run to a record. It reports false if one left it out.
func (w *Worker) steps(run *native, rec *format.Record) (keep bool, err error) {
	w.reset()
	for i := range run.steps {
		keep, err := run.steps[i].run(w, rec)
		if w.watch != nil {
			w.watch(run.steps[i].place, w.holds())
		}
		if err != nil {
			return false, fmt.Errorf("row %d: %s: %w", rec.Row, run.steps[i].label, run.settled(err))
		}
		if !keep {
			return false, nil
		}
	}
	return true, nil
}

func (w *Worker) reset() {
	w.text = nil
	w.tokens = reuse(w.tokens, maxScratch/4)
	w.prefix = reuse(w.prefix, maxScratch/4)
	w.masked = reuse(w.masked, maxScratch/4)
	w.piece = reuse(w.piece, maxScratch/4)
	w.muted = w.muted[:0]
	clear(w.images) // they borrow from the record
	w.images, w.placed = w.images[:0], 0
	w.spare = reuse(w.spare, maxScratch/4)
	w.extras = w.extras[:0]
	w.numbers = reuse(w.numbers, maxScratch)
	for i, b := range w.buffers {
		w.buffers[i] = reuse(b, maxScratch)
	}
}

// own returns rec, or a copy of it if there are steps that change its values.
func (w *Worker) own(rec *format.Record) *format.Record {
	if w.chain.arrays == 0 {
		return rec
	}
	values := append(w.record.Values[:0], rec.Values...)
	w.record = *rec
	w.record.Values = values
	return &w.record
}

// reuse empties s, or drops it if it is larger than limit elements.
func reuse[T any](s []T, limit int) []T {
	if cap(s) > limit {
		return nil
	}
	return s[:0]
}

// render makes the template's text the current text.
func (w *Worker) render(t *template, rec *format.Record) error {
	for i := range t.parts {
		if p := &t.parts[i]; p.column != fromText && typeOf(rec, p.column).Objects {
			return noText(rec, p)
		}
	}
	if t.single() && t.parts[0].column != fromText {
		if v := &rec.Values[t.parts[0].column]; v.Kind == format.String && len(v.Bytes) <= w.chain.maxText {
			w.text = v.Bytes
			return nil
		}
	}
	// The current text may be in buffers[0], so the new one goes into the other.
	if size := t.size(w, rec); size > w.chain.maxText {
		return format.TooLong(int64(w.chain.maxText), "the text of %d bytes is", size)
	}
	out := w.buffers[1][:0]
	for i := range t.parts {
		p := &t.parts[i]
		out = append(out, p.literal...)
		if p.column == fromText {
			if p.path != "" {
				out = append(out, w.text...)
			}
			continue
		}
		v := &rec.Values[p.column]
		if v.Absent && !p.optional {
			return absent(rec, p.column, p.path, fmt.Sprintf("write {%s?} if records may lack it", p.path))
		}
		var err error
		if out, err = appendText(out, v); err != nil {
			return inColumn(rec, p.column, p.path, err)
		}
	}
	w.buffers[0], w.buffers[1] = out, w.buffers[0]
	w.text = out
	return nil
}

// noText is the error of a text of a column of objects, of which every record has as little.
func noText(rec *format.Record, p *part) error {
	return &callError{inColumn(rec, p.column, p.path, fault.Userf("its values are groups of fields and no text: "+
		"name a field of it, such as {%s.NAME}, or {%s[].NAME} if it is a list; or make the text of a conversation by a chat step", p.path, p.path))}
}

// emit applies the long rule to the record's tokens and emits its samples.
func (w *Worker) emit(rec *format.Record, emit func(*Sample) error) (Outcome, error) {
	limit, before := w.chain.max, w.joinPrefix()
	if len(w.tokens) == 0 {
		return Empty, nil
	}
	if before > limit || w.cutAlways() {
		return TooLong, nil // placeholders without their images would be left
	}
	if len(w.tokens) > limit {
		switch w.chain.rule {
		case ruleDrop:
			return TooLong, nil
		case ruleTruncate:
			w.tokens = w.tokens[:w.end(0, limit)]
		}
	}
	tokens := w.tokens
	if err := w.keep(rec); err != nil {
		return 0, err
	}
	for at, piece := 0, int32(0); at < len(tokens); piece++ {
		end := w.end(at, limit)
		w.sample = Sample{
			Row: rec.Row, Piece: piece, Tokens: tokens[at:end:end], Masked: w.maskOf(at, end, before), Images: w.imagesIn(at, end),
		}
		if piece == 0 && len(w.extras) > 0 {
			w.sample.Extras = w.extras
		}
		if err := emit(&w.sample); err != nil {
			return 0, err
		}
		at = end
	}
	return Kept, nil
}

// keep collects the kept columns of rec.
func (w *Worker) keep(rec *format.Record) error {
	for _, k := range w.chain.keep {
		var value []byte
		var err error
		value, w.numbers, err = extra(w.numbers, &rec.Values[k.place])
		if err != nil {
			return fmt.Errorf("row %d: keep: column %q: %w", rec.Row, k.path, err)
		}
		w.extras = append(w.extras, value)
	}
	return nil
}
