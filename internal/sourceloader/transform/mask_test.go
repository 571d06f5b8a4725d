package transform

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/jobspec"
)

func lossMask(column string) jobspec.Transform { return jobspec.LossMask(column) }

// TestLossMask: every piece of a record has the loss that the column says, but for its first
// token, and the token that is appended has that of the one before it. Each token is looked
// at by itself.
func TestLossMask(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	masked := 0
	for range 3000 {
		limit := 1 + rng.IntN(9)
		src := jobspec.Source{
			Transforms: []jobspec.Transform{ids("t"), lossMask("m"), eod(99)},
			Long:       jobspec.Long{Rule: []string{ruleSplit, ruleTruncate}[rng.IntN(2)], Max: limit},
		}
		whole := make([]int32, 1+rng.IntN(30))
		carries := make([]int32, len(whole))
		for i := range whole {
			whole[i], carries[i] = int32(i), min(rng.Int32N(3), 1)
		}
		c := mustCompile(t, src, 9)
		samples, outcome, err := collect(c.Worker(), recordFor(c, 1, columns{"t": tokensOf(whole...), "m": maskOf(rng, carries)}))
		if err != nil || outcome != Kept {
			t.Fatal(outcome, err)
		}
		carries = append(carries, carries[len(carries)-1]) // of the end of the document
		for _, s := range samples {
			got := slices.Repeat([]int32{1}, len(s.Tokens))
			for k := 0; k < len(s.Masked); k += 2 {
				if s.Masked[k] < 1 || s.Masked[k] >= s.Masked[k+1] || k > 0 && s.Masked[k] <= s.Masked[k-1] {
					t.Fatalf("bounds %v", s.Masked)
				}
				clear(got[s.Masked[k]:s.Masked[k+1]])
			}
			masked += len(s.Masked)
			if want := carries[:len(s.Tokens)]; !slices.Equal(got[1:], want[1:]) {
				t.Fatalf("piece %d of at most %d: loss %v, want %v but for the first", s.Piece, limit, got, want)
			}
			carries = carries[len(s.Tokens):]
		}
	}
	if masked == 0 {
		t.Error("no token was without loss")
	}
}

// maskOf writes a mask in one of the ways that files have.
func maskOf(rng *rand.Rand, carries []int32) format.Value {
	var list []format.Value
	kind := rng.IntN(4)
	for _, x := range carries {
		list = append(list, []format.Value{intOf(int64(x)), boolOf(int64(x)), floatOf(float64(x)), {}}[kind])
	}
	if kind == 3 {
		return tokensOf(carries...)
	}
	return listOf(list...)
}

func TestLossMaskErrors(t *testing.T) {
	c := mustCompile(t, jobspec.Source{Transforms: []jobspec.Transform{ids("t"), lossMask("m")}}, 9)
	for name, test := range map[string]struct {
		mask format.Value
		want string
	}{
		"too short":      {tokensOf(1, 0), "a loss mask of 2 for 3 tokens"},
		"too long":       {listOf(boolOf(1), boolOf(1), boolOf(0), boolOf(0)), "a loss mask of 4 for 3 tokens"},
		"another number": {tokensOf(1, 2, 0), "element 1 of the loss mask is 2; valid are 0 (no loss) and 1"},
		"a half":         {listOf(floatOf(1), floatOf(0.5), floatOf(0)), "element 1 of the loss mask is neither 0 nor 1"},
		"null in it":     {listOf(intOf(1), intOf(1), format.Value{}), "element 2 of the loss mask"},
		"a text":         {stringOf("101"), "it is a list of 0 and 1"},
		"absent":         {format.Value{Absent: true}, `the record has no field "m"`},
	} {
		_, _, err := collect(c.Worker(), recordFor(c, 4, columns{"t": tokensOf(1, 2, 3), "m": test.mask}))
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "row 4: transforms[1].loss_mask: ") || fault.ClassOf(err) != fault.User {
			t.Errorf("%s: %v", name, err)
		}
	}
	samples, _, err := collect(c.Worker(), recordFor(c, 4, columns{"t": tokensOf(1, 2, 3), "m": {}}))
	if err != nil || len(samples) != 1 || samples[0].Masked != nil {
		t.Errorf("a mask of null: %v, %v", samples, err)
	}
}

// TestNoLoss: of which samples nothing is learned. Images take the places of markers, <begin> and <end> around them.
func TestNoLoss(t *testing.T) {
	image := func(from, to int) Image { return Image{At: int32(from), span: span{from, to}} }
	for _, c := range []struct {
		tokens int
		masked []int32
		images []Image
		want   bool
	}{
		{1, nil, nil, true}, // nothing predicts a first token
		{2, nil, nil, false},
		{5, []int32{1, 5}, nil, true},
		{5, []int32{1, 4}, nil, false},
		{5, []int32{2, 5}, nil, false},
		{9, []int32{1, 3, 4, 9}, nil, false},
		{9, []int32{6, 9}, []Image{image(0, 6)}, true},
		{9, []int32{7, 9}, []Image{image(0, 6)}, false},
		{9, []int32{1, 3, 6, 9}, []Image{image(2, 6)}, true}, // a begin without loss
		{9, []int32{1, 3, 6, 8}, []Image{image(2, 6)}, false},
		{9, nil, []Image{image(0, 4), image(4, 9)}, true},
	} {
		s := Sample{Tokens: make([]int32, c.tokens), Masked: c.masked, Images: c.images}
		if got := s.NoLoss(); got != c.want {
			t.Errorf("%d tokens, without loss %v, images %v: %v", c.tokens, c.masked, c.images, got)
		}
	}
}
