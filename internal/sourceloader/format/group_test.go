package format

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// chunked is a format whose file is records in memory, in some chunks.
type chunked struct {
	records []Record
	chunks  int
	err     error // that ends the last chunk
}

func (chunked) Name() string { return "chunked" }

func (c chunked) Chunks(context.Context, store.Store, store.Object, Options) (int, error) {
	return c.chunks, nil
}

func (c chunked) Open(_ context.Context, _ store.Store, _ store.Object, chunk int, _ Position, _ Options) (Reader, error) {
	lo, hi := chunk*len(c.records)/c.chunks, (chunk+1)*len(c.records)/c.chunks
	err := io.EOF
	if c.err != nil && chunk == c.chunks-1 {
		err = c.err
	}
	return &list{append([]Record(nil), c.records[lo:hi]...), err}, nil
}

// groupsOf are the records of a reader, one a line: row, key and values, or row and error.
func groupsOf(t *testing.T, f chunked, g Group, from Position, opt Options) (lines []string, ended error) {
	t.Helper()
	opt.Columns = []string{"k", "v"}
	grouped := Grouped(f, g)
	if n, _ := grouped.Chunks(t.Context(), nil, store.Object{}, opt); n != min(f.chunks, 1) {
		t.Errorf("%d chunks", n)
	}
	r, err := grouped.Open(t.Context(), nil, store.Object{}, 0, from, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		rec, err := r.Next()
		if err != nil {
			return lines, err
		}
		if rec.Err != nil {
			lines = append(lines, fmt.Sprint(rec.Row, " bad: ", rec.Err))
			continue
		}
		line := fmt.Sprint(rec.Row)
		for _, v := range rec.Values {
			if v.Kind != List {
				line += fmt.Sprintf(" %s%t", v.Bytes, v.Absent)
			}
			for _, e := range v.List {
				switch e.Kind {
				case Int:
					line += fmt.Sprintf(" %d", e.Int)
				case Null:
					line += " -"
				default:
					line += " " + string(e.Bytes)
				}
			}
		}
		lines = append(lines, line)
	}
}

func keyed(row int64, key string) Record {
	k := Value{Kind: String, Bytes: []byte(key)}
	if key == "" {
		k = Value{}
	}
	return Record{Row: row, Values: []Value{k, {Kind: Int, Int: row}}}
}

// TestGroup: neighbours of one value, or a number of them, are one record; bad records, those without a value, and groups that are too
// large are what they should be.
func TestGroup(t *testing.T) {
	bad := func(row int64) Record { return Record{Row: row, Err: fault.Userf("no JSON")} }
	file := []Record{keyed(0, "a"), keyed(1, "a"), bad(2), keyed(3, "b"), bad(4), keyed(5, "b"), bad(6), keyed(7, ""), keyed(8, ""), keyed(9, "a"), bad(10), bad(11)}
	for _, c := range []struct {
		group Group
		opt   Options
		want  string
	}{
		{Group{By: 0}, Options{}, "0 afalse 0 1/2 bad: no JSON/3 bad: a record of the group that begins at row 3 is bad: no JSON/6 bad: no JSON/7 false 7/8 false 8/9 afalse 9/10 bad: no JSON/11 bad: no JSON"},
		{Group{By: 0, Rows: 1}, Options{}, "0 afalse 0/1 afalse 1/2 bad: no JSON/3 bfalse 3/4 bad: no JSON/5 bfalse 5/6 bad: no JSON/7 false 7/8 false 8/9 afalse 9/10 bad: no JSON/11 bad: no JSON"},
		{Group{By: -1, Rows: 3}, Options{}, "0 a a b 0 1 3/2 bad: no JSON/4 bad: no JSON/5 b - - 5 7 8/6 bad: no JSON/9 a 9/10 bad: no JSON/11 bad: no JSON"},
		{Group{By: 0}, Options{MaxElements: 3}, "0 bad: it has more list elements than max_elements"},
		{Group{By: 0}, Options{MaxRecord: 70}, "0 bad: the group of 2 records that begins at row 0 is longer than max_record"},
	} {
		for chunks := 1; chunks < 6; chunks++ {
			lines, err := groupsOf(t, chunked{file, chunks, nil}, c.group, 0, c.opt)
			got := strings.Join(lines, "/")
			if err != io.EOF || !strings.HasPrefix(got, c.want) {
				t.Errorf("%+v, %d chunks: %s, %v\nwant %s", c.group, chunks, got, err, c.want)
			}
		}
	}
	torn := errors.New("the file is torn")
	if lines, err := groupsOf(t, chunked{file[:5], 2, torn}, Group{By: 0}, 0, Options{}); err != torn || len(lines) != 2 {
		t.Errorf("%q, %v: the group that the error ended is none", lines, err)
	}
}

// TestGroupAnywhere: what a group is depends on neither the chunks of a file nor where a reader begins.
func TestGroupAnywhere(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for range 50 {
		var file []Record
		row := int64(0)
		for range rng.IntN(60) {
			row += 1 + rng.Int64N(5)
			if rng.IntN(8) == 0 {
				file = append(file, Record{Row: row, Err: errors.New("bad")})
			} else {
				file = append(file, keyed(row, []string{"a", "b", ""}[rng.IntN(3)]))
			}
		}
		g := Group{By: rng.IntN(2) - 1, Rows: rng.IntN(4)}
		if g.By < 0 {
			g.Rows++
		}
		want, _ := groupsOf(t, chunked{file, 1, nil}, g, 0, Options{})
		members := 0
		for i, line := range want {
			got, _ := groupsOf(t, chunked{file, 1 + rng.IntN(7), nil}, g, Position(firstOf(line)), Options{})
			if strings.Join(got, "/") != strings.Join(want[i:], "/") {
				t.Fatalf("%+v from row %d: %q, want %q", g, firstOf(line), got, want[i:])
			}
			members += len(strings.Fields(line))
		}
		for i := 1; i < len(want); i++ {
			if firstOf(want[i]) <= firstOf(want[i-1]) {
				t.Errorf("rows do not rise: %q", want)
			}
		}
		if len(file) > 0 && members == 0 {
			t.Error("nothing came out")
		}
	}
}

func firstOf(line string) (row int64) {
	fmt.Sscan(line, &row)
	return row
}
