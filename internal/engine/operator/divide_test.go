package operator

import (
	"math/rand/v2"
	"testing"
)

// TestDivide: parts cover each file once, in order, are as many as slots can use, and neither small nor large.
func TestDivide(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		sizes []int64
		slots int
		want  int
	}{
		{nil, 8, 0},
		{[]int64{0, 10, 20}, 8, 3},
		{[]int64{64 * mib}, 4, 8},
		{[]int64{64 * mib}, 0, 2},
		{[]int64{4 * mib}, 64, 4},
		{[]int64{1 << 40}, 8, 1 << 13},
		{[]int64{48 * mib, 16 * mib}, 4, 8},
	} {
		if got := Divide(c.sizes, c.slots); len(got) != c.want {
			t.Errorf("%d over %d slots: %d parts, want %d", c.sizes, c.slots, len(got), c.want)
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		sizes := make([]int64, rng.IntN(9))
		for i := range sizes {
			sizes[i] = rng.Int64N(1 << rng.IntN(33))
		}
		file, at := 0, int64(0)
		for _, p := range Divide(sizes, rng.IntN(20)) {
			if p.File != file || p.Lo != at || p.Hi < p.Lo || p.Hi-p.Lo > mostPart {
				t.Fatalf("%d: %+v after byte %d of file %d", sizes, p, at, file)
			}
			if at = p.Hi; at == sizes[file] {
				file, at = file+1, 0
			}
		}
		if file != len(sizes) {
			t.Fatalf("%d: it ends at byte %d of file %d", sizes, at, file)
		}
	}
}
