package parquet

import (
	"encoding/binary"

	"github.com/millrace-data/millrace/internal/fault"
)

// errRunsShort reports levels or indexes that end before the page is full.
var errRunsShort = fault.Userf("the page holds fewer levels or indexes than it claims (truncated or damaged)")

// levelTable spreads the bits of a byte over eight bytes.
var levelTable = func() (t [256]uint64) {
	for b := range t {
		for i := range 8 {
			t[b] |= uint64(b>>i&1) << (8 * i)
		}
	}
	return t
}()

// decodeRuns fills dst from the hybrid of run-length and bit-packed runs, the
// encoding of levels, dictionary indexes and booleans.
func decodeRuns[T uint8 | int32](dst []T, src []byte, width int) error {
	for n := 0; n < len(dst); {
		head, used := binary.Uvarint(src)
		if used <= 0 {
			return errRunsShort
		}
		src = src[used:]
		count := int(min(head>>1, uint64(len(dst)-n)))
		if head&1 == 0 {
			size := (width + 7) / 8
			if size > len(src) {
				return errRunsShort
			}
			var v uint32
			for i := range size {
				v |= uint32(src[i]) << (8 * i)
			}
			fill(dst[n:n+count], T(v))
			src = src[size:]
		} else {
			groups := head >> 1 // of eight values
			count = min(int(min(groups, 1<<28))*8, len(dst)-n)
			size := (count*width + 7) / 8
			if size > len(src) {
				return errRunsShort
			}
			unpackRun(dst[n:n+count], src, width)
			src = src[min(int(min(groups, 1<<28))*width, len(src)):]
		}
		n += count
	}
	return nil
}

func fill[T any](dst []T, v T) {
	if len(dst) == 0 {
		return
	}
	dst[0] = v
	for n := 1; n < len(dst); n *= 2 {
		copy(dst[n:], dst[:n])
	}
}

// unpackRun unpacks len(dst) values of width bits, lowest bit first.
func unpackRun[T uint8 | int32](dst []T, src []byte, width int) {
	if levels, ok := any(dst).([]uint8); ok && width == 1 {
		unpackBits(levels, src)
		return
	}
	mask := uint64(1)<<width - 1
	for i, bit := 0, 0; i < len(dst); i, bit = i+1, bit+width {
		dst[i] = T(load64(src, bit>>3) >> (bit & 7) & mask)
	}
}

func unpackBits(dst []uint8, src []byte) {
	i := 0
	for ; i+8 <= len(dst); i += 8 {
		binary.LittleEndian.PutUint64(dst[i:], levelTable[src[i>>3]])
	}
	for ; i < len(dst); i++ {
		dst[i] = src[i>>3] >> (i & 7) & 1
	}
}

// load64 reads eight bytes at off; those beyond the end are zero.
func load64(src []byte, off int) uint64 {
	if off+8 <= len(src) {
		return binary.LittleEndian.Uint64(src[off:])
	}
	var v uint64
	for i := off; i < len(src); i++ {
		v |= uint64(src[i]) << (8 * (i - off))
	}
	return v
}

// unpackMSB unpacks the deprecated encoding of levels, highest bit first, and
// returns the bytes it took.
func unpackMSB(dst []uint8, src []byte, width int) (int, error) {
	size := (len(dst)*width + 7) / 8
	if size > len(src) {
		return 0, errRunsShort
	}
	for i := range dst {
		var v uint8
		for bit := i * width; bit < (i+1)*width; bit++ {
			v = v<<1 | src[bit>>3]>>(7-bit&7)&1
		}
		dst[i] = v
	}
	return size, nil
}

// decodeDelta fills dst from a DELTA_BINARY_PACKED block, calling put for each
// value, and returns the bytes it took. n must be the number of values there.
func decodeDelta(src []byte, n int, put func(i int, v int64)) (int, error) {
	t := &thriftReader{buf: src} // the same variable-length numbers
	block, minis, total := t.uvarint(), t.uvarint(), t.uvarint()
	value := t.int(thriftI64)
	switch {
	case t.err != nil:
		return 0, errRunsShort
	case total != uint64(n):
		return 0, fault.Userf("the page holds %d deltas where %d belong (damaged)", total, n)
	case block == 0 || block > 1<<20 || block%128 != 0 || minis == 0 || block%minis != 0 || block/minis%32 != 0:
		return 0, fault.Userf("a delta block of %d values in %d parts is not valid (a multiple of 128, in parts of a multiple of 32)", block, minis)
	}
	per := int(block / minis)
	if n > 0 {
		put(0, value)
	}
	for i := 1; i < n; {
		least := t.int(thriftI64)
		widths := t.take(minis)
		for m := 0; m < len(widths) && i < n; m++ {
			width := int(widths[m])
			if width > 64 {
				return 0, fault.Userf("a delta of %d bits is not valid (at most 64)", width)
			}
			// Some writers cut the padding of the last part.
			need, size := (min(per, n-i)*width+7)/8, per*width/8
			packed := t.take(uint64(max(need, min(size, len(t.buf)-t.pos))))
			if t.err != nil {
				return 0, errRunsShort
			}
			for j := 0; j < per && i < n; i, j = i+1, j+1 {
				value += least + int64(unpack64(packed, j*width, width))
				put(i, value)
			}
		}
		if t.err != nil {
			return 0, errRunsShort
		}
	}
	return t.pos, nil
}

// unpack64 reads width bits, at most 64, from bit on.
func unpack64(src []byte, bit, width int) uint64 {
	if width == 0 {
		return 0
	}
	off, shift := bit>>3, bit&7
	v := load64(src, off) >> shift
	if shift+width > 64 {
		v |= uint64(src[off+8]) << (64 - shift)
	}
	return v & (^uint64(0) >> (64 - width))
}

// byteStreams writes to dst the n values of a BYTE_STREAM_SPLIT page, which has
// the first byte of all values first, then the second of all, and so on.
func byteStreams(dst, src []byte, n, width int) error {
	if n*width != len(src) {
		return fault.Userf("the page holds %d bytes in byte streams where %d belong (damaged)", len(src), n*width)
	}
	for b := range width {
		stream := src[b*n : (b+1)*n]
		for i, v := range stream {
			dst[i*width+b] = v
		}
	}
	return nil
}

// bitWidthOf is the width that a dictionary page's indexes are packed in.
func bitWidthOf(src []byte) (int, []byte, error) {
	if len(src) == 0 {
		return 0, nil, errRunsShort
	}
	if width := int(src[0]); width <= 32 {
		return width, src[1:], nil
	}
	return 0, nil, fault.Userf("indexes of %d bits are not valid (at most 32)", src[0])
}
