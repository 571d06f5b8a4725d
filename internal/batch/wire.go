package batch

import (
	"fmt"
	"slices"
	"unsafe"
)

// Wire is the encoding of a tensor's elements on the wire. The numbers are those of a [Table].
type Wire uint8

const (
	// AsIs is the tensor's own type.
	AsIs Wire = iota
	// AsInt32 is for token ids, which are below 2^31 and which frameworks need in 64 bits.
	AsInt32
	// AsRuns is for values that follow from document boundaries: positions, masks and
	// segment numbers. Data holds a [Run] for each stretch, whatever its length.
	AsRuns
	// AsCopies is for labels, which are token ids of other places. Data is as AsRuns has it, but that the elements
	// of a run whose step is [Copied] are those of the microbatch's first tensor, from First on.
	AsCopies
)

// Copied is the step of a run of copies. The tensor that they are of travels as int32.
const Copied = 2

var wires = [...]string{AsIs: "", AsInt32: "int32", AsRuns: "runs", AsCopies: "copies"}

// String returns the name on the wire, empty for AsIs.
func (w Wire) String() string { return wires[w] }

// ParseWire returns the Wire called name, the inverse of String.
func ParseWire(name string) (Wire, error) {
	if i := slices.Index(wires[:], name); i >= 0 {
		return Wire(i), nil
	}
	return 0, fmt.Errorf("unknown wire encoding %q; use int32, runs or copies", name)
}

// Run is Length elements, each by Step (0 or 1) more than the one before it, or [Copied] ones.
type Run struct{ Length, First, Step int32 }

const runSize = int(unsafe.Sizeof(Run{}))

// WireTensor is a tensor on the wire: Data holds its elements encoded by Wire.
type WireTensor struct {
	Tensor
	Wire Wire
}

// Check returns an error unless types, shape and size of data agree and Widen
// can decode them, for which copies have to pass CheckCopies, too.
func (w WireTensor) Check() error {
	if w.Wire == AsIs {
		return w.Tensor.Check()
	}
	if w.DType != Int64 && (w.Wire == AsInt32 || w.DType != Int32 && (w.DType != Float32 || w.Wire == AsCopies)) {
		return fmt.Errorf("tensor %s travels as %s, which cannot become %s", w.Name, w.Wire, w.DType)
	}
	if !littleEndian {
		return fmt.Errorf("tensor %s travels as %s, which only a little-endian machine reads", w.Name, w.Wire)
	}
	if w.Wire == AsRuns || w.Wire == AsCopies {
		return w.checkRuns()
	}
	narrow := w.Tensor
	narrow.DType = Int32
	return narrow.Check()
}

func (w WireTensor) checkRuns() error {
	if len(w.Data)%runSize != 0 {
		return fmt.Errorf("tensor %s travels as runs of %d bytes, and has %d bytes", w.Name, runSize, len(w.Data))
	}
	elements, err := w.elements()
	if err != nil {
		return err
	}
	for _, r := range Elements[Run](w.Data) {
		steps := r.Step == 0 || r.Step == 1 || r.Step == Copied && w.Wire == AsCopies
		if r.Length < 1 || int(r.Length) > elements || !steps {
			return fmt.Errorf("tensor %s of shape %v has an impossible run: %d elements by steps of %d", w.Name, w.Shape, r.Length, r.Step)
		}
		elements -= int(r.Length)
	}
	if elements != 0 {
		return fmt.Errorf("tensor %s: the runs end %d elements before shape %v does", w.Name, elements, w.Shape)
	}
	return nil
}

// CheckCopies returns an error unless all that is copied in the tensors of a microbatch, each of which passed
// Check, is in its first one.
func CheckCopies(tensors []WireTensor) error {
	for _, w := range tensors {
		if w.Wire != AsCopies {
			continue
		}
		from := tensors[0]
		if from.Wire != AsInt32 && (from.Wire != AsIs || from.DType != Int32) {
			return fmt.Errorf("tensor %s travels as copies of %s, which does not travel as int32", w.Name, from.Name)
		}
		elements := len(from.Data) / Int32.Size()
		for _, r := range Elements[Run](w.Data) {
			if r.Step == Copied && (r.First < 0 || int(r.First) > elements-int(r.Length)) {
				return fmt.Errorf("tensor %s copies %d elements from %d on, and %s has %d", w.Name, r.Length, r.First, from.Name, elements)
			}
		}
	}
	return nil
}

// WideSize returns the bytes that Widen appends for tensors that passed Check, to
// data of aligned length.
func WideSize(tensors []WireTensor) int {
	size := 0
	for _, w := range tensors {
		if w.Wire != AsIs {
			size = Aligned(size) + w.wideSize()
		}
	}
	return size
}

func (w WireTensor) wideSize() int {
	size := w.DType.Size()
	for _, n := range w.Shape {
		size *= n
	}
	return size
}

// Widen decodes the tensors of a microbatch, which passed Check and CheckCopies. Those in their own type stay in place;
// the others are appended to
// wide at aligned offsets. If wide has room for WideSize bytes beyond its aligned
// length, nothing is moved, and tensors of earlier calls go on aliasing it.
func Widen(wide []byte, tensors []WireTensor) ([]byte, []Tensor) {
	if room := Aligned(len(wide)) + WideSize(tensors); room > cap(wide) {
		wide = append(make([]byte, 0, room), wide...)
	}
	out := make([]Tensor, len(tensors))
	for i, w := range tensors {
		out[i] = w.Tensor
		if w.Wire == AsIs {
			continue
		}
		start := Aligned(len(wide))
		end := start + w.wideSize()
		wide = wide[:end]
		out[i].Data = wide[start:end:end]
		w.widen(out[i].Data, tensors[0].Data)
	}
	return wide, out
}

// widen writes the elements of w. first is the data of the microbatch's first tensor.
func (w WireTensor) widen(dst, first []byte) {
	switch {
	case w.Wire == AsInt32:
		convert(Elements[int64](dst), Elements[int32](w.Data))
	case w.DType == Int32:
		expand(Elements[int32](dst), Elements[Run](w.Data), first)
	case w.DType == Int64:
		expand(Elements[int64](dst), Elements[Run](w.Data), first)
	case w.DType == Float32:
		expand(Elements[float32](dst), Elements[Run](w.Data), first)
	}
}

func convert[T int32 | int64 | float32](dst []T, src []int32) {
	dst = dst[:len(src)]
	for i, v := range src {
		dst[i] = T(v)
	}
}

// expand writes all elements of runs, which fill dst. What is copied is int32.
func expand[T int32 | int64 | float32](dst []T, runs []Run, copied []byte) {
	for _, r := range runs {
		part := dst[:r.Length]
		dst = dst[r.Length:]
		switch r.Step {
		case 0:
			repeat(part, T(r.First))
			continue
		case Copied:
			convert(part, Elements[int32](copied)[r.First:r.First+r.Length])
			continue
		}
		value := T(r.First)
		for i := range part {
			part[i] = value
			value++
		}
	}
}

// repeat fills dst, which is not empty, with value, twice as much with each copy.
func repeat[T any](dst []T, value T) {
	dst[0] = value
	for n := 1; n < len(dst); n *= 2 {
		copy(dst[n:], dst[:n])
	}
}

// Elements views bytes as numbers, or runs, in the machine's byte order.
func Elements[T uint8 | int32 | int64 | float32 | Run](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}

// RunBytes views runs as the bytes they travel as.
func RunBytes(runs []Run) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(runs))), len(runs)*runSize)
}
