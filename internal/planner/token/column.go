package token

import (
	"math"
	"math/bits"
)

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

// mostPlaces bounds the decimal places of weights that are written as decimals.
const mostPlaces = 9

// appendDecimals writes numbers that are whole after a shift by a few decimal
// places, as weights that a person set are: the places, how many numbers there
// are, and the numbers. It returns false if they are others, or large.
func appendDecimals(data []byte, numbers []float64) ([]byte, bool) {
	whole := make([]uint64, len(numbers))
	for places := 0; places <= mostPlaces; places++ {
		if asWhole(whole, numbers, places) {
			data = appendColumn(data, []uint64{uint64(places)})
			data = appendColumn(data, []uint64{uint64(len(numbers))})
			return appendColumn(data, whole), true
		}
	}
	return data, false
}

// asWhole shifts numbers by some decimal places; false if what comes out is not
// whole, or would not give the same numbers back.
func asWhole(whole []uint64, numbers []float64, places int) bool {
	for i, x := range numbers {
		n := math.Round(x * math.Pow10(places))
		if n > math.MaxUint32 || n/math.Pow10(places) != x {
			return false
		}
		whole[i] = uint64(n)
	}
	return true
}

// decimals reads what appendDecimals wrote, of at most `most` numbers.
func (c *columns) decimals(most int) []float64 {
	places, n := c.next(1)[0], c.next(1)[0]
	if places > mostPlaces || n > uint64(most) {
		c.short = true
		return nil
	}
	numbers := make([]float64, n)
	for i, whole := range c.next(int(n)) {
		numbers[i] = float64(whole) / math.Pow10(int(places))
	}
	return numbers
}
