package parquet

import (
	"encoding/binary"
	"unsafe"
)

// littleEndian reports whether this machine stores a number as a file does.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// plain fills dst with the numbers at the beginning of src, which has at least as many.
func plain(dst []int32, src []byte) {
	if littleEndian {
		to := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(dst))), 4*len(dst))
		copy(to, src[:len(to)])
		return
	}
	swapped(dst, src)
}

// swapped is plain on any machine.
func swapped(dst []int32, src []byte) {
	for i := range dst {
		dst[i] = int32(binary.LittleEndian.Uint32(src[4*i:]))
	}
}
