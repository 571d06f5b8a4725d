package batch

import (
	"encoding/hex"
	"testing"
)

// TestMaskedDigest: the digest of a row with tokens without loss, computed independently, and
// what it depends on.
func TestMaskedDigest(t *testing.T) {
	row := func(masked ...[]int32) Row { return Row{Segments: [][]int32{{1, 2, 3, 4}, {5, 6}}, Masked: masked} }
	const want = "956cde2e36a5c6315d952cefb9cbda57c1909c4e7b35bb8bb7c929281c1a575f"
	golden := RowDigest(row([]int32{1, 2, 3, 4}, []int32{1, 2}))
	if hex.EncodeToString(golden[:]) != want {
		t.Errorf("got %x, want %s", golden, want)
	}
	for _, other := range []Row{row(), row([]int32{1, 2, 3, 4}), row(nil, []int32{1, 2}), row([]int32{1, 4}, []int32{1, 2}), row([]int32{1, 2, 3, 4}, nil)} {
		if RowDigest(other) == golden {
			t.Errorf("%v has the same digest", other.Masked)
		}
	}
	if RowDigest(row(nil, nil)) != RowDigest(row()) {
		t.Error("a row that carries loss everywhere has two digests")
	}
}
