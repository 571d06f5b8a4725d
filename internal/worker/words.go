package worker

import (
	"bytes"
	"unsafe"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// Columns of numbers cross as they are, since memory has the order of bytes of the machines
// that Millrace runs on. What is viewed as something else here is our own, never the shared
// memory: that may lie anywhere, and change while it is read.

// viewed returns numbers as bytes.
func viewed[T int32 | int64](numbers []T) []byte {
	var one T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(numbers))), len(numbers)*int(unsafe.Sizeof(one)))
}

// copied returns a copy of bytes as numbers.
func copied[T int32 | int64](data []byte) []T {
	var one T
	if len(data) == 0 {
		return []T{}
	}
	own := append([]byte(nil), data...) // without clearing it first; a multiple of T's size lies at one
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(own))), len(own)/int(unsafe.Sizeof(one)))
}

// count returns how many kinds are this one.
func count(kinds []format.Kind, kind format.Kind) int {
	return bytes.Count(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(kinds))), len(kinds)), []byte{byte(kind)})
}

var (
	uniform  [format.List + 1]format.Shared[format.Kind]
	sizeless format.Shared[int32]
)

// kinds returns the same kind n times, read-only.
func kinds(kind format.Kind, n int) []format.Kind {
	return uniform[kind].First(n, func(int) format.Kind { return kind })
}

// zeros are the sizes of n numbers, read-only.
func zeros(n int) []int32 { return sizeless.First(n, func(int) int32 { return 0 }) }
