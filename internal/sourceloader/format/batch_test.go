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

// TestJoin: what is made of columns of two batches has their values, whether it shares
// their memory or not, and so have batches that other records are added to.
func TestJoin(t *testing.T) {
	text := func(s string) Value { return Value{Kind: String, Bytes: []byte(s)} }
	list := func(s ...string) (v Value) {
		for v.Kind = List; len(s) > 0; s = s[1:] {
			v.List = append(v.List, text(s[0]))
		}
		return v
	}
	left, right, bad := &Batch{}, &Batch{}, errors.New("a bad record")
	for i, s := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		switch i {
		case 2:
			left.Add(&Record{Row: 2, Part: 1, Err: bad})
		case 5:
			left.Add(&Record{Row: 5, Values: []Value{{Absent: true}, list()}, Lacks: func(int) (string, []string) { return "x.y", []string{"z"} }})
		default:
			left.Add(&Record{Row: int64(i), Values: []Value{text(s), list(s, s+s)}})
		}
		right.Add(&Record{Row: int64(i), Values: []Value{{Kind: Tokens, Tokens: []int32{int32(i)}}}})
	}
	good, places := left.Good([]int{1}, map[int]error{0: nil})
	if !slices.Equal(places, []int32{1, 3, 4, 5, 6, 7}) || good.Len() != 6 {
		t.Errorf("records %v are good", places)
	}
	var rec Record
	for i, want := range []Value{list("b", "bb"), list("d", "dd"), list("e", "ee")} {
		if good.Record(i, &rec); len(rec.Values) != 1 || !reflect.DeepEqual(rec.Values[0], want) {
			t.Errorf("good record %d: %+v", i, rec)
		}
	}
	for name, pairs := range map[string][][2]int{"all": {{0, 0}, {1, 1}, {3, 2}, {4, 3}, {5, 4}, {6, 5}, {7, 6}, {7, 7}}, "few": {{5, 1}, {7, 0}}, "one often": {{5, 3}, {5, 3}, {5, 4}, {5, 5}, {6, 5}}, "none": nil} {
		j := NewJoin(left, right)
		j.AddBad(1, 0, bad)
		for i, p := range pairs {
			j.Add(int64(10+i), int32(i), p[0], p[1])
		}
		b := j.Batch([]Side{{Right: true}, {Column: 1}, {Column: 0}})
		if b.Record(0, &rec); rec.Err != bad || rec.Row != 1 || b.Len() != len(pairs)+1 || b.Bytes() <= 0 {
			t.Errorf("%s: %+v", name, rec)
		}
		for i, p := range pairs {
			var l, r Record
			left.Record(p[0], &l)
			right.Record(p[1], &r)
			b.Record(i+1, &rec)
			if want := []Value{r.Values[0], l.Values[1], l.Values[0]}; !reflect.DeepEqual(rec.Values, want) || rec.Row != int64(10+i) || rec.Part != int32(i) {
				t.Errorf("%s, record %d: %+v, want %+v", name, i, rec, want)
			}
			if missing, has := rec.Lacks(2); (missing == "x.y" && slices.Equal(has, []string{"z"})) != (p[0] == 5) {
				t.Errorf("%s, record %d lacks %q of %q", name, i, missing, has)
			}
		}
		b.Add(&Record{Row: 99, Values: []Value{{}, list("new"), text("new")}})
	}
	if left.Record(7, &rec); !reflect.DeepEqual(rec.Values, []Value{text("h"), list("h", "hh")}) {
		t.Errorf("the batch has changed: %+v", rec)
	}
}

// TestTypes: the types of columns go where the columns go.
func TestTypes(t *testing.T) {
	types := []Type{{Name: "string"}, {Name: "list<struct<a: int64>>", Objects: true}}
	text := Value{Kind: String, Bytes: []byte("a")}
	var b, given Batch
	b.Add(&Record{Row: 1, Values: []Value{text, text}, Types: types})
	b.Add(&Record{Row: 2, Values: []Value{text, text}, Types: types})
	given.Add(&Record{Row: 1, Values: []Value{text}})
	good, _ := b.Good([]int{1}, nil)
	join := NewJoin(&b, &given)
	join.Add(1, 0, 0, 0)
	for i, test := range []struct {
		batch *Batch
		want  []Type
	}{
		{&b, types}, {good, types[1:]}, {join.Batch([]Side{{Column: 1}, {Right: true}, {}}), []Type{types[1], {}, types[0]}}, {&given, nil},
	} {
		var rec Record
		if test.batch.Record(0, &rec); !slices.Equal(rec.Types, test.want) {
			t.Errorf("batch %d: %v, want %v", i, rec.Types, test.want)
		}
	}
}
