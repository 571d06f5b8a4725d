package planner

import "math/bits"

// appendColumn writes values, each in as many bits as the largest needs, lowest
// bit first: a byte with that number, then the bits, the last byte filled with
// zeros. The reader knows how many values there are.
func appendColumn(data []byte, values []uint64) []byte {
	var all uint64
	for _, v := range values {
		all |= v
	}
	width := bits.Len64(all)
	data = append(data, byte(width))
	at := 8 * len(data) // the next bit
	for _, v := range values {
		for b := range width {
			if at%8 == 0 {
				data = append(data, 0)
			}
			data[at/8] |= byte(v>>b&1) << (at % 8)
			at++
		}
	}
	return data
}

// columns reads what appendColumn wrote.
type columns struct {
	data  []byte
	short bool // there were too few bytes, or a width over 64
}

// next returns the next column of n values; zeros if there is none.
func (c *columns) next(n int) []uint64 {
	values := make([]uint64, n)
	if len(c.data) == 0 || c.data[0] > 64 || (n*int(c.data[0])+7)/8 > len(c.data)-1 {
		c.short = true
		return values
	}
	width := int(c.data[0])
	packed := c.data[1:]
	for i := range values {
		for b := range width {
			at := i*width + b
			values[i] |= uint64(packed[at/8]>>(at%8)&1) << b
		}
	}
	c.data = packed[(n*width+7)/8:]
	return values
}
