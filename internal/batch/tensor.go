package batch

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

// Alignment is the alignment of tensors in a body: a cache line, which NumPy
// and PyTorch need for vector loads, so that tensors are viewed and never copied.
const Alignment = 64

// Aligned returns n rounded up to a multiple of Alignment. Tensors lie in a
// body in order, each at the aligned end of the one before it, so offsets
// follow from the sizes.
func Aligned(n int) int {
	return (n + Alignment - 1) &^ (Alignment - 1)
}

// DType is the type of a tensor's elements. Values are little-endian. The numbers are those of a
// [Table]; a BatchHeader and the docs use the names.
type DType uint8

// The zero DType is invalid, so that a missing one is detected.
const (
	Uint8 DType = iota + 1
	Int32
	Int64
	Float32
)

var dtypes = [...]struct {
	name string
	size int
}{
	Uint8:   {"uint8", 1},
	Int32:   {"int32", 4},
	Int64:   {"int64", 8},
	Float32: {"float32", 4},
}

// String returns the name that NumPy and PyTorch use, such as "int64".
func (d DType) String() string {
	if !d.valid() {
		return "invalid dtype " + strconv.Itoa(int(d))
	}
	return dtypes[d].name
}

// Size returns the bytes of one element, 0 for an invalid DType.
func (d DType) Size() int {
	if !d.valid() {
		return 0
	}
	return dtypes[d].size
}

func (d DType) valid() bool { return d >= Uint8 && int(d) < len(dtypes) }

// ParseDType returns the DType called name, the inverse of String.
func ParseDType(name string) (DType, error) {
	for d := Uint8; d.valid(); d++ {
		if dtypes[d].name == name {
			return d, nil
		}
	}
	return 0, fmt.Errorf("unknown dtype %q; use uint8, int32, int64 or float32", name)
}

// Tensor is a named dense tensor as a rank receives it.
type Tensor struct {
	Name  string
	DType DType
	Shape []int // empty for a scalar
	// Data holds the elements in C order, little-endian: the product of Shape
	// times DType.Size bytes. It usually aliases a larger body; the function that
	// returns a tensor documents how long it stays valid.
	Data []byte
}

// Check returns an error unless the tensor's type, shape and size of data
// agree, so that a receiver may index it without further checks.
func (t Tensor) Check() error {
	elements, err := t.elements()
	if err != nil {
		return err
	}
	if want := elements * t.DType.Size(); len(t.Data) != want {
		return fmt.Errorf("tensor %s has %d bytes, but shape %v of %s has %d", t.Name, len(t.Data), t.Shape, t.DType, want)
	}
	return nil
}

// elements returns the number of elements, if type and shape are valid.
func (t Tensor) elements() (int, error) {
	if !t.DType.valid() {
		return 0, fmt.Errorf("tensor %s has %s", t.Name, t.DType)
	}
	n := 1
	for _, d := range t.Shape {
		if d < 0 || d > 0 && n > math.MaxInt/t.DType.Size()/d {
			return 0, fmt.Errorf("tensor %s has the impossible shape %v", t.Name, t.Shape)
		}
		n *= d
	}
	return n, nil
}

// Element returns element i of a tensor that passed Check, as text for
// messages. i counts in C order and is below the number of elements.
func (t Tensor) Element(i int) string {
	at := t.Data[i*t.DType.Size():]
	switch t.DType {
	case Int32:
		return strconv.FormatInt(int64(int32(binary.LittleEndian.Uint32(at))), 10)
	case Int64:
		return strconv.FormatInt(int64(binary.LittleEndian.Uint64(at)), 10)
	case Float32:
		value := math.Float32frombits(binary.LittleEndian.Uint32(at))
		return strconv.FormatFloat(float64(value), 'g', -1, 32)
	default:
		return strconv.Itoa(int(at[0]))
	}
}
