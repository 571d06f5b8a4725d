package parquet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	pqgo "github.com/parquet-go/parquet-go"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/fieldpath"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/columnar"
	"github.com/millrace-data/millrace/internal/sourceloader/format/formattest"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// sampleRow has one field of each shape that training data comes in.
type sampleRow struct {
	Text     string    `parquet:"text,zstd"`
	N        int64     `parquet:"n,delta"`
	Lang     *string   `parquet:"lang,optional,dict"`
	Image    []byte    `parquet:"image,snappy"`
	Score    float64   `parquet:"score"`
	Good     bool      `parquet:"good"`
	Tokens   []int32   `parquet:"tokens,list"`
	Wide     []int64   `parquet:"wide,list"`
	Prompt   []string  `parquet:"prompt,list"`
	Messages []message `parquet:"messages,list"`
	Meta     struct {
		Title string `parquet:"title"`
	} `parquet:"meta"`
	Tags map[string]int32 `parquet:"tags"`
}

type message struct {
	Role    string   `parquet:"role,dict"`
	Content *string  `parquet:"content,optional"`
	Calls   []string `parquet:"calls,list"`
}

// sampleRows makes rows from a seed; the same seed gives the same rows.
func sampleRows(n int) []sampleRow {
	rng := newRand(7)
	rows := make([]sampleRow, n)
	for i := range rows {
		r := &rows[i]
		r.Text, r.N = fmt.Sprintf("text %d ü", i), int64(i)*1e9
		r.Image, r.Score, r.Good = []byte{0xff, 0xd8, byte(i)}, float64(i)/4, i%3 == 0
		r.Meta.Title = strings.Repeat("t", i%5)
		if i%2 == 0 {
			r.Lang = new([]string{"de", "en"}[i/2%2])
		}
		for range rng.IntN(9) {
			r.Tokens = append(r.Tokens, rng.Int32())
			r.Wide = append(r.Wide, int64(rng.Int32N(1000)))
			r.Prompt = append(r.Prompt, fmt.Sprint(rng.IntN(100)))
		}
		for range rng.IntN(3) {
			m := message{Role: "user", Content: new("hello")}
			if rng.IntN(2) == 0 {
				m = message{Role: "tool", Calls: []string{"a", "b"}}
			}
			r.Messages = append(r.Messages, m)
		}
		r.Tags = map[string]int32{"k": int32(i)}
	}
	return rows
}

const sampleGroup = 16 // rows in a row group of a sample file

