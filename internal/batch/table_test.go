package batch

import (
	"bytes"
	"encoding/hex"
	"os"
	"reflect"
	"strings"
	"testing"
)

// goldenTable is testdata/table.txt, which the Python client reads, too.
func goldenTable(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/table.txt")
	if err != nil {
		t.Fatal(err)
	}
	var digits strings.Builder
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	raw, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func origins(all ...Origin) (b []byte) {
	for _, o := range all {
		b = AppendOrigin(b, o)
	}
	return b
}

// golden is what it says.
func golden() *Table {
	tensors := func(microbatch int, tokens, mask uint64) []Placed {
		return []Placed{
			{microbatch, "tokens", Int64, AsInt32, []int{1, 3}, tokens, 12},
			{microbatch, "mask", Float32, AsRuns, []int{1, 3}, mask, 24},
		}
	}
	first := append(tensors(0, 0, 64), Placed{0, "keep.x", Uint8, AsIs, []int{5}, 128, 5})
	return &Table{
		Step: 5, Generation: 2, Body: 344, SequenceLength: 3, Rows: 9, Microbatches: 2,
		Joined: []string{"math", "codes"}, Tensors: append(first, tensors(1, 192, 320)...),
		Lines: []Line{
			{0, 7, origins(Origin{1 << 32, 2, 0, 4}, Origin{6, 1, 1, 1<<32 - 1})},
			{1, 8, origins(Origin{7, 3, 1, 0})},
		},
	}
}

func TestGoldenTable(t *testing.T) {
	raw := goldenTable(t)
	wrote, err := golden().Append([]byte("before"))
	if err != nil || !bytes.Equal(wrote, append([]byte("before"), raw...)) {
		t.Fatalf("wrote %x, %v; want %x", wrote, err, raw)
	}
	got, err := ReadTable(raw)
	if err != nil || !reflect.DeepEqual(got, golden()) {
		t.Fatalf("read %+v, %v", got, err)
	}
	if all := got.Lines[0].Documents(); len(all) != 2 || all[1] != (Origin{6, 1, 1, 1<<32 - 1}) {
		t.Fatalf("the first row is of %v", all)
	}
}

// TestTableOfNoStep: the end of the data, and a step without tensors.
func TestTableOfNoStep(t *testing.T) {
	for _, want := range []*Table{
		{Step: 9, End: true},
		{Step: 9, End: true, Topology: "tp2 cp1 dp4 pp2"},
		{Step: 1, Microbatches: 3, SequenceLength: 8, Rows: 3},
	} {
		raw, err := want.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ReadTable(raw)
		if err != nil {
			t.Fatal(err)
		}
		got.Tensors, got.Joined = nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// TestTensorsOfTable: what a table says of its tensors is checked before they are views of memory.
func TestTensorsOfTable(t *testing.T) {
	body := make([]byte, 344)
	copy(body[64:], RunBytes([]Run{{Length: 2, First: 1}, {Length: 1}}))
	table := golden()
	for i := range 3 {
		if _, err := table.Tensors[i].Tensor(body); err != nil {
			t.Error(err)
		}
	}
	short := table.Tensors[0]
	short.Size -= 4
	if _, err := short.Tensor(body); err == nil || !strings.Contains(err.Error(), "tokens") {
		t.Errorf("an impossible size: %v", err)
	}
}

func TestTablesThatCannotBe(t *testing.T) {
	for name, change := range map[string]func(*Table){
		"a dtype": func(t *Table) { t.Tensors[0].DType = 0 },
		"dims":    func(t *Table) { t.Tensors[0].Shape = make([]int, MaxDims+1) },
		"no name": func(t *Table) { t.Tensors[0].Name = "" },
		"a name":  func(t *Table) { t.Tensors[0].Name = strings.Repeat("x", 1<<16) },
		"parts":   func(t *Table) { t.Microbatches = 1 << 16 },
	} {
		table := golden()
		change(table)
		if _, err := table.Append(nil); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	raw := goldenTable(t)
	for at, to := range map[int]byte{0: 0, 3: 2, 4: 2, 24: 0, 32 + 8: 1, 32 + 12: 6, 64: 3, 66: 0, 67: 4, 70: 6, 71: 1, 96: 1, 64 + 240: 255, 64 + 263: 1, 328: 1, 336 + 7: 1, 412: 3, 416: 1, 420: 1} {
		broken := bytes.Clone(raw)
		broken[at] = to
		if got, err := ReadTable(broken); err == nil {
			t.Errorf("with byte %d changed to %d: %+v", at, to, got)
		}
	}
	for n := range raw {
		if _, err := ReadTable(raw[:n]); err == nil {
			t.Errorf("%d bytes of it were taken", n)
		}
	}
}

// FuzzTable: whatever is read, is written and read as the same, and its tensors lie in its body.
func FuzzTable(f *testing.F) {
	f.Add(goldenTable(f))
	end, err := (&Table{Step: 3, End: true, Topology: "dp2"}).Append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(end)
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := ReadTable(raw)
		if err != nil {
			return
		}
		if got.Body <= 1<<16 {
			body := make([]byte, got.Body)
			for _, p := range got.Tensors {
				_, _ = p.Tensor(body)
			}
		}
		wrote, err := got.Append(nil)
		if err != nil {
			return // a name is empty
		}
		again, err := ReadTable(wrote)
		if err != nil || !reflect.DeepEqual(got, again) {
			t.Fatalf("%+v became %+v, %v", got, again, err)
		}
	})
}

func BenchmarkTable(b *testing.B) {
	table := golden()
	for m := 2; m < 16; m++ {
		for _, p := range table.Tensors[3:5] {
			p.Microbatch = m
			table.Tensors = append(table.Tensors, p)
		}
	}
	table.Microbatches = 16
	var raw []byte
	b.ReportAllocs()
	for b.Loop() {
		raw, _ = table.Append(raw[:0])
		if _, err := ReadTable(raw); err != nil {
			b.Fatal(err)
		}
	}
}
