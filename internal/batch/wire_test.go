package batch

import (
	"bytes"
	"encoding/binary"
	"math"
	"reflect"
	"strings"
	"testing"
)

// wired returns a tensor of two elements as it travels.
func wired(wire, dtype DType, data []byte) WireTensor {
	return WireTensor{Tensor{Name: "x", DType: dtype, Shape: []int{2}, Data: data}, wire}
}

func TestWiden(t *testing.T) {
	u16, u32, u64 := binary.LittleEndian.AppendUint16, binary.LittleEndian.AppendUint32, binary.LittleEndian.AppendUint64
	bytesOf8 := []byte{1, 255}
	bytesOf16 := u16(u16(nil, 2), 65535)
	bytesOf32 := u32(u32(nil, 1<<32-100), math.MaxInt32)
	for _, test := range []struct {
		tensor WireTensor
		want   []byte
	}{
		{wired(Uint8, Int32, bytesOf8), u32(u32(nil, 1), 255)},
		{wired(Uint8, Int64, bytesOf8), u64(u64(nil, 1), 255)},
		{wired(Uint8, Float32, bytesOf8), u32(u32(nil, math.Float32bits(1)), math.Float32bits(255))},
		{wired(Uint16, Int32, bytesOf16), u32(u32(nil, 2), 65535)},
		{wired(Uint16, Int64, bytesOf16), u64(u64(nil, 2), 65535)},
		{wired(Int32, Int64, bytesOf32), u64(u64(nil, 1<<64-100), math.MaxInt32)},
		{wired(Int32, Int32, bytesOf32), bytesOf32},
	} {
		if err := test.tensor.Check(); err != nil {
			t.Error(err)
		}
		_, got := Widen(nil, []WireTensor{test.tensor})
		if err := got[0].Check(); err != nil {
			t.Error(err)
		}
		if !bytes.Equal(got[0].Data, test.want) {
			t.Errorf("%s as %s: %x, want %x", test.tensor.Wire, test.tensor.DType, got[0].Data, test.want)
		}
	}
}

// Tensors lie aligned in the memory given, or where they were.
func TestWidenPlaces(t *testing.T) {
	tensors := []WireTensor{
		wired(Uint8, Int64, []byte{1, 2}),
		wired(Float32, Float32, make([]byte, 8)),
		wired(Int32, Int64, make([]byte, 8)),
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
		{wired(Int64, Int32, make([]byte, 16)), "int64, which does not widen to int32"},
		{wired(Int32, Float32, make([]byte, 8)), "int32, which does not widen to float32"},
		{wired(0, Int64, make([]byte, 16)), "invalid dtype 0"},
		{wired(Uint16, Int64, make([]byte, 16)), "16 bytes"},
		{wired(Int64, Int64, make([]byte, 8)), "8 bytes"},
	} {
		if err := test.tensor.Check(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s as %s: %v, want %q", test.tensor.Wire, test.tensor.DType, err, test.want)
		}
	}
}

func BenchmarkWiden(b *testing.B) {
	const n = 1 << 16
	tensors := []WireTensor{
		{Tensor{Name: "tokens", DType: Int64, Shape: []int{n}, Data: make([]byte, 4*n)}, Int32},
		{Tensor{Name: "position_ids", DType: Int64, Shape: []int{n}, Data: make([]byte, 2*n)}, Uint16},
		{Tensor{Name: "loss_mask", DType: Float32, Shape: []int{n}, Data: make([]byte, n)}, Uint8},
	}
	wide := make([]byte, 0, WideSize(tensors))
	b.SetBytes(int64(cap(wide)))
	for b.Loop() {
		Widen(wide, tensors)
	}
}
