package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

// wired returns a tensor of n elements on the wire.
func wired(wire Wire, dtype DType, n int, data []byte) WireTensor {
	return WireTensor{Tensor{Name: "x", DType: dtype, Shape: []int{n}, Data: data}, wire}
}

func runs(r ...Run) []byte { return RunBytes(r) }

// numbers returns elements of a type, from integers.
func numbers(dtype DType, values ...int64) (data []byte) {
	for _, v := range values {
		switch dtype {
		case Int64:
			data = binary.LittleEndian.AppendUint64(data, uint64(v))
		case Float32:
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(v)))
		default:
			data = binary.LittleEndian.AppendUint32(data, uint32(v))
		}
	}
	return data
}

func TestWiden(t *testing.T) {
	ids := numbers(Int32, -100, math.MaxInt32)
	stretches := runs(Run{3, 5, 1}, Run{1, 9, 0}, Run{5, 2, 0}, Run{2, 0, 1})
	for _, test := range []struct {
		tensor WireTensor
		want   []byte
	}{
		{wired(AsInt32, Int64, 2, ids), numbers(Int64, -100, math.MaxInt32)},
		{wired(AsIs, Int32, 2, ids), ids},
		{wired(AsRuns, Int64, 11, stretches), numbers(Int64, 5, 6, 7, 9, 2, 2, 2, 2, 2, 0, 1)},
		{wired(AsRuns, Int32, 11, stretches), numbers(Int32, 5, 6, 7, 9, 2, 2, 2, 2, 2, 0, 1)},
		{wired(AsRuns, Float32, 11, stretches), numbers(Float32, 5, 6, 7, 9, 2, 2, 2, 2, 2, 0, 1)},
	} {
		if err := test.tensor.Check(); err != nil {
			t.Error(err)
		}
		_, got := Widen(nil, []WireTensor{test.tensor})
		if err := got[0].Check(); err != nil {
			t.Error(err)
		}
		if !bytes.Equal(got[0].Data, test.want) {
			t.Errorf("%q as %s: %x, want %x", test.tensor.Wire, test.tensor.DType, got[0].Data, test.want)
		}
	}
}

