package format

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// Group says which neighbouring records of a file become one.
type Group struct {
	By   int // the column whose value they share; -1: none
	Rows int // of a record at most; 0: all of them
}

// maxGroup bounds what one record is made of, and the bad records between two groups: more of either is a mistake in the
// spec rather than a document.
const maxGroup = 1 << 16

// Grouped returns a format whose records are made of neighbours of those of f. Where they begin and end depends on
// the file alone: it is one chunk, whatever its chunks are in f. A record has the Row of the first of those that it is made of, and a
// list of their values in each column but By; where none of them has a field, nor has it.
func Grouped(f Format, g Group) Format { return grouped{f, g} }

type grouped struct {
	Format
	group Group
}

// Chunks implements Format.
func (g grouped) Chunks(ctx context.Context, st store.Store, obj store.Object, opt Options) (int, error) {
	n, err := g.Format.Chunks(ctx, st, obj, opt)
	return min(n, 1), err
}

// Open implements Format. What comes before the position is read again: a group is known by what is before it.
func (g grouped) Open(ctx context.Context, st store.Store, obj store.Object, _ int, from Position, opt Options) (Reader, error) {
	n, err := g.Format.Chunks(ctx, st, obj, opt)
	if err != nil {
		return nil, err
	}
	open := func(chunk int) (Reader, error) { return g.Format.Open(ctx, st, obj, chunk, 0, opt) }
	return &groupReader{group: g.group, opt: opt, from: from, chunks: n, open: open, batch: &Batch{}}, nil
}

// Companions implements Companion.
func (g grouped) Companions(uri string, columns []string) []string {
	if with, ok := g.Format.(Companion); ok {
		return with.Companions(uri, columns)
	}
	return nil
}

// RowsBelow implements Rows.
func (g grouped) RowsBelow(obj store.Object) int64 { return RowsBelow(g.Format, obj) }

// InBytes implements Rows.
func (g grouped) InBytes() bool { return InBytes(g.Format) }

// groupReader reads the groups of a file.
type groupReader struct {
	group  Group
	opt    Options
	from   Position
	chunks int // that are left, with the open one
	next   int
	open   func(chunk int) (Reader, error)
	reader Reader // nil between chunks
	ended  error

	batch *Batch // the records of the group that is open
	row   int64  // of the first of them
	count int    // of them; 0: no group is open
	key   Value
	err   error    // why it is bad
	bad   []Record // that came after it
	ready []Record // to be given
}

// Next implements Reader.
func (r *groupReader) Next() (*Record, error) {
	for {
		for len(r.ready) > 0 {
			rec := &r.ready[0]
			if r.ready = r.ready[1:]; rec.Row >= int64(r.from) {
				return rec, nil
			}
		}
		if r.ended != nil {
			return nil, r.ended
		}
		rec, err := r.read()
		switch {
		case err == io.EOF:
			r.flush()
			r.ended = err
		case err != nil: // a part of a group is none
			r.ended = err
		default:
			r.add(rec)
		}
	}
}

// read returns the next record of the file.
func (r *groupReader) read() (*Record, error) {
	for {
		if r.reader == nil {
			if r.next == r.chunks {
				return nil, io.EOF
			}
			var err error
			if r.reader, err = r.open(r.next); err != nil {
				return nil, err
			}
			r.next++
		}
		rec, err := r.reader.Next()
		if err != io.EOF {
			return rec, err
		}
		err = r.reader.Close()
		if r.reader = nil; err != nil {
			return nil, err
		}
	}
}

