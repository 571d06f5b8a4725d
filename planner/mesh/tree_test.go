package mesh

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// parse returns the tree of a valid text.
func parse(t testing.TB, text string) *Tree {
	t.Helper()
	tree, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// randomMesh returns a mesh of at most 6^4 ranks in any order, with ep and vpp named or not.
func randomMesh(rng *rand.Rand) Sizes {
	m := Sizes{DP: 1 + rng.IntN(6), CP: 1 + rng.IntN(6), PP: 1 + rng.IntN(6), TP: 1 + rng.IntN(6), VPP: 1 + rng.IntN(3)}
	all := divisors(int64(m.DP * m.CP))
	m.EP = int(all[rng.IntN(len(all))])
	m.Order = slices.Clone(names[:4+rng.IntN(3)])
	rng.Shuffle(len(m.Order), func(i, j int) { m.Order[i], m.Order[j] = m.Order[j], m.Order[i] })
	return m
}

// random calls check with trees of random meshes.
func random(t *testing.T, check func(*testing.T, *rand.Rand, *Tree)) {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 11))
	for range 100 {
		m := randomMesh(rng)
		tree, err := New(m)
		if err != nil {
			t.Fatalf("%+v: %v", m, err)
		}
		check(t, rng, tree)
		if t.Failed() {
			t.Fatalf("mesh %+v", m)
		}
	}
}

// count numbers the ranks of a mesh by counting: the first axis of the order changes fastest.
func count(m Sizes) (places []Coordinates) {
	size := map[string]int{"dp": m.DP, "cp": m.CP, "pp": m.PP, "tp": m.TP}
	at := map[string]int{}
	for {
		places = append(places, Coordinates{DP: at["dp"], CP: at["cp"], PP: at["pp"], TP: at["tp"]})
		turned := false
		for _, name := range m.Order {
			if at[name]++; at[name] < size[name] {
				turned = true
				break
			}
			at[name] = 0
		}
		if !turned {
			return places
		}
	}
}

func TestRanksAndCoordinatesAreOneToOne(t *testing.T) {
	random(t, func(t *testing.T, _ *rand.Rand, tree *Tree) {
		places := count(tree.Sizes())
		if len(places) != tree.World() {
			t.Fatalf("the world has %d ranks, counted %d", tree.World(), len(places))
		}
		for rank, want := range places {
			got, err := tree.Coordinates(rank)
			if err != nil || got != want {
				t.Fatalf("rank %d is %v (%v), counted %v", rank, got, err, want)
			}
			if back, err := tree.Rank(want); err != nil || back != rank {
				t.Fatalf("%v is rank %d (%v), counted %d", want, back, err, rank)
			}
		}
	})
}

// groups returns the ranks that differ along one axis only, as Megatron-LM lists its process groups.
func groups(tree *Tree, along axis) (all [][]int) {
	var free [levels]bool
	free[along] = true
	for rank := range tree.World() {
		if tree.index(rank, along) == 0 {
			all = append(all, slices.Collect(tree.span(rank, free)))
		}
	}
	return all
}

// TestMegatronGroups compares with the groups that Megatron-LM's parallel_state documents
// for 16 GPUs with tp 2 and pp 4, and with others worked out by hand.
func TestMegatronGroups(t *testing.T) {
	for _, tc := range []struct {
		mesh string
		axis axis
		want string
	}{
		{"tp2 cp1 dp2 pp4", tp, "[[0 1] [2 3] [4 5] [6 7] [8 9] [10 11] [12 13] [14 15]]"},
		{"tp2 cp1 dp2 pp4", dp, "[[0 2] [1 3] [4 6] [5 7] [8 10] [9 11] [12 14] [13 15]]"},
		{"tp2 cp1 dp2 pp4", pp, "[[0 4 8 12] [1 5 9 13] [2 6 10 14] [3 7 11 15]]"},
		{"tp2 cp2 dp2 pp2", cp, "[[0 2] [1 3] [4 6] [5 7] [8 10] [9 11] [12 14] [13 15]]"},
		{"tp2 cp2 dp2 pp2", dp, "[[0 4] [1 5] [2 6] [3 7] [8 12] [9 13] [10 14] [11 15]]"},
		{"tp2 cp1 pp4 dp2", dp, "[[0 8] [1 9] [2 10] [3 11] [4 12] [5 13] [6 14] [7 15]]"},
		{"tp2 cp1 pp4 dp2", pp, "[[0 2 4 6] [1 3 5 7] [8 10 12 14] [9 11 13 15]]"},
		{"pp3 tp2 cp1 dp1", tp, "[[0 3] [1 4] [2 5]]"},
	} {
		if got := fmt.Sprint(groups(parse(t, tc.mesh), tc.axis)); got != tc.want {
			t.Errorf("%s groups of %s are\n%s, want\n%s", tc.axis, tc.mesh, got, tc.want)
		}
	}
}

