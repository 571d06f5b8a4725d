package parquet

import (
	"encoding/binary"
	"math/rand/v2"
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
		plain32(got32, append(short[1:], 9, 9))
		plain64(got64, append(long[3:], 9, 9))
		for i := range n {
			if got32[i] != ints[i] || got64[i] != longs[i] {
				t.Fatalf("number %d of %d: %d and %d, want %d and %d", i, n, got32[i], got64[i], ints[i], longs[i])
			}
		}
	}
}

func BenchmarkPlain32(b *testing.B) {
	dst, src := make([]int32, 4096), make([]byte, 4*4096)
	b.SetBytes(int64(len(src)))
	for b.Loop() {
		plain32(dst, src)
	}
}
