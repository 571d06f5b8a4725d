package transform

import "testing"

func TestFirstNegative(t *testing.T) {
	for n := range 50 {
		ids := make([]int32, n)
		if got := firstNegative(ids); got != -1 {
			t.Fatalf("of %d numbers without a negative one it is %d", n, got)
		}
		for at := n - 1; at >= 0; at-- {
			ids[at] = -7
			if got := firstNegative(ids); got != at {
				t.Fatalf("of %d numbers it is %d, want %d", n, got, at)
			}
		}
	}
}

func BenchmarkFirstNegative(b *testing.B) {
	ids := make([]int32, 4096)
	b.SetBytes(4 * 4096)
	for b.Loop() {
		firstNegative(ids)
	}
}
