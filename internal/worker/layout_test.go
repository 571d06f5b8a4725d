package worker

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// random makes a value of a type.
func random(r *rand.Rand, t Type) format.Value {
	if t.Nullable && r.IntN(3) == 0 {
		return format.Value{}
	}
	v := format.Value{Kind: t.Kind}
	switch t.Kind {
	case format.Int:
		v.Int = int64(r.Uint64())
	case format.Bool:
		v.Int = int64(r.IntN(2))
	case format.Float:
		v.Float = r.NormFloat64()
	case format.String:
		v.Bytes = []byte(strings.Repeat("aé三🙂", r.IntN(4)))
	case format.Bytes:
		v.Bytes = []byte{255, byte(r.IntN(256))}[:r.IntN(3)]
	case format.Tokens:
		for range r.IntN(4) {
			v.Tokens = append(v.Tokens, int32(r.Uint32()))
		}
	case format.List:
		for range r.IntN(4) {
			v.List = append(v.List, random(r, *t.Of))
		}
	}
	return v
}

var wide = []string{"string?", "bytes", "int?", "float", "bool?", "tokens?", "list<string?>", "list<list<int?>?>?", "list<tokens>", "list<bool>"}

func someTypes(t testing.TB) (all []Type) {
	for _, text := range wide {
		parsed, err := ParseType(text)
		if err != nil || parsed.String() != text {
			t.Fatalf("%s is read as %v, %v", text, parsed, err)
		}
		all = append(all, parsed)
	}
	return all
}

// encoded lays a batch of random rows out, as one of the worker's would be.
func encoded(t testing.TB, seed uint64, all []Type) (*format.Batch, []byte) {
	r := rand.New(rand.NewPCG(seed, 1))
	var records []format.Record
	for i := range 1 + r.IntN(40) {
		rec := format.Record{Row: int64(i)}
		for _, one := range all {
			rec.Values = append(rec.Values, random(r, one))
		}
		records = append(records, rec)
	}
	b := batch(records...)
	columns := b.Columns()
	memory := make([]byte, sizeOf(columns, all, 0, b.Len(), false))
	encode(memory, columns, all, 0, b.Len(), nil)
	return b, memory
}

// columnsOf are columns of these types.
func columnsOf(all []Type) (columns []Column) {
	for i, t := range all {
		columns = append(columns, Column{fmt.Sprint("column ", i), t})
	}
	return columns
}

// TestManyBools: bools of lists, of which a few bytes hold very many, are refused before they take their memory, and as what
// the function gave, not as garbage. Those of rows have the rows' own bound.
func TestManyBools(t *testing.T) {
	lists := Type{Kind: format.List, Of: &Type{Kind: format.Bool}}
	one := batch(format.Record{Values: []format.Value{{Kind: format.List, List: []format.Value{{Kind: format.Bool, Int: 1}}}}})
	memory := make([]byte, sizeOf(one.Columns(), []Type{lists}, 0, 1, false))
	encode(memory, one.Columns(), []Type{lists}, 0, 1, nil)
	node := memory[8*headWords:]
	offsets := binary.LittleEndian.Uint64(node[8*3:])
	binary.LittleEndian.PutUint32(memory[offsets+4:], mostBools+1)
	binary.LittleEndian.PutUint64(node[8*nodeWords:], mostBools+1)
	f := &Function{use: Use{Name: "m:f"}, what: Description{Out: []Column{{"mask", lists}}}}
	_, err := f.read(answer{reply: Reply{Bytes: len(memory)}}, rows{of: &call{in: texts("a")}, hi: 1}, func(int) ([]byte, error) { return memory, nil })
	want := fmt.Sprintf(`function m:f: row 0: column "mask": %d bools in lists, at most %d fit: give fewer, or bytes of eight each`, mostBools+1, mostBools)
	if err == nil || err.Error() != want || fault.ClassOf(err) != fault.User {
		t.Errorf("%v, want %s", err, want)
	}
	var records []format.Record
	for range 10_000 {
		records = append(records, format.Record{Values: []format.Value{{Kind: format.Bool, Int: 1}}})
	}
	many, all := batch(records...), []Type{{Kind: format.Bool}}
	memory = make([]byte, sizeOf(many.Columns(), all, 0, many.Len(), false))
	encode(memory, many.Columns(), all, 0, many.Len(), nil)
	if columns, _, err := decode(memory, columnsOf(all), many.Len()); err != nil || len(columns[0].Kinds) != many.Len() {
		t.Errorf("%d rows in %d bytes: %v", many.Len(), len(memory), err)
	}
}

