package format

import (
	"errors"
	"io"
	"reflect"
	"slices"
	"testing"
)

// list is a reader of records in memory.
type list struct {
	records []Record
	err     error // what ends it
}

func (l *list) Next() (*Record, error) {
	if len(l.records) == 0 {
		return nil, l.err
	}
	rec := l.records[0]
	l.records = l.records[1:]
	return &rec, nil
}

func (l *list) Held() int64  { return 0 }
func (l *list) Close() error { return nil }

func TestValueBytes(t *testing.T) {
	if n := reflect.TypeFor[Value]().Size(); n != ValueBytes {
		t.Errorf("a Value has %d bytes, ValueBytes says %d", n, ValueBytes)
	}
}

// TestBatch: lists in lists, absent fields and bad records come out of a batch as they
// went in, whatever comes first.
func TestBatch(t *testing.T) {
	text := func(s string) Value { return Value{Kind: String, Bytes: []byte(s)} }
	nested := Value{Kind: List, List: []Value{
		{Kind: List, List: []Value{text("a"), {Kind: Float, Float: -0.5}}}, {Kind: Tokens, Tokens: []int32{1, -1}}, {Kind: List, List: []Value{text("bc")}}, {Absent: true},
	}}
	bad := errors.New("a bad record")
	has := []string{"x", "y"}
	in := []Record{
		{Row: 3, Err: bad},
		{Row: 7, Values: []Value{text("first"), nested}},
		{Row: 8, Values: []Value{{Absent: true}, {Kind: Bool, Int: 1}}, Lacks: func(int) (string, []string) { return "a.b", has }},
		{Row: 9, Err: bad},
		{Row: 20, Values: []Value{{Kind: Int, Int: -5}, nested}},
	}
	r := NewBatchReader(&list{slices.Clone(in), io.EOF})
	b, next, err := r.ReadBatch(1 << 20)
	if err != nil || b.Len() != len(in) || next != 21 {
		t.Fatalf("%d records up to %d: %v", b.Len(), next, err)
	}
	has[0] = "changed" // the batch has its own
	var rec Record
	for i, want := range in {
		b.Record(i, &rec)
		if rec.Row != want.Row || rec.Err != want.Err || len(rec.Values) != len(want.Values) && rec.Err == nil {
			t.Fatalf("record %d: %+v, want %+v", i, rec, want)
		}
		for v := range want.Values {
			if !sameValue(rec.Values[v], want.Values[v]) {
				t.Errorf("record %d, value %d: %+v, want %+v", i, v, rec.Values[v], want.Values[v])
			}
		}
		if missing, names := rec.lacks(0); want.Lacks != nil && (missing != "a.b" || !slices.Equal(names, []string{"x", "y"})) {
			t.Errorf("record %d lacks %q of %q", i, missing, names)
		}
	}
	if _, _, err := r.ReadBatch(1); err != io.EOF {
		t.Errorf("after the last batch: %v", err)
	}
}

func (r *Record) lacks(column int) (string, []string) {
	if r.Lacks == nil {
		return "", nil
	}
	return r.Lacks(column)
}

func sameValue(a, b Value) bool {
	return a.Kind == b.Kind && a.Absent == b.Absent && a.Int == b.Int && a.Float == b.Float && string(a.Bytes) == string(b.Bytes) &&
		slices.Equal(a.Tokens, b.Tokens) && slices.EqualFunc(a.List, b.List, sameValue)
}

// TestBatchError: what was read before an error comes first.
func TestBatchError(t *testing.T) {
	failure := errors.New("damaged")
	r := NewBatchReader(&list{[]Record{{Row: 0}, {Row: 1}}, failure})
	b, next, err := r.ReadBatch(1 << 20)
	if err != nil || b.Len() != 2 || next != 2 {
		t.Errorf("%d records up to %d: %v", b.Len(), next, err)
	}
	for range 2 {
		if b, _, err := r.ReadBatch(1 << 20); b != nil || err != failure {
			t.Errorf("%v, %v", b, err)
		}
	}
}
