package batch

import (
	"fmt"
	"unsafe"
)

// WireTensor is a tensor as it travels: Data holds its elements in Wire, the
// narrowest type that has room for what a tensor of this kind can hold. A token
// id is below 2^31 and frameworks want it in 64 bits, so half of what they are
// given need not be sent. Wire is DType where nothing is to be gained.
type WireTensor struct {
	Tensor
	Wire DType
}

// Check returns an error unless types, shape and size of data agree and Widen
// can make the tensor of them.
func (w WireTensor) Check() error {
	if w.Wire == w.DType {
		return w.Tensor.Check()
	}
	if !w.Wire.widensTo(w.DType) {
		return fmt.Errorf("tensor %s travels as %s, which does not widen to %s", w.Name, w.Wire, w.DType)
	}
	if !littleEndian {
		return fmt.Errorf("tensor %s travels as %s, which only a little-endian machine widens", w.Name, w.Wire)
	}
	narrow := w.Tensor
	narrow.DType = w.Wire
	return narrow.Check()
}

// widensTo says whether every value of d is one of to, and takes less room.
func (d DType) widensTo(to DType) bool {
	switch d {
	case Uint8:
		return to == Int32 || to == Int64 || to == Float32
	case Uint16:
		return to == Int32 || to == Int64
	case Int32:
		return to == Int64
	}
	return false
}

// WideSize returns the bytes that Widen appends for tensors that passed Check, to
// data of aligned length.
func WideSize(tensors []WireTensor) int {
	size := 0
	for _, w := range tensors {
		if w.Wire != w.DType {
			size = Aligned(size) + w.wideSize()
		}
	}
	return size
}

func (w WireTensor) wideSize() int { return len(w.Data) / w.Wire.Size() * w.DType.Size() }

// Widen returns tensors, all of which passed Check, as they are delivered. Those
// that travel in their own type stay where they are; the others are appended to
// wide at aligned offsets. If wide has room for WideSize bytes beyond its aligned
// length, nothing is moved, and tensors of earlier calls go on aliasing it.
func Widen(wide []byte, tensors []WireTensor) ([]byte, []Tensor) {
	if room := Aligned(len(wide)) + WideSize(tensors); room > cap(wide) {
		wide = append(make([]byte, 0, room), wide...)
	}
	out := make([]Tensor, len(tensors))
	for i, w := range tensors {
		out[i] = w.Tensor
		if w.Wire == w.DType {
			continue
		}
		start := Aligned(len(wide))
		end := start + w.wideSize()
		wide = wide[:end]
		out[i].Data = wide[start:end:end]
		w.widen(out[i].Data)
	}
	return wide, out
}

func (w WireTensor) widen(dst []byte) {
	switch w.Wire {
	case Uint8:
		widenFrom[uint8](dst, w)
	case Uint16:
		widenFrom[uint16](dst, w)
	case Int32:
		widenFrom[int32](dst, w)
	}
}

func widenFrom[From uint8 | uint16 | int32](dst []byte, w WireTensor) {
	switch w.DType {
	case Int32:
		convert(Elements[int32](dst), Elements[From](w.Data))
	case Int64:
		convert(Elements[int64](dst), Elements[From](w.Data))
	case Float32:
		convert(Elements[float32](dst), Elements[From](w.Data))
	}
}

func convert[To int32 | int64 | float32, From uint8 | uint16 | int32](dst []To, src []From) {
	dst = dst[:len(src)]
	for i, v := range src {
		dst[i] = To(v)
	}
}

// Elements views bytes as numbers in the machine's byte order.
func Elements[T uint8 | uint16 | int32 | int64 | float32](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}
