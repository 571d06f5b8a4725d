package balance_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/balance"
)

// widthsOf returns the tokens and the width of each row, and checks that widths add up.
func widthsOf(t testing.TB, lengths, row []int32, w balance.Wide) (tokens []int64, widths []int32) {
	t.Helper()
	tokens = make([]int64, w.Units)
	for i, r := range row {
		if r >= 0 {
			tokens[r] += int64(lengths[i])
		}
	}
	units := 0
	for _, n := range tokens {
		if units < w.Units {
			widths = append(widths, w.Width(n))
			units += int(w.Width(n))
		}
	}
	if units != w.Units {
		t.Fatalf("rows have %d units, want %d", units, w.Units)
	}
	for r, n := range tokens {
		if r >= len(widths) && n > 0 || r < len(widths) && n > int64(widths[r])*int64(w.Capacity) || r < len(widths) && widths[r] > w.Widest {
			t.Fatalf("row %d of %d has %d tokens; the widest may be %d", r, len(widths), n, w.Widest)
		}
	}
	return tokens, widths
}

// TestWidePackLaws: items keep within their rows, a giant is the only one of its row
// and the row no wider than it needs, few are left over, and what is first is not
// given back.
func TestWidePackLaws(t *testing.T) {
	rng := rand.New(rand.NewPCG(51, 52))
	var p balance.WidePacker // one for all, so that stale scratch would show
	for round := range 2000 {
		w := balance.Wide{Capacity: 1 + rng.Int32N(300), Widest: 1 << rng.IntN(5)}
		w.Units = int(w.Widest) + rng.IntN(60)
		lengths := anyLengths(rng, rng.IntN(400), w.Capacity)
		for i := range lengths {
			if rng.IntN(8) == 0 {
				lengths[i] = 1 + rng.Int32N(w.Capacity*w.Widest)
			}
		}
		first, leave := rng.IntN(min(len(lengths), 33)+1), 32
		row, n, err := p.Pack(lengths, first, w, leave)
		if err != nil {
			t.Fatal(err)
		}
		if n < first || len(row) != n {
			t.Fatalf("%d items kept of %d, %d rows; %d are first", n, len(lengths), len(row), first)
		}
		checkGiants(t, lengths[:n], row, w)
		left := 0
		for _, r := range row {
			if r == balance.Unplaced {
				left++
			}
		}
		if left > leave && n > first {
			t.Fatalf("round %d: %d items left over, %d of them first", round, left, first)
		}
		var fresh balance.WidePacker
		if again, m, err := fresh.Pack(lengths, first, w, leave); err != nil || m != n || !slices.Equal(again, row) {
			t.Fatalf("another WidePacker has another result (error %v)", err)
		}
	}
}

func checkGiants(t *testing.T, lengths, row []int32, w balance.Wide) {
	t.Helper()
	_, widths := widthsOf(t, lengths, row, w)
	giants := map[int32]bool{}
	admission := balance.Admission{Wide: w}
	for i, n := range lengths {
		admitted := admission.Admit(n)
		if n <= w.Capacity {
			continue
		}
		r := row[i]
		if admitted != (r >= 0) {
			t.Fatalf("item %d of %d tokens has row %d; admitted %v", i, n, r, admitted)
		}
		if r >= 0 && (giants[r] || widths[r] != w.Width(int64(n))) {
			t.Fatalf("item %d of %d tokens is in row %d of width %d, want %d", i, n, r, widths[r], w.Width(int64(n)))
		}
		giants[r] = r >= 0
	}
	for r, width := range widths {
		if width > 1 && !giants[int32(r)] {
			t.Fatalf("row %d has width %d and no giant", r, width)
		}
	}
}

// TestWidePackWithoutGiants is Pack.
func TestWidePackWithoutGiants(t *testing.T) {
	rng := rand.New(rand.NewPCG(53, 54))
	for range 300 {
		lengths := anyLengths(rng, 1+rng.IntN(300), 500)
		first := rng.IntN(min(len(lengths), 33))
		w := balance.Wide{Capacity: 500, Widest: 4, Units: 4 + rng.IntN(40)}
		var p balance.Packer
		want, m, err := p.Pack(lengths, first, 500, w.Units, 32)
		if err != nil {
			t.Fatal(err)
		}
		var wide balance.WidePacker
		if got, n, err := wide.Pack(lengths, first, w, 32); err != nil || n != m || !slices.Equal(got, want[:m]) {
			t.Fatalf("%d of %d items: %v, want %d: %v (error %v)", n, len(lengths), got, m, want, err)
		}
	}
}

