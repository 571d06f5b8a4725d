package samples_test

import (
	"fmt"
	"testing"

	"github.com/millrace-data/millrace/internal/samples"
)

// TestChecksum: every part of a sample is part of its checksum, and so are the
// boundaries between parts.
func TestChecksum(t *testing.T) {
	type sample struct {
		at     samples.Origin
		tokens []int32
		kept   [][]byte
		images []samples.Image
		masked []int32
	}
	base := sample{samples.Origin{File: 1, Row: 2, Piece: 3}, []int32{4, 5}, [][]byte{{6}, {7}}, []samples.Image{{At: 1, H: 2, W: 3, SHA: [32]byte{4}}}, nil}
	seen := map[uint64]string{}
	add := func(name string, list ...sample) {
		var sums [2]uint64
		var c samples.Checksum
		for i := range sums { // the second time with memory that was used
			for _, s := range list {
				c.Add(s.at, s.tokens, s.kept, s.images, s.masked)
			}
			sums[i] = c.Sum()
		}
		if sums[0] != sums[1] || sums[0] == 0 {
			t.Errorf("%s: %x and then %x", name, sums[0], sums[1])
		}
		if before, ok := seen[sums[0]]; ok {
			t.Errorf("%s and %s have the same checksum", before, name)
		}
		seen[sums[0]] = name
	}
	add("nothing")
	add("the base", base)
	add("twice the base", base, base)
	for name, change := range map[string]func(*sample){
		"another file":      func(s *sample) { s.at.File++ },
		"another row":       func(s *sample) { s.at.Row++ },
		"another piece":     func(s *sample) { s.at.Piece++ },
		"another token":     func(s *sample) { s.tokens = []int32{4, 6} },
		"no token":          func(s *sample) { s.tokens = nil },
		"another value":     func(s *sample) { s.kept = [][]byte{{6}, {8}} },
		"an empty value":    func(s *sample) { s.kept = [][]byte{{6}, {}} },
		"no value":          func(s *sample) { s.kept = [][]byte{{6}, nil} },
		"values divided":    func(s *sample) { s.kept = [][]byte{{6, 7}, {}} },
		"no image":          func(s *sample) { s.images = nil },
		"another place":     func(s *sample) { s.images = []samples.Image{{At: 2, H: 2, W: 3, SHA: [32]byte{4}}} },
		"another size":      func(s *sample) { s.images = []samples.Image{{At: 1, H: 3, W: 2, SHA: [32]byte{4}}} },
		"another picture":   func(s *sample) { s.images = []samples.Image{{At: 1, H: 2, W: 3, SHA: [32]byte{5}}} },
		"more than a piece": func(s *sample) { s.tokens = make([]int32, 9000) },
		"more of it":        func(s *sample) { s.tokens = make([]int32, 9001) },
		"no loss on one":    func(s *sample) { s.masked = []int32{1, 2} },
		"no loss on two":    func(s *sample) { s.masked = []int32{1, 2, 3, 4} },
		"one token as two":  func(s *sample) { s.tokens = []int32{4, 5, 0} },
	} {
		other := base
		change(&other)
		add(name, other)
	}
}

// BenchmarkChecksum measures samples of several lengths.
func BenchmarkChecksum(b *testing.B) {
	for _, n := range []int{50, 500, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tokens, kept := make([]int32, n), [][]byte{make([]byte, 20)}
			var c samples.Checksum
			b.SetBytes(int64(4 * n))
			for b.Loop() {
				c.Add(samples.Origin{}, tokens, kept, nil, nil)
			}
		})
	}
}
