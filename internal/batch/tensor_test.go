package batch

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
)

func TestDTypes(t *testing.T) {
	for name, size := range map[string]int{"uint8": 1, "int32": 4, "int64": 8, "float32": 4} {
		d, err := ParseDType(name)
		if err != nil || d.String() != name || d.Size() != size {
			t.Errorf("ParseDType(%q) = %s of %d bytes, %v; want %d bytes", name, d, d.Size(), err, size)
		}
	}
	if _, err := ParseDType("float16"); err == nil || !strings.Contains(err.Error(), "int64") {
		t.Errorf("ParseDType of an unknown name = %v, want an error that lists the names", err)
	}
	for _, d := range []DType{0, Float32 + 1, 255} {
		if d.Size() != 0 || !strings.HasPrefix(d.String(), "invalid dtype") {
			t.Errorf("DType(%d) = %q of %d bytes, want an invalid one", uint8(d), d, d.Size())
		}
	}
}

func TestCheck(t *testing.T) {
	for _, test := range []struct {
		name   string
		tensor Tensor
		want   string // part of the error; "" for none
	}{
		{"matrix", Tensor{Name: "x", DType: Int64, Shape: []int{2, 3}, Data: make([]byte, 48)}, ""},
		{"scalar", Tensor{Name: "x", DType: Int32, Data: make([]byte, 4)}, ""},
		{"empty", Tensor{Name: "x", DType: Int64, Shape: []int{1, 0}}, ""},
		{"short", Tensor{Name: "x", DType: Int64, Shape: []int{2, 3}, Data: make([]byte, 47)}, "47 bytes"},
		{"long", Tensor{Name: "x", DType: Uint8, Shape: []int{2}, Data: make([]byte, 3)}, "3 bytes"},
		{"no type", Tensor{Name: "x", Shape: []int{2}}, "invalid dtype 0"},
		{"negative", Tensor{Name: "x", DType: Uint8, Shape: []int{-1, -1}, Data: make([]byte, 1)}, "impossible shape"},
		{"overflow", Tensor{Name: "x", DType: Int32, Shape: []int{1 << 31, 1 << 31}}, "impossible shape"},
	} {
		err := test.tensor.Check()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: Check() = %v, want %q", test.name, err, test.want)
		}
	}
}

func TestElement(t *testing.T) {
	u32, u64 := binary.LittleEndian.AppendUint32, binary.LittleEndian.AppendUint64
	for _, test := range []struct {
		dtype DType
		data  []byte
		want  string // element 1
	}{
		{Uint8, []byte{1, 200}, "200"},
		{Int32, u32(u32(nil, 5), 1<<32-7), "-7"},
		{Int64, u64(u64(nil, 5), 1<<64-100), "-100"},
		{Float32, u32(u32(nil, 0), math.Float32bits(0.1)), "0.1"},
	} {
		if got := (Tensor{DType: test.dtype, Data: test.data}).Element(1); got != test.want {
			t.Errorf("%s: Element(1) = %s, want %s", test.dtype, got, test.want)
		}
	}
}

func TestAligned(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 64, 63: 64, 64: 64, 65: 128, 1000: 1024} {
		if got := Aligned(n); got != want {
			t.Errorf("Aligned(%d) = %d, want %d", n, got, want)
		}
	}
}