func sampleParquet(t testing.TB, n int, options ...pqgo.WriterOption) []byte {
	t.Helper()
	var b bytes.Buffer
	w := pqgo.NewGenericWriter[sampleRow](&b, append([]pqgo.WriterOption{pqgo.MaxRowsPerRowGroup(sampleGroup), pqgo.PageBufferSize(256)}, options...)...)
	if _, err := w.Write(sampleRows(n)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func pathsIn(data []byte) ([]string, error) {
	x, _, err := readIndex(bytes.NewReader(data), store.Object{Size: int64(len(data))})
	if err != nil {
		return nil, err
	}
	root, err := schemaTree(x.elements)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, p := range root.paths() {
		if _, err := fieldpath.Parse(p); err == nil {
			names = append(names, p)
		}
	}
	return names, nil
}

func TestValues(t *testing.T) {
	rows := sampleRows(50)
	for _, option := range []pqgo.WriterOption{pqgo.DataPageVersion(1), pqgo.DataPageVersion(2)} {
		st, obj := formattest.InMemory(sampleParquet(t, len(rows), option))
		for column, want := range map[string]func(r sampleRow) string{
			"text":               func(r sampleRow) string { return r.Text },
			"n":                  func(r sampleRow) string { return fmt.Sprint(r.N) },
			"image":              func(r sampleRow) string { return fmt.Sprintf("0x%x", r.Image) },
			"score":              func(r sampleRow) string { return fmt.Sprintf("%gf", r.Score) },
			"good":               func(r sampleRow) string { return fmt.Sprint(r.Good) },
			"lang":               func(r sampleRow) string { return orNull(r.Lang) },
			"tokens":             func(r sampleRow) string { return fmt.Sprintf("T%d", r.Tokens) },
			"wide":               func(r sampleRow) string { return fmt.Sprintf("T%d", r.Wide) },
			"tokens[]":           func(r sampleRow) string { return fmt.Sprint(r.Tokens) },
			"prompt":             func(r sampleRow) string { return fmt.Sprint(r.Prompt) },
			"prompt[]":           func(r sampleRow) string { return fmt.Sprint(r.Prompt) },
			"meta.title":         func(r sampleRow) string { return r.Meta.Title },
			"tags[].key":         func(r sampleRow) string { return "[k]" },
			"tags[].value":       func(r sampleRow) string { return fmt.Sprint([]int32{r.Tags["k"]}) },
			"messages[].role":    func(r sampleRow) string { return ofMessages(r, func(m message) string { return m.Role }) },
			"messages[].content": func(r sampleRow) string { return ofMessages(r, func(m message) string { return orNull(m.Content) }) },
			"messages[].calls":   func(r sampleRow) string { return ofMessages(r, func(m message) string { return fmt.Sprint(m.Calls) }) },
			"messages[].calls[]": func(r sampleRow) string { return ofMessages(r, func(m message) string { return fmt.Sprint(m.Calls) }) },
		} {
			c, err := formattest.ReadColumns(Format{}, st, obj, []string{column})
			if err != nil || len(c.Bad) > 0 {
				t.Errorf("%s: %v %v", column, err, c.Bad)
				continue
			}
			for i, r := range rows {
				if got := formattest.Show(c.Values[0][i]); got != want(r) {
					t.Errorf("%s, row %d: %s, want %s", column, i, got, want(r))
					break
				}
			}
		}
	}
}

func orNull(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

func ofMessages(r sampleRow, of func(message) string) string {
	parts := make([]string, len(r.Messages))
	for i, m := range r.Messages {
		parts[i] = of(m)
	}
	return "[" + strings.Join(parts, " ") + "]"
}

func TestColumnErrors(t *testing.T) {
	st, obj := formattest.InMemory(sampleParquet(t, 3))
	for column, want := range map[string]string{
		"txt":              `there is no column "txt"; did you mean "text"? The file has text, n, lang`,
		"nothing like it":  `there is no column "nothing like it"; the file has text, n, lang`,
		"messages.content": `"messages" is a list; write "messages[].content"`,
		"text[]":           `"text" is not a list; leave out the []`,
		"meta.title.x":     `there is no column`,
		"tags[].other":     `did you mean`,
		"":                 `a field name belongs here`,
	} {
		err := format.Read(context.Background(), Format{}, st, obj, 0, format.Options{Columns: []string{column}}, nil)
		if err == nil || !strings.Contains(err.Error(), want) || fault.ClassOf(err) != fault.User {
			t.Errorf("%q: %v, want %q", column, err, want)
		}
	}
}

func TestTokenErrors(t *testing.T) {
	type row struct {
		Wide   []int64  `parquet:"wide,list"`
		Plain  []uint32 `parquet:"plain,list"`
		Nested []struct {
			IDs []int64 `parquet:"ids,list"`
		} `parquet:"nested,list"`
	}
	var b bytes.Buffer
	w := pqgo.NewGenericWriter[row](&b)
	rows := []row{{Wide: []int64{1}, Plain: []uint32{2}}, {Wide: []int64{1 << 31}, Plain: []uint32{1 << 31}}, {Wide: []int64{-1 << 31}}}
	rows[1].Nested = append(rows[1].Nested, struct {
		IDs []int64 `parquet:"ids,list"`
	}{[]int64{5, 1 << 40}})
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	st, obj := formattest.InMemory(b.Bytes())
	for column, value := range map[string]string{"wide": "2147483648", "plain": "2147483648", "nested[].ids": "1099511627776"} {
		c, err := formattest.ReadColumns(Format{}, st, obj, []string{column})
		if err != nil || len(c.Bad) != 1 {
			t.Errorf("%s: %v %v, want one bad record", column, err, c.Bad)
			continue
		}
		for _, want := range []string{"row 1 of /file", value, column} {
			if !strings.Contains(c.Bad[0].Error(), want) {
				t.Errorf("%v: want %q in it", c.Bad[0], want)
			}
		}
	}
}

// TestProjection counts bytes: a read takes the footer and the wanted
// columns' chunks of one row group, nothing else.
func TestProjection(t *testing.T) {
	data := sampleParquet(t, 500)
	st, obj := formattest.InMemory(data)
	f, err := footerOf(bytes.NewReader(data), obj, nil, 2)
	if err != nil {
		t.Fatal(err)
	}
	root, err := schemaTree(f.elements)
	if err != nil {
		t.Fatal(err)
	}
	for _, column := range []string{"text", "tokens", "messages[].role"} {
		path, _ := fieldpath.Parse(column)
		field, err := root.resolve(column, path)
		if err != nil {
			t.Fatal(err)
		}
		metered := store.NewMetered(st)
		err = format.Read(context.Background(), Format{}, metered, obj, 2, format.Options{Columns: []string{column}}, func(*format.Record) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		want := obj.Size - f.dataEnd + f.columns[field.leaf.column].size
		if m := metered.Meter(); m.Bytes != want || m.Reads != 3 {
			t.Errorf("%s: %d bytes in %d reads, want %d in 3", column, m.Bytes, m.Reads, want)
		}
	}
}

// TestSparseMarks: a row group between two marks is found from the one before.
func TestSparseMarks(t *testing.T) {
	data := sampleParquet(t, 500)
	st, obj := formattest.InMemory(data)
	whole, buf, err := readIndex(bytes.NewReader(data), obj)
	if err != nil {
		t.Fatal(err)
	}
	n, rows := whole.groups.Len(), sampleRows(500)
	for most := 2; most < 2*n; most += 2 {
		x := &index{dataEnd: whole.dataEnd, groups: columnar.Marks{Most: most}}
		if err := x.decode(buf); err != nil || x.groups.Len() != n {
			t.Fatalf("%d row groups, want %d: %v", x.groups.Len(), n, err)
		}
		opt := format.Options{Columns: []string{"text"}, Indexes: format.NewIndexes()}
		opt.Indexes.Put(obj, x, 1)
		for group := range n {
			row := int64(group * sampleGroup)
			err := format.Read(t.Context(), Format{}, st, obj, group, opt, func(r *format.Record) error {
				if r.Row != row || string(r.Values[0].Bytes) != rows[row].Text {
					t.Errorf("row %d of group %d: %d, %q", row, group, r.Row, r.Values[0].Bytes)
				}
				row++
				return nil
			})
			if err != nil || row != int64(min((group+1)*sampleGroup, 500)) {
				t.Fatalf("%d marks: group %d of %d ends at row %d: %v", most, group, n, row, err)
			}
		}
	}
}

// TestIndexDiffers: an index that does not agree with what the file says of a row group is not used: the footer is read again.
func TestIndexDiffers(t *testing.T) {
	data := sampleParquet(t, 50)
	st, obj := formattest.InMemory(data)
	good, _, err := readIndex(bytes.NewReader(data), obj)
	if err != nil {
		t.Fatal(err)
	}
	bad := *good
	bad.groups = columnar.Marks{}
	for i := range good.groups.Len() {
		_, mark := good.groups.Near(i)
		mark.Row += int64(i)
		bad.groups.Add(mark)
	}
	opt := format.Options{Columns: []string{"text"}, Indexes: format.NewIndexes()}
	for range 2 {
		opt.Indexes.Put(obj, &bad, 1)
		row := int64(sampleGroup)
		err := format.Read(t.Context(), Format{}, st, obj, 1, opt, func(r *format.Record) error {
			if r.Row != row {
				t.Errorf("row %d is numbered %d", row, r.Row)
			}
			row++
			return nil
		})
		if err != nil || row != 2*sampleGroup || opt.Indexes.Get(obj) == any(&bad) {
			t.Errorf("the row group ends before row %d: %v", row, err)
		}
	}
}

func TestCallback(t *testing.T) {
	st, obj := formattest.InMemory(sampleParquet(t, 40))
	stop := errors.New("enough")
	err := format.Read(context.Background(), Format{}, st, obj, 0, format.Options{Columns: []string{"text"}}, func(*format.Record) error { return stop })
	if err != stop {
		t.Errorf("the callback's error came back as %v", err)
	}
	defer func() {
		if p := recover(); p != "mine" {
			t.Errorf("the callback's panic came back as %v", p)
		}
	}()
	_ = format.Read(context.Background(), Format{}, st, obj, 0, format.Options{}, func(*format.Record) error { panic("mine") })
}

func TestDecimalText(t *testing.T) {
	for _, c := range []struct {
		unscaled []byte
		scale    int
		want     string
	}{
		{[]byte{0}, 0, "0"}, {[]byte{0}, 2, "0.00"}, {[]byte{0xff}, 2, "-0.01"}, {[]byte{0x04, 0xd2}, 2, "12.34"},
		{[]byte{0xfb, 0x2e}, 2, "-12.34"}, {[]byte{0x04, 0xd2}, 6, "0.001234"}, {nil, 1, "0.0"},
		{[]byte{0x80, 0, 0, 0, 0, 0, 0, 0, 0}, 0, "-2361183241434822606848"},
	} {
		if got := columnar.DecimalText(columnar.BigEndian(c.unscaled), c.scale); got != c.want {
			t.Errorf("%x, scale %d: %s, want %s", c.unscaled, c.scale, got, c.want)
		}
	}
}