// TestLayout: what is laid out is read back, whole and from any row to any other.
func TestLayout(t *testing.T) {
	all := someTypes(t)
	for seed := range uint64(200) {
		b, memory := encoded(t, seed, all)
		columns, from, err := decode(memory, columnsOf(all), b.Len())
		if err != nil {
			t.Fatal(err)
		}
		numbers := make([]int64, b.Len())
		for i := range numbers {
			numbers[i] = int64(i)
		}
		back := format.FromColumns(numbers, nil, columns)
		if got, want := said(back, from), said(b, from); !reflect.DeepEqual(got, want) || back.Bytes() != b.Bytes() {
			t.Fatalf("seed %d: %d bytes of %d\n%v\nwant\n%v", seed, back.Bytes(), b.Bytes(), got, want)
		}
		gaps(t, b, all)
		halves := [][]format.Column{nil, nil}
		for i, cut := range [][2]int{{0, b.Len() / 2}, {b.Len() / 2, b.Len()}} {
			part := make([]byte, sizeOf(b.Columns(), all, cut[0], cut[1], false))
			encode(part, b.Columns(), all, cut[0], cut[1], nil)
			if halves[i], _, err = decode(part, columnsOf(all), cut[1]-cut[0]); err != nil {
				t.Fatal(err)
			}
		}
		for i, c := range join(halves[0], halves[1]) {
			if row := differs(&c, &columns[i]); row >= 0 {
				t.Fatalf("seed %d: column %d of halves differs in row %d", seed, i, row)
			}
		}
	}
}

// gaps lays out a batch that lacks some records, and shares memory with one that has them.
func gaps(t *testing.T, b *format.Batch, all []Type) {
	except, columns := map[int]error{}, make([]int, len(all))
	for i := range b.Len() {
		if i%4 == 1 {
			except[i] = errGone
		}
	}
	for i := range columns {
		columns[i] = i
	}
	some, from := b.Good(columns, except)
	memory := make([]byte, sizeOf(some.Columns(), all, 0, some.Len(), false))
	encode(memory, some.Columns(), all, 0, some.Len(), nil)
	back, _, err := decode(memory, columnsOf(all), some.Len())
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]int64, some.Len())
	for i := range rows {
		rows[i], _ = some.Key(i)
	}
	if got, want := said(format.FromColumns(rows, nil, back), from), said(some, from); !reflect.DeepEqual(got, want) {
		t.Fatalf("with gaps\n%v\nwant\n%v", got, want)
	}
}

// FuzzDecode: whatever a worker wrote is an error or a batch that can be read.
func FuzzDecode(f *testing.F) {
	all := someTypes(f)
	for seed := range uint64(4) {
		_, memory := encoded(f, seed, all)
		f.Add(memory, uint16(3), uint64(1))
	}
	f.Fuzz(func(t *testing.T, memory []byte, at uint16, word uint64) {
		if int(at)*8+8 <= len(memory) {
			binary.LittleEndian.PutUint64(memory[at*8:], word)
		}
		columns, from, err := decode(memory, columnsOf(all), 100)
		if err == nil {
			_ = fmt.Sprint(said(format.FromColumns(make([]int64, len(from)), nil, columns), from))
		}
	})
}

// TestFirstBatches: where it is not known what a function of whole batches gives, the first batches are small, as it
// cannot stop within one.
func TestFirstBatches(t *testing.T) {
	const n = 1 << 10
	in := Type{Kind: format.Int}
	column := format.Column{Kinds: make([]format.Kind, n), Numbers: make([]int64, n), Sizes: make([]int32, n)}
	for i := range column.Kinds {
		column.Kinds[i] = format.Int
	}
	for _, test := range []struct {
		kind  string
		learn int // of bytes that it gave for each, 0: none
		most  int
		times int // what it may take times this is most; 0: it takes all
	}{
		{"map_batches", 0, 1 << 16, 16},
		{"map_batches", 1, 1 << 16, 0},
		{"map_batches", 100, 1 << 16, 100},
		{"map_batches", 0, 0, 0}, // what it gives is not bounded
		{"map", 0, 1 << 14, 0},
	} {
		f := &Function{env: &Environment{}, what: Description{Kind: test.kind}, in: []Type{in}}
		f.most.Store(1 << 20)
		if test.learn > 0 {
			f.growth.learn(1, test.learn)
		}
		first := f.cut(nil, rows{columns: []format.Column{column}, hi: n, most: test.most})[0]
		size := f.size(first)
		if all := first.hi == n; all != (test.times == 0) || !all && (size*test.times > test.most || 2*size*test.times < test.most) {
			t.Errorf("%s that gave %d times what it took, with room for %d: %d rows of %d bytes in a batch", test.kind, test.learn, test.most, first.hi, size)
		}
	}
}