// add puts a record into the group that is open, or ends that and begins another.
func (r *groupReader) add(rec *Record) {
	if rec.Err != nil {
		r.bad = append(r.bad, Record{Row: rec.Row, Err: rec.Err})
		if r.count == 0 || len(r.bad) == maxGroup {
			r.flush()
		}
		return
	}
	if r.count > 0 && !r.same(rec) {
		r.flush()
	}
	if r.count == 0 {
		r.row, r.batch = rec.Row, &Batch{}
		if r.group.By >= 0 {
			r.key = rec.Values[r.group.By]
			r.key.Bytes = bytes.Clone(r.key.Bytes)
		}
	}
	if r.group.By >= 0 && len(r.bad) > 0 && r.err == nil {
		r.err = fault.Userf("a record of the group that begins at row %d is bad: %w", r.row, r.bad[0].Err)
	}
	if r.group.By >= 0 {
		r.bad = r.bad[:0] // they are in the group, which is a bad record
	}
	r.count++
	if r.err == nil {
		r.batch.Add(rec)
		r.err = r.tooLarge(rec)
	}
	if r.err != nil {
		r.batch = &Batch{}
	}
	if r.group.Rows > 0 && r.count == r.group.Rows {
		r.flush()
	}
}

// same says whether a record belongs to the group that is open.
func (r *groupReader) same(rec *Record) bool {
	if r.group.By < 0 {
		return true
	}
	a, b := &r.key, &rec.Values[r.group.By]
	switch a.Kind {
	case String, Bytes:
		return a.Kind == b.Kind && bytes.Equal(a.Bytes, b.Bytes)
	case Int, Bool:
		return a.Kind == b.Kind && a.Int == b.Int
	case Float:
		return a.Kind == b.Kind && a.Float == b.Float
	}
	return false // null is no key
}

// tooLarge says what is wrong with the group and the record that was added last.
func (r *groupReader) tooLarge(rec *Record) error {
	if r.group.By >= 0 && (r.key.Kind == List || r.key.Kind == Tokens) {
		return fault.Userf("column %q, by which records are grouped, is a list: name a column of single values", r.opt.Columns[r.group.By])
	}
	switch limit := r.opt.RecordLimit(); {
	case r.batch.Bytes() > limit:
		return TooLong(limit, "the group of %d records that begins at row %d is", r.count, r.row)
	case r.count*len(rec.Values) > r.opt.ElementLimit():
		return TooMany(r.opt.ElementLimit())
	case r.count > maxGroup:
		return fault.Userf("the group that begins at row %d has more than %d records: group by another column, or say rows", r.row, maxGroup)
	}
	return nil
}

// flush ends the group that is open.
func (r *groupReader) flush() {
	if r.count > 0 {
		r.ready = append(r.ready, r.record())
	}
	r.ready, r.bad = append(r.ready, r.bad...), nil
	r.count, r.err = 0, nil
}

// record is the record of the group that is open.
func (r *groupReader) record() Record {
	if r.err != nil {
		return Record{Row: r.row, Err: r.err}
	}
	out := Record{Row: r.row}
	var rec Record
	r.batch.Record(0, &rec)
	lacks := rec.Lacks
	for c := range rec.Values {
		if c == r.group.By {
			out.Values, out.Types = append(out.Values, rec.Values[c]), append(out.Types, rec.typeOf(c))
			continue
		}
		list := Value{Kind: List}
		absent := true
		for i := range r.batch.Len() {
			v := r.batch.columns[c].value(i)
			absent = absent && v.Absent
			list.List = append(list.List, v)
		}
		if absent {
			list = Value{Absent: true}
		}
		typ := rec.typeOf(c)
		if typ.Name != "" {
			typ.Name = fmt.Sprintf("list<%s>", typ.Name)
		}
		out.Values, out.Types = append(out.Values, list), append(out.Types, typ)
	}
	if rec.Types == nil {
		out.Types = nil
	}
	out.Lacks = lacks
	return out
}

func (r *Record) typeOf(column int) Type {
	if r.Types == nil {
		return Type{}
	}
	return r.Types[column]
}

// Held implements Reader.
func (r *groupReader) Held() int64 {
	n := 2*r.batch.Bytes() + int64(len(r.bad)+len(r.ready))*errorBytes
	for i := range r.ready {
		for c := range r.ready[i].Values {
			n += ValueBytes * int64(1+len(r.ready[i].Values[c].List))
		}
	}
	if r.reader != nil {
		n += r.reader.Held()
	}
	return n
}

// Close implements Reader.
func (r *groupReader) Close() error {
	if r.reader == nil {
		return nil
	}
	err := r.reader.Close()
	r.reader = nil
	return err
}
