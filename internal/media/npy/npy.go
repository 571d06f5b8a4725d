// Package npy writes arrays as NumPy's .npy files: a header that says type and shape, then
// the values. Any client of a batch can read what a kept column holds in this form, with
// numpy.load or by hand.
//
// It owns the header's bytes. It never reads an array, and knows nothing of what is in one.
package npy

import (
	"fmt"
	"strings"
)

// The types of values, all little-endian.
const (
	Uint8   = "|u1"
	Int16   = "<i2"
	Float32 = "<f4"
)

// align is what the length of a header is a multiple of.
const align = 64

// AppendHeader appends the header of an array in C order to dst: version 1.0 of the
// format, as NumPy writes it (numpy.lib.format). Shape has at least one side.
func AppendHeader(dst []byte, kind string, shape ...int) []byte {
	var sides strings.Builder
	for i, n := range shape {
		if i > 0 {
			sides.WriteString(", ")
		}
		fmt.Fprint(&sides, n)
	}
	if len(shape) == 1 {
		sides.WriteString(",")
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", kind, &sides)
	const before = 10 // magic, version, length
	length := (before+len(text)+align)/align*align - before
	dst = append(dst, "\x93NUMPY\x01\x00"...)
	dst = append(dst, byte(length), byte(length>>8))
	dst = append(dst, text...)
	for range length - len(text) - 1 {
		dst = append(dst, ' ')
	}
	return append(dst, '\n')
}
