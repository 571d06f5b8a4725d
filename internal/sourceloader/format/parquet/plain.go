package parquet

import (
	"encoding/binary"
	"unsafe"
)

// littleEndian reports whether this machine stores a number as a file does.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// plain fills dst with the numbers at the beginning of src, which has at least as many.
func plain[T int32 | int64](dst []T, src []byte) {
	if littleEndian {
		to := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(dst))), len(dst)*int(unsafe.Sizeof(T(0))))
		copy(to, src[:len(to)])
		return
	}
	swapped(dst, src)
}

// swapped is plain on any machine.
func swapped[T int32 | int64](dst []T, src []byte) {
	for i := range dst {
		if unsafe.Sizeof(T(0)) == 4 {
			dst[i] = T(int32(binary.LittleEndian.Uint32(src[4*i:])))
		} else {
			dst[i] = T(binary.LittleEndian.Uint64(src[8*i:]))
		}
	}
}
