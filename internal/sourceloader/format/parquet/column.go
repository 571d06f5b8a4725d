package parquet

import (
	"bytes"
	"context"
	"io"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/fieldpath"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/columnar"
)

// column reads one wanted column of a row group row by row. Its values
// borrow from the current page, and from scratch that the next row reuses.
// Repetition levels say where rows and lists start, definition levels how much
// of the path is there: the record assembly of Dremel (Melnik et al., VLDB
// 2010), for one path at a time. Not safe for concurrent use.
type column struct {
	field field
	limit int // elements of the lists in a row
	pages *pageReader
	page  *dataPage // nil before the first page and after the last
	at    int       // next level of the page
	value int       // next value of the page that is not null
	inRow bool      // as part of a group: the row has begun

	tokens  []int32 // scratch of Tokens values
	entries []entry
	list    []format.Value // scratch of finished lists
	kept    []byte         // bytes of values whose page is gone
}

// entry is one value of a row of nested lists, with its levels.
type entry struct {
	rep, def uint8
	value    format.Value
}

// reader reads the values of a wanted column row by row.
type reader interface {
	// next reads the value of the next row. bad says what is wrong with it if the page is
	// sound but the value is not; reading goes on after it.
	next() (v format.Value, bad, err error)
	// finish checks that nothing is left after the last row.
	finish() error
	// held is the memory of the column, in bytes.
	held() int64
	// release gives the column's memory to the next one. No value of it may be used after.
	release()
}

// limits are those of one column of a row.
type limits struct {
	elements int   // of its lists
	bytes    int64 // of the text of its groups
}

func newReader(ctx context.Context, r io.ReaderAt, f *footer, root *node, name string, limits limits) (reader, format.Type, error) {
	path, err := fieldpath.Parse(name)
	if err != nil {
		return nil, format.Type{}, err
	}
	field, err := root.resolve(name, path)
	if err != nil {
		return nil, format.Type{}, err
	}
	var typ columnar.TypeName
	field.named.typeName(&typ)
	if field.leaf == nil {
		o, err := newObjects(ctx, r, f, field, name, limits)
		return o, format.Type{Name: typ.String(), Objects: true}, err
	}
	c := spareColumns.Get().(*column)
	c.field, c.limit = field, limits.elements
	return c, format.Type{Name: typ.String()}, c.pages.open(ctx, r, f, field.leaf)
}

// load turns to the next page when the current one is used up, and reports
// whether there is one.
func (c *column) load() (bool, error) {
	if c.page != nil && c.at < c.page.n {
		return true, nil
	}
	page, err := c.pages.next()
	c.page, c.at, c.value = page, 0, 0
	return page != nil, err
}

// next implements reader.
func (c *column) next() (v format.Value, bad, err error) {
	ok, err := c.load()
	if err != nil {
		return v, nil, err
	}
	if !ok {
		return v, nil, fault.Userf("the column ends before the row group does (truncated or damaged)")
	}
	switch {
	case len(c.field.lists) == 0:
		v, bad = c.flat()
		return v, bad, nil
	case c.page.reps[c.at] != 0:
		return v, nil, fault.Userf("the column starts in the middle of a row (damaged)")
	case len(c.field.lists) == 1 && c.field.tokens:
		return c.tokenRow()
	}
	return c.nested()
}

// finish implements reader.
func (c *column) finish() error {
	more, err := c.load()
	if err == nil && more {
		err = fault.Userf("the column goes on after the last row of its row group (damaged)")
	}
	return err
}

// flat reads the value of a column outside lists.
func (c *column) flat() (format.Value, error) {
	null := !c.page.full && int(c.page.defs[c.at]) < c.field.leaf.maxDef
	c.at++
	if null {
		return format.Value{}, nil
	}
	c.value++
	return c.field.leaf.valueAt(c.page, c.value-1)
}

// rowEnd returns where the current row ends in the page.
func (c *column) rowEnd() int {
	if n := bytes.IndexByte(c.page.reps[c.at+1:], 0); n >= 0 {
		return c.at + 1 + n
	}
	return c.page.n
}

// tokenRow reads a list of integers.
func (c *column) tokenRow() (v format.Value, bad, err error) {
	leaf, hasElement := c.field.leaf, c.field.lists[0]
	if def := c.levelAt(c.at); def < hasElement {
		v.Kind = format.Tokens
		if def < hasElement-1 {
			v.Kind = format.Null
		}
		c.at++
		return v, nil, c.rowIsOver()
	}
	c.tokens = c.tokens[:0]
	for {
		end := c.rowEnd()
		n := end - c.at
		if !c.page.full {
			n = bytes.Count(c.page.defs[c.at:end], []byte{byte(leaf.maxDef)})
			if n != end-c.at && bad == nil {
				bad = columnar.ErrNullToken
			}
		}
		from := c.value
		c.at, c.value = end, c.value+n
		if bad == nil {
			c.tokens, bad = leaf.appendTokens(c.tokens, c.page, from, c.value)
		}
		more, err := c.goesOn(end)
		if err != nil || !more {
			return format.Value{Kind: format.Tokens, Tokens: c.tokens}, bad, err
		}
	}
}