// TestWidePackFills streams a mix of short samples and giants through steps, as a
// planner does: rows are full but for little, and no giant waits for long.
func TestWidePackFills(t *testing.T) {
	rng := rand.New(rand.NewPCG(55, 56))
	w := balance.Wide{Capacity: 4096, Widest: 8, Units: 64}
	var p balance.WidePacker
	var carry []int32
	var waited []int // steps that each of them waited
	longest, placed, steps := 0, int64(0), 200
	for range steps {
		admission := balance.Admission{Wide: w}
		pool, waits := slices.Clone(carry), waited
		for _, n := range pool {
			admission.Admit(n)
		}
		for admission.Tokens < int64(w.Units+2)*int64(w.Capacity) {
			n := 1 + rng.Int32N(1500)
			if rng.IntN(60) == 0 {
				n = 4097 + rng.Int32N(28000)
			}
			admission.Admit(n)
			pool, waits = append(pool, n), append(waits, 0)
		}
		row, n, err := p.Pack(pool, len(carry), w, 32)
		if err != nil {
			t.Fatal(err)
		}
		carry, waited = nil, nil
		for i, r := range row[:n] {
			if r >= 0 {
				placed += int64(pool[i])
				continue
			}
			carry, waited = append(carry, pool[i]), append(waited, waits[i]+1)
			longest = max(longest, waits[i]+1)
		}
	}
	fill := float64(placed) / float64(steps*w.Units*int(w.Capacity))
	t.Logf("fill %.4f, longest wait %d steps", fill, longest)
	if fill < 0.999 || longest > 4 {
		t.Errorf("fill %.4f, longest wait %d steps; want 0.999 and 4", fill, longest)
	}
}

func TestWidePackRefuses(t *testing.T) {
	var p balance.WidePacker
	for _, tc := range []struct {
		lengths []int32
		first   int
		w       balance.Wide
		want    string
	}{
		{[]int32{33}, 0, balance.Wide{Capacity: 8, Widest: 4, Units: 8}, "item 0 has length 33; a length from 1 to the capacity 32 is needed: split or drop the sample first"},
		{[]int32{0}, 0, balance.Wide{Capacity: 8, Widest: 4, Units: 8}, "item 0 has length 0; a length from 1 to the capacity 32 is needed: split or drop the sample first"},
		{nil, 1, balance.Wide{Capacity: 8, Widest: 4, Units: 8}, "1 items to place first, of 0 items"},
		{nil, 0, balance.Wide{Capacity: 8, Widest: 3, Units: 8}, "rows of a width up to 3, of 8 units in all; a power of two is needed, and at least as many units"},
		{nil, 0, balance.Wide{Capacity: 8, Widest: 16, Units: 8}, "rows of a width up to 16, of 8 units in all; a power of two is needed, and at least as many units"},
		{nil, 0, balance.Wide{Capacity: 1 << 24, Widest: 128, Units: 128}, "rows of 128 times 16777216 tokens; together at most 2^31-1 are possible"},
		{nil, 0, balance.Wide{Capacity: 0, Widest: 4, Units: 8}, "bin capacity 0 is not in 1 to 16777216 tokens"},
	} {
		if _, _, err := p.Pack(tc.lengths, tc.first, tc.w, 32); err == nil || err.Error() != tc.want {
			t.Errorf("%+v: %v, want %s", tc.w, err, tc.want)
		}
	}
}

// A sample of 150 tokens and one of 90, with short ones, in rows of 64: the two get
// rows of width 4 and 2.
func ExampleWidePacker_Pack() {
	lengths := []int32{150, 20, 90, 60, 64, 30, 7, 33, 50, 60}
	w := balance.Wide{Capacity: 64, Widest: 4, Units: 10}
	var p balance.WidePacker
	row, n, err := p.Pack(lengths, 0, w, 32)
	fmt.Println(row, n, err)
	// Output:
	// [0 5 1 2 0 1 0 0 4 3] 10 <nil>
}