// TestNumberingFormula writes the sum out for each order by hand.
func TestNumberingFormula(t *testing.T) {
	const DP, CP, PP, TP = 3, 2, 4, 5
	for order, formula := range map[string]func(c Coordinates) int{
		"":                func(c Coordinates) int { return c.TP + TP*(c.CP+CP*(c.DP+DP*c.PP)) },
		"tp-cp-ep-dp-pp":  func(c Coordinates) int { return c.TP + TP*(c.CP+CP*(c.DP+DP*c.PP)) },
		"tp-cp-ep-pp-dp":  func(c Coordinates) int { return c.TP + TP*(c.CP+CP*(c.PP+PP*c.DP)) },
		"vpp-pp-tp-dp-cp": func(c Coordinates) int { return c.PP + PP*(c.TP+TP*(c.DP+DP*c.CP)) },
		"dp-cp-pp-tp":     func(c Coordinates) int { return c.DP + DP*(c.CP+CP*(c.PP+PP*c.TP)) },
	} {
		m := Sizes{DP: DP, CP: CP, PP: PP, TP: TP, VPP: 1, EP: 1}
		if order != "" {
			m.Order = strings.Split(order, "-")
		}
		tree, err := New(m)
		if err != nil {
			t.Fatal(err)
		}
		for rank := range tree.World() {
			if c, _ := tree.Coordinates(rank); formula(c) != rank {
				t.Fatalf("order %q: rank %d is %v, which the formula numbers %d", order, rank, c, formula(c))
			}
		}
	}
}

func TestTextAndMeshRoundTrip(t *testing.T) {
	random(t, func(t *testing.T, rng *rand.Rand, tree *Tree) {
		same, err := Parse(tree.Canonical())
		if err != nil || !same.Equal(tree) || same.Canonical() != tree.Canonical() {
			t.Errorf("%q comes back as %v (%v)", tree.Canonical(), same, err)
		}
		again, err := New(tree.Sizes())
		if err != nil || !again.Equal(tree) {
			t.Errorf("%+v comes back as %v (%v)", tree.Sizes(), again, err)
		}
		other, _ := New(randomMesh(rng))
		if got, want := tree.Equal(other), reflect.DeepEqual(tree.Sizes(), other.Sizes()); got != want || got != (tree.Canonical() == other.Canonical()) {
			t.Errorf("%s and %s: equal is %v, want %v", tree.Canonical(), other.Canonical(), got, want)
		}
	})
	for text, want := range map[string]string{
		"  ep4\tpp1 vpp1 dp2 tp8  cp2\n": "pp1 dp2 tp8 cp2 ep4",
		"tp1 cp1 dp1 pp1":                "tp1 cp1 dp1 pp1",
		"tp1 cp1 vpp3 dp1 pp2 ep1":       "tp1 cp1 dp1 pp2 vpp3",
	} {
		if got := parse(t, text).Canonical(); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func TestChange(t *testing.T) {
	tree := parse(t, "pp2 tp4 dp8 cp1 vpp2 ep4")
	for _, tc := range []struct {
		to   Sizes
		want string
	}{
		{Sizes{}, "pp2 tp4 dp8 cp1 vpp2 ep4"},
		{Sizes{DP: 4}, "pp2 tp4 dp4 cp1 vpp2 ep4"},
		{Sizes{DP: 2, CP: 2, VPP: 1}, "pp2 tp4 dp2 cp2 ep4"},
		{Sizes{EP: 1, Order: megatronNames()}, "tp4 cp1 dp8 pp2 vpp2"},
	} {
		if got, err := tree.Change(tc.to); err != nil || got.Canonical() != tc.want {
			t.Errorf("change to %+v is %v (%v), want %s", tc.to, got, err, tc.want)
		}
	}
	if tree.Canonical() != "pp2 tp4 dp8 cp1 vpp2 ep4" {
		t.Errorf("a change moved the tree itself: %s", tree.Canonical())
	}
}

func megatronNames() []string { return []string{"tp", "cp", "dp", "pp"} }
