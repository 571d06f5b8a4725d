package transform

import (
	"reflect"
	"slices"
	"testing"
)

// TestCopies: copies have what samples had, whatever becomes of the memory of those, and memory for it and little beside.
func TestCopies(t *testing.T) {
	var c Copies
	var want []Sample
	tokens := make([]int32, 3*lastSlab)
	for i, n := range []int{1, 0, 5, firstSlab, firstSlab + 1, 3 * lastSlab, 2, lastSlab, 7} {
		for k := range tokens {
			tokens[k] = int32(i*1000 + k)
		}
		s := Sample{Row: int64(i), Piece: int32(i % 3), Tokens: tokens[:n]}
		if i%2 == 1 {
			s.Masked, s.Extras, s.Images = []int32{int32(i), 9}, [][]byte{{byte(i)}, nil}, []Image{{At: int32(i)}}
		}
		c.Add(&s)
		own := s
		own.Tokens, own.Masked = slices.Clone(s.Tokens), slices.Clone(s.Masked)
		if s.Extras != nil {
			own.Extras = [][]byte{{byte(i)}, nil}
			s.Extras[0][0], s.Masked[0], s.Images[0] = 77, 77, Image{}
			own.Images = []Image{{At: int32(i)}}
		}
		want = append(want, own)
	}
	clear(tokens)
	if c.Len() != len(want) {
		t.Fatalf("%d copies of %d samples", c.Len(), len(want))
	}
	var got Sample
	for i := range want {
		if c.Sample(i, &got); !reflect.DeepEqual(got, want[i]) {
			t.Errorf("sample %d is %+v, want %+v", i, got, want[i])
		}
	}

	var small Copies
	allocs := testing.AllocsPerRun(1, func() {
		small = Copies{}
		for range 100_000 {
			small.Add(&Sample{Tokens: tokens[:3]})
		}
	})
	if most := small.Bytes() * 2; allocs > 100 || int64(cap(small.samples))*copiedBytes+12*100_000 > most {
		t.Errorf("100,000 small samples are %.0f pieces of memory, of %d bytes where %d are counted", allocs, cap(small.samples)*copiedBytes, small.Bytes())
	}
}
