package parquet

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Numbers come out as they went in, whatever their count and wherever their bytes begin.
func TestPlain(t *testing.T) {
	draw := rand.New(rand.NewPCG(3, 5))
	for n := range 40 {
		want, src := make([]int32, n), []byte{1}
		for i := range n {
			want[i] = int32(draw.Uint32())
			src = binary.LittleEndian.AppendUint32(src, uint32(want[i]))
		}
		one, other := make([]int32, n), make([]int32, n)
		plain(one, append(src[1:], 9, 9))
		swapped(other, src[1:])
		if !slices.Equal(one, want) || !slices.Equal(other, want) {
			t.Fatalf("%d numbers: %d and %d, want %d", n, one, other, want)
		}
	}
}

// Long integers are token ids if all of them have 32 bits, packed or not; the first that has more is named.
func TestNarrowed(t *testing.T) {
	for _, large := range []int{-1, 0, 7, 9} {
		longs, src := make([]int64, 10), []byte(nil)
		for i := range longs {
			if longs[i] = int64(i) - 5; i >= 2 && i-2 == large {
				longs[i] = math.MaxInt32 + int64(i)
			}
			src = binary.LittleEndian.AppendUint64(src, uint64(longs[i]))
		}
		for _, v := range []valueRun{{n: 10, packed: src}, {n: 10, words64: longs}} {
			got, err := v.appendNarrowed([]int32{77}, 2, 10)
			if large < 0 || large > 7 {
				if want := []int32{77, -3, -2, -1, 0, 1, 2, 3, 4}; err != nil || !slices.Equal(got, want) {
					t.Errorf("%d, %v, want %d", got, err, want)
				}
			} else if want := strconv.Itoa(math.MaxInt32 + large + 2); err == nil || !strings.Contains(err.Error(), want) || len(got) != 1 {
				t.Errorf("%d, %v, want an error with %s", got, err, want)
			}
		}
	}
}

func BenchmarkPlain(b *testing.B) {
	dst, src := make([]int32, 4096), make([]byte, 4*4096)
	b.SetBytes(int64(len(src)))
	for b.Loop() {
		plain(dst, src)
	}
}
