package parquet

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

// Numbers come out as they went in, whatever their count and wherever their bytes begin.
func TestPlain(t *testing.T) {
	draw := rand.New(rand.NewPCG(3, 5))
	for n := range 40 {
		ints, longs := make([]int32, n), make([]int64, n)
		short, long := []byte{1}, []byte{1, 2, 3}
		for i := range n {
			ints[i], longs[i] = int32(draw.Uint32()), int64(draw.Uint64())
			short, long = binary.LittleEndian.AppendUint32(short, uint32(ints[i])), binary.LittleEndian.AppendUint64(long, uint64(longs[i]))
		}
		got32, got64 := make([]int32, n), make([]int64, n)
		for i, fill := range []func(){
			func() { plain(got32, append(short[1:], 9, 9)); plain(got64, append(long[3:], 9, 9)) },
			func() { swapped(got32, short[1:]); swapped(got64, long[3:]) },
		} {
			clear(got32)
			clear(got64)
			if fill(); !slices.Equal(got32, ints) || !slices.Equal(got64, longs) {
				t.Fatalf("%d numbers, way %d: %d and %d, want %d and %d", n, i, got32, got64, ints, longs)
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