// goesOn reports whether the row goes on after the level at end: in pages of
// version 1 a row may continue on the next page.
func (c *column) goesOn(end int) (bool, error) {
	if end < c.page.n {
		return false, nil
	}
	more, err := c.load()
	return more && c.page.reps[0] != 0, err
}

// rowIsOver checks that a null or empty list is all of its row.
func (c *column) rowIsOver() error {
	more := c.at < c.page.n && c.page.reps[c.at] != 0
	if !more && c.at == c.page.n {
		var err error
		if more, err = c.goesOn(c.at); err != nil {
			return err
		}
	}
	if more {
		return fault.Userf("an empty or null list has elements (damaged)")
	}
	return nil
}

func (c *column) levelAt(i int) int {
	if c.page.full {
		return c.field.leaf.maxDef
	}
	return int(c.page.defs[i])
}

// nested reads a value below one or more lists.
func (c *column) nested() (v format.Value, bad, err error) {
	c.entries, c.list, c.tokens, c.kept = c.entries[:0], c.list[:0], c.tokens[:0], c.kept[:0]
	for {
		from, end := len(c.entries), c.rowEnd()
		for ; c.at < end; c.at++ {
			e := entry{rep: c.page.reps[c.at], def: uint8(c.levelAt(c.at))}
			if int(e.def) == c.field.leaf.maxDef {
				var problem error
				if e.value, problem = c.field.leaf.valueAt(c.page, c.value); problem != nil && bad == nil {
					bad = problem
				}
				c.value++
			}
			if len(c.entries) > c.limit { // each is an element, but for the one of no list
				c.entries, bad = c.entries[:from], format.TooMany(c.limit)
			}
			c.entries = append(c.entries, e)
		}
		if end == c.page.n {
			c.keep(c.entries[from:])
		}
		more, err := c.goesOn(end)
		if err != nil {
			return v, nil, err
		}
		if !more {
			break
		}
	}
	if bad != nil {
		return v, bad, nil
	}
	v, bad, err = c.assemble(c.entries, 0)
	return v, bad, err
}

// keep copies the bytes of entries whose page is about to go.
func (c *column) keep(entries []entry) {
	for i := range entries {
		if v := &entries[i].value; len(v.Bytes) > 0 {
			from := len(c.kept)
			c.kept = append(c.kept, v.Bytes...)
			v.Bytes = c.kept[from:len(c.kept):len(c.kept)]
		}
	}
}

// assemble builds the value of entries, which share the lists above depth.
func (c *column) assemble(entries []entry, depth int) (v format.Value, bad, err error) {
	if depth == len(c.field.lists) {
		if len(entries) != 1 {
			return v, nil, fault.Userf("a value repeats where no list is (damaged)")
		}
		return entries[0].value, nil, nil
	}
	tokens := c.field.tokens && depth == len(c.field.lists)-1
	if def := int(entries[0].def); def < c.field.lists[depth] {
		switch {
		case len(entries) != 1:
			return v, nil, fault.Userf("an empty or null list has elements (damaged)")
		case def < c.field.lists[depth]-1:
		case tokens:
			v.Kind = format.Tokens
		default:
			v.Kind = format.List
		}
		return v, nil, nil
	}
	if tokens {
		return c.assembleTokens(entries)
	}
	return c.assembleList(entries, depth)
}

func (c *column) assembleTokens(entries []entry) (v format.Value, bad, err error) {
	from := len(c.tokens)
	for _, e := range entries {
		token := e.value.Int
		switch {
		case e.value.Kind != format.Int:
			return v, columnar.ErrNullToken, nil
		case token != int64(int32(token)):
			return v, columnar.TokenRange(token), nil
		}
		c.tokens = append(c.tokens, int32(token))
	}
	return format.Value{Kind: format.Tokens, Tokens: c.tokens[from:len(c.tokens):len(c.tokens)]}, nil, nil
}

func (c *column) assembleList(entries []entry, depth int) (v format.Value, bad, err error) {
	n := 1
	for _, e := range entries[1:] {
		if int(e.rep) <= depth+1 {
			n++
		}
	}
	// The elements stand together, whatever the lists below them take.
	from := len(c.list)
	if n > c.limit-from {
		return v, format.TooMany(c.limit), nil
	}
	for range n {
		c.list = append(c.list, format.Value{})
	}
	list := c.list[from : from+n : from+n]
	for i := range list {
		end := 1
		for end < len(entries) && int(entries[end].rep) > depth+1 {
			end++
		}
		if list[i], bad, err = c.assemble(entries[:end], depth+1); bad != nil || err != nil {
			return v, bad, err
		}
		entries = entries[end:]
	}
	return format.Value{Kind: format.List, List: list}, nil, nil
}
