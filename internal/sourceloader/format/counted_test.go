package format

import "testing"

// TestOrdinals: shared numbers are right at each length, and what is appended is not shared.
func TestOrdinals(t *testing.T) {
	for _, n := range []int{0, 1, 1 << 10, 1<<10 + 1, maxShared, maxShared + 1, 5} {
		got := Ordinals(n)
		if len(got) != n || cap(got) != n || n > 0 && (got[0] != 0 || got[n-1] != int32(n-1)) {
			t.Fatalf("%d numbers of %d", len(got), n)
		}
		_ = append(got, -1)
	}
	if got := Ordinals(6); got[5] != 5 {
		t.Errorf("the number after 4 is %d", got[5])
	}
}
