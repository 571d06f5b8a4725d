package parquet

import "encoding/binary"

// plain32 fills dst with the numbers at the beginning of src, which has at least as many. Eight at once take a
// third of the time of one by one: what they lie in is checked once.
func plain32(dst []int32, src []byte) {
	for len(dst) >= 8 {
		from, to := (*[32]byte)(src), (*[8]int32)(dst)
		to[0] = int32(binary.LittleEndian.Uint32(from[0:]))
		to[1] = int32(binary.LittleEndian.Uint32(from[4:]))
		to[2] = int32(binary.LittleEndian.Uint32(from[8:]))
		to[3] = int32(binary.LittleEndian.Uint32(from[12:]))
		to[4] = int32(binary.LittleEndian.Uint32(from[16:]))
		to[5] = int32(binary.LittleEndian.Uint32(from[20:]))
		to[6] = int32(binary.LittleEndian.Uint32(from[24:]))
		to[7] = int32(binary.LittleEndian.Uint32(from[28:]))
		dst, src = dst[8:], src[32:]
	}
	for i := range dst {
		dst[i] = int32(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

// plain64 is plain32 for numbers of 64 bits.
func plain64(dst []int64, src []byte) {
	for len(dst) >= 4 {
		from, to := (*[32]byte)(src), (*[4]int64)(dst)
		to[0] = int64(binary.LittleEndian.Uint64(from[0:]))
		to[1] = int64(binary.LittleEndian.Uint64(from[8:]))
		to[2] = int64(binary.LittleEndian.Uint64(from[16:]))
		to[3] = int64(binary.LittleEndian.Uint64(from[24:]))
		dst, src = dst[4:], src[32:]
	}
	for i := range dst {
		dst[i] = int64(binary.LittleEndian.Uint64(src[8*i:]))
	}
}
