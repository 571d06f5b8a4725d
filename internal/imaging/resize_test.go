package imaging

import (
	"crypto/sha256"
	"encoding/hex"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestResizeIsPillows compares with what Image.resize(..., Image.BICUBIC) of Pillow
// 11.3 and 12.0 makes of pictures with values (3xx + 5yy + xy + 85c) mod 256.
func TestResizeIsPillows(t *testing.T) {
	for _, c := range []struct {
		width, height, outWidth, outHeight int
		sha                                string
	}{
		{5, 7, 28, 28, "49c67f5c8a23d3e07e6173384fd93775"},
		{100, 60, 56, 28, "b1778c009c2008ea78f5b9b53b36437b"},
		{33, 47, 33, 28, "d162518665c9fb8857e9b9493d1cd3ea"},
		{640, 3, 28, 56, "129ea5e799cd68377a0b69d728397b9e"},
		{61, 200, 280, 84, "5c03e6b413f239dc7398df89562162fb"},
		{1, 1, 28, 28, "ec3fb9b50d6f2afddc69d955f610b914"},
		{997, 251, 84, 28, "6308644d996bf3c91eb0ba58465a1a58"},
	} {
		var d Decoder
		for y := range c.height {
			for x := range c.width {
				for i := range 3 {
					d.rgb = append(d.rgb, byte(3*x*x+5*y*y+x*y+85*i))
				}
			}
		}
		d.resizeColumns(bicubic, c.width, c.height, c.outWidth)
		d.resizeRows(bicubic, c.outWidth, c.height, c.outHeight)
		sum := sha256.Sum256(d.rgb)
		if got := hex.EncodeToString(sum[:16]); got != c.sha {
			t.Errorf("%d x %d to %d x %d: %s, want %s", c.width, c.height, c.outWidth, c.outHeight, got, c.sha)
		}
	}
}

// TestWeights compares with the definition, in exact fractions.
func TestWeights(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 30 / step {
		in, out := 1+r.IntN(150), 1+r.IntN(150)
		f := bicubic.filter(in, out)
		for i, got := range f.taps {
			weights := make([]int32, in)
			copy(weights[got.first:], f.weights[got.begin:got.end])
			if want := definition(in, out, i); !slices.Equal(weights, want) {
				t.Fatalf("weights of pixel %d from %d to %d are\n%v, want\n%v", i, in, out, weights, want)
			}
		}
	}
}

// definition is the weight of each of in pixels for pixel i of out: the cubic at the
// distance of their centers, in pixels of the coarser line, divided by the sum of all.
func definition(in, out, i int) []int32 {
	scale := big.NewRat(int64(in), int64(out))
	center := new(big.Rat).Mul(big.NewRat(int64(2*i+1), 2), scale)
	if scale.Cmp(big.NewRat(1, 1)) < 0 {
		scale.SetInt64(1)
	}
	values, sum := make([]*big.Rat, in), new(big.Rat)
	for x := range in {
		at := new(big.Rat).Sub(big.NewRat(int64(2*x+1), 2), center)
		values[x] = keys(at.Quo(at.Abs(at), scale))
		sum.Add(sum, values[x])
	}
	weights := make([]int32, in)
	for x, v := range values {
		v.Quo(v, sum).Mul(v, big.NewRat(one, 1))
		text := v.FloatString(0) // rounds halves away from zero
		n, _ := new(big.Int).SetString(text, 10)
		weights[x] = int32(n.Int64())
	}
	return weights
}

// keys is Keys' cubic with a = -1/2.
func keys(t *big.Rat) *big.Rat {
	poly := func(c3, c2, c1, c0 *big.Rat) *big.Rat { // Horner
		v := new(big.Rat).Mul(c3, t)
		v.Add(v, c2).Mul(v, t).Add(v, c1).Mul(v, t)
		return v.Add(v, c0)
	}
	half := func(n int64) *big.Rat { return big.NewRat(n, 2) }
	switch {
	case t.Cmp(big.NewRat(1, 1)) < 0:
		return poly(half(3), half(-5), half(0), half(2))
	case t.Cmp(big.NewRat(2, 1)) < 0:
		return poly(half(-1), half(5), half(-8), half(4))
	}
	return new(big.Rat)
}

// TestWeightsOfLongLines checks the largest sizes, where numbers come close to 64 bits.
func TestWeightsOfLongLines(t *testing.T) {
	for _, c := range [][2]int{{115_000, 28}, {28, 115_000}, {1 << 18, 1 << 10}, {1 << 18, 1}, {65535, 65534}, {1, 163_000}} {
		f := bicubic.filter(c[0], c[1])
		for i, tap := range f.taps {
			var sum, size int64
			for _, w := range f.weights[tap.begin:tap.end] {
				sum, size = sum+int64(w), size+max(int64(w), -int64(w))
			}
			n := int64(tap.end - tap.begin)
			if sum < one-n || sum > one+n || size > 2*one || tap.first < 0 || tap.first+int(n) > c[0] {
				t.Fatalf("%v: pixel %d has %d weights from %d on, sum %d, sum of sizes %d; one is %d", c, i, n, tap.first, sum, size, one)
			}
		}
	}
}

// TestResizeRowsByBytes compares the words of addRows with plain sums.
func TestResizeRowsByBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		in, out, row := 1+r.IntN(60), 1+r.IntN(60), 1+r.IntN(40)
		f := bicubic.filter(in, out)
		src := make([]byte, in*row)
		for i := range src {
			src[i] = byte(r.IntN(2) * 255) // the largest overshoot
		}
		for _, tap := range f.taps {
			weights := f.weights[tap.begin:tap.end]
			got := make([]byte, row)
			addRows(got, src[tap.first*row:], weights)
			for x := range row {
				var sum int64
				for i, w := range weights {
					sum += int64(w) * int64(src[(tap.first+i)*row+x])
				}
				if want := byte(min(max((sum+one/2)>>weightBits, 0), 255)); got[x] != want {
					t.Fatalf("%d rows to %d, byte %d of %d: %d, want %d", in, out, x, row, got[x], want)
				}
			}
		}
	}
}