// Copies are of the first tensor, in either type, and of nothing beyond it.
func TestCopies(t *testing.T) {
	ids, some := numbers(Int32, 4, 5, -6, 7), runs(Run{2, 2, Copied}, Run{1, -1, 0}, Run{2, 3, 1}, Run{3, 0, Copied})
	for _, first := range []WireTensor{wired(AsInt32, Int64, 4, ids), wired(AsIs, Int32, 4, ids)} {
		for _, dtype := range []DType{Int32, Int64} {
			both := []WireTensor{first, wired(AsCopies, dtype, 8, some)}
			if err := errors.Join(both[1].Check(), CheckCopies(both)); err != nil {
				t.Error(err)
			}
			if _, got := Widen(nil, both); !bytes.Equal(got[1].Data, numbers(dtype, -6, 7, -1, 3, 4, 4, 5, -6)) {
				t.Errorf("%s of %s: %x", dtype, first.DType, got[1].Data)
			}
		}
	}
	for want, both := range map[string][]WireTensor{
		"copies 3 elements from 2 on, and x has 4":  {wired(AsInt32, Int64, 4, ids), wired(AsCopies, Int64, 3, runs(Run{3, 2, Copied}))},
		"copies 3 elements from -1 on, and x has 4": {wired(AsInt32, Int64, 4, ids), wired(AsCopies, Int64, 3, runs(Run{3, -1, Copied}))},
		"does not travel as int32":                  {wired(AsIs, Float32, 4, ids), wired(AsCopies, Int64, 3, runs(Run{3, 0, Copied}))},
		"copies of x, which does not":               {wired(AsCopies, Int64, 3, runs(Run{3, 0, Copied}))},
	} {
		if err := CheckCopies(both); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Tensors are aligned in the given memory, or stay in place.
func TestWidenPlaces(t *testing.T) {
	tensors := []WireTensor{
		wired(AsRuns, Int64, 2, runs(Run{2, 1, 1})),
		wired(AsIs, Float32, 2, make([]byte, 8)),
		wired(AsInt32, Int64, 2, make([]byte, 8)),
	}
	size := WideSize(tensors)
	if want := Alignment + 16; size != want {
		t.Fatalf("WideSize = %d, want %d", size, want)
	}
	memory := bytes.Repeat([]byte{0xaa}, Alignment+size)
	wide, first := Widen(memory[:3], tensors)
	if len(wide) != len(memory) || &wide[0] != &memory[0] {
		t.Errorf("%d bytes in other memory = %v, want %d in place", len(wide), &wide[0] != &memory[0], len(memory))
	}
	if &first[0].Data[0] != &wide[Alignment] || &first[1].Data[0] != &tensors[1].Data[0] || &first[2].Data[0] != &wide[2*Alignment] {
		t.Error("a tensor is not where it belongs")
	}
	if _, again := Widen(nil, tensors); !reflect.DeepEqual(again, first) {
		t.Error("the tensors depend on the memory they are put in")
	}
}

func TestWireCheck(t *testing.T) {
	for _, test := range []struct {
		tensor WireTensor
		want   string
	}{
		{wired(AsInt32, Int32, 2, make([]byte, 8)), "as int32, which cannot become int32"},
		{wired(AsInt32, Float32, 2, make([]byte, 8)), "cannot become float32"},
		{wired(AsRuns, Uint8, 2, runs(Run{2, 0, 0})), "cannot become uint8"},
		{wired(AsRuns, 0, 2, runs(Run{2, 0, 0})), "invalid dtype 0"},
		{wired(AsInt32, Int64, 2, make([]byte, 16)), "16 bytes"},
		{wired(AsIs, Int64, 2, make([]byte, 8)), "8 bytes"},
		{wired(AsRuns, Int64, 2, make([]byte, 11)), "has 11 bytes"},
		{wired(AsRuns, Int64, 2, nil), "end 2 elements before"},
		{wired(AsRuns, Int64, 2, runs(Run{1, 0, 0})), "end 1 elements before"},
		{wired(AsRuns, Int64, 2, runs(Run{1, 0, 0}, Run{2, 0, 0})), "impossible run"},
		{wired(AsRuns, Int64, 2, runs(Run{0, 0, 0}, Run{2, 0, 0})), "impossible run"},
		{wired(AsRuns, Int64, 2, runs(Run{-1, 0, 0}, Run{2, 0, 0})), "impossible run"},
		{wired(AsRuns, Int64, 2, runs(Run{2, 0, 2})), "steps of 2"},
		{wired(AsRuns, Int64, -1, nil), "impossible shape"},
		{wired(AsCopies, Float32, 2, runs(Run{2, 0, Copied})), "cannot become float32"},
		{wired(AsCopies, Int64, 2, runs(Run{2, 0, 3})), "steps of 3"},
	} {
		if err := test.tensor.Check(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q as %s: %v, want %q", test.tensor.Wire, test.tensor.DType, err, test.want)
		}
	}
}

func TestParseWire(t *testing.T) {
	for _, w := range []Wire{AsIs, AsInt32, AsRuns, AsCopies} {
		if got, err := ParseWire(w.String()); got != w || err != nil {
			t.Errorf("%q: %v, %v", w, got, err)
		}
	}
	if _, err := ParseWire("uint16"); err == nil {
		t.Error("uint16 is not a wire encoding")
	}
}

func BenchmarkWiden(b *testing.B) {
	const n, documents = 1 << 16, 1 << 7
	var positions, mask []Run
	for range documents {
		positions = append(positions, Run{n / documents, 0, 1})
		mask = append(mask, Run{n/documents - 1, 1, 0}, Run{1, 0, 0})
	}
	tensors := []WireTensor{
		wired(AsInt32, Int64, n, make([]byte, 4*n)),
		wired(AsRuns, Int64, n, RunBytes(positions)),
		wired(AsRuns, Float32, n, RunBytes(mask)),
	}
	wide := make([]byte, 0, WideSize(tensors))
	b.SetBytes(int64(cap(wide)))
	for b.Loop() {
		Widen(wide, tensors)
	}
}
