package mesh

import (
	"math/rand/v2"
	"slices"
	"testing"
)

var atAxes = []string{"dp", "cp", "pp", "tp", "world"}

// key returns what ranks of one bucket have in common, in the order of bucket numbers.
func key(tree *Tree, at string, rank int) []int {
	c, _ := tree.Coordinates(rank)
	switch at {
	case "dp":
		return []int{c.DP}
	case "cp":
		return []int{c.DP, c.CP}
	case "pp":
		return []int{c.DP, c.CP, c.PP}
	case "tp":
		return []int{c.DP, c.CP, c.PP, c.TP}
	}
	return []int{rank}
}

// TestBucketsPartitionTheWorld compares with buckets made by sorting ranks by key.
func TestBucketsPartitionTheWorld(t *testing.T) {
	random(t, func(t *testing.T, _ *rand.Rand, tree *Tree) {
		for _, at := range atAxes {
			b, err := tree.Buckets(at, 0)
			if err != nil || b.Axis() != at || b.Groups() != 1 || b.GroupSize() != b.Len() {
				t.Fatalf("%s: %v, %d groups of %d", at, err, b.Groups(), b.GroupSize())
			}
			all := make([]int, tree.World())
			for rank := range all {
				all[rank] = rank
			}
			slices.SortStableFunc(all, func(x, y int) int { return slices.Compare(key(tree, at, x), key(tree, at, y)) })
			bucket := 0
			for len(all) > 0 {
				n := 1
				for n < len(all) && slices.Equal(key(tree, at, all[n]), key(tree, at, all[0])) {
					n++
				}
				checkBucket(t, b, bucket, all[:n])
				all, bucket = all[n:], bucket+1
			}
			if bucket != b.Len() {
				t.Fatalf("%s: %d buckets, want %d", at, b.Len(), bucket)
			}
		}
	})
}

func checkBucket(t *testing.T, b Buckets, bucket int, want []int) {
	t.Helper()
	ranks, err := b.Ranks(bucket)
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Collect(ranks); !slices.Equal(got, want) {
		t.Fatalf("bucket %d at %s has ranks %v, want %v", bucket, b.Axis(), got, want)
	}
	for _, rank := range want {
		if got, err := b.Of(rank); err != nil || got != bucket {
			t.Fatalf("rank %d is in bucket %d (%v) at %s, want %d", rank, got, err, b.Axis(), bucket)
		}
	}
}

func TestGroupsPartitionBuckets(t *testing.T) {
	random(t, func(t *testing.T, _ *rand.Rand, tree *Tree) {
		for _, at := range atAxes {
			whole, _ := tree.Buckets(at, 0)
			for size := 1; size <= whole.Len(); size++ {
				b, err := tree.Buckets(at, size)
				if (err == nil) != (whole.Len()%size == 0) {
					t.Fatalf("group size %d of %d buckets: %v", size, whole.Len(), err)
				}
				if err != nil {
					continue
				}
				members := make([]int, b.Groups())
				last := 0
				for bucket := range b.Len() {
					g, err := b.Group(bucket)
					if err != nil || g < last || g >= b.Groups() {
						t.Fatalf("bucket %d of %d is in group %d (%v) after %d", bucket, b.Len(), g, err, last)
					}
					members[g]++
					last = g
				}
				if slices.Min(members) != size || slices.Max(members) != size {
					t.Fatalf("groups of %d hold %v", size, members)
				}
			}
		}
	})
}

// subsets returns all choices of words.
func subsets(words []string) (all [][]string) {
	for set := range 1 << len(words) {
		var chosen []string
		for i, w := range words {
			if set>>i&1 == 1 {
				chosen = append(chosen, w)
			}
		}
		all = append(all, chosen)
	}
	return all
}

// coordinate returns a pointer to one index.
func coordinate(c *Coordinates, dim string) *int {
	return map[string]*int{"dp": &c.DP, "cp": &c.CP, "pp": &c.PP, "tp": &c.TP}[dim]
}

func TestFetchers(t *testing.T) {
	inside := map[string][]string{"dp": {"cp", "pp", "tp"}, "cp": {"pp", "tp"}, "pp": {"tp"}, "tp": nil, "world": nil}
	random(t, func(t *testing.T, _ *rand.Rand, tree *Tree) {
		for _, at := range atAxes {
			for _, dims := range subsets([]string{"cp", "pp", "tp"}) {
				b, _ := tree.Buckets(at, 0)
				b, err := b.BroadcastAt(dims...)
				valid := !slices.ContainsFunc(dims, func(d string) bool { return !slices.Contains(inside[at], d) })
				if (err == nil) != valid {
					t.Fatalf("distributed at %s, broadcast at %v: %v", at, dims, err)
				}
				if valid {
					checkFetchers(t, tree, b, dims)
				}
			}
		}
	})
}

// checkFetchers works out each rank's root by setting its indices along dims to 0.
func checkFetchers(t *testing.T, tree *Tree, b Buckets, dims []string) {
	t.Helper()
	fetchers := make([][]int, b.Len())
	for rank := range tree.World() {
		c, _ := tree.Coordinates(rank)
		for _, d := range dims {
			*coordinate(&c, d) = 0
		}
		want, _ := tree.Rank(c)
		if got, err := b.BroadcastRoot(rank); err != nil || got != want {
			t.Fatalf("broadcast at %v: the root of %d is %d (%v), want %d", dims, rank, got, err, want)
		}
		if got, err := b.Fetches(rank); err != nil || got != (want == rank) {
			t.Fatalf("broadcast at %v: rank %d fetches is %v (%v)", dims, rank, got, err)
		}
		own, _ := b.Of(rank)
		if root, _ := b.Of(want); root != own {
			t.Fatalf("rank %d of bucket %d is served from bucket %d", rank, own, root)
		}
		if want == rank {
			fetchers[own] = append(fetchers[own], rank)
		}
	}
	for bucket, want := range fetchers {
		got, err := b.Fetchers(bucket)
		if err != nil || len(want) == 0 {
			t.Fatalf("bucket %d has fetchers %v, %v", bucket, want, err)
		}
		if got := slices.Collect(got); !slices.Equal(got, want) {
			t.Fatalf("broadcast at %v: bucket %d is fetched by %v, want %v", dims, bucket, got, want)
		}
	}
}

// An iteration may end early, and a later broadcast replaces an earlier one.
func TestBucketsAreValues(t *testing.T) {
	b, _ := parse(t, "tp2 cp2 dp2 pp2").Buckets("dp", 0)
	tpOnly, _ := b.BroadcastAt("tp")
	if _, err := tpOnly.BroadcastAt("pp"); err != nil {
		t.Fatal(err)
	}
	if root, _ := tpOnly.BroadcastRoot(13); root != 12 {
		t.Errorf("the root of 13 is %d, want 12", root)
	}
	none, _ := tpOnly.BroadcastAt()
	if fetches, _ := none.Fetches(13); !fetches {
		t.Error("rank 13 does not fetch without a broadcast")
	}
	ranks, _ := b.Ranks(1)
	for rank := range ranks {
		if rank != 4 {
			t.Errorf("the first rank of bucket 1 is %d, want 4", rank)
		}
		break
	}
}

func TestMicrobatches(t *testing.T) {
	for _, tc := range []struct {
		mesh       string
		rows, size int
		want       int
	}{
		{"tp1 cp1 dp1 pp1", 1, 1, 1},
		{"tp2 cp2 dp4 pp2", 48, 2, 6},
		{"tp2 cp2 dp4 pp3", 40, 2, 5}, // without vpp any count will do
		{"tp1 cp1 dp2 pp4 vpp3", 24, 1, 12},
		{"tp1 cp1 dp2 pp1 vpp3", 10, 1, 5},
		{"tp1 cp1 dp1048576 pp16", maxRows, maxAxis, 1 << 4},
	} {
		if got, err := parse(t, tc.mesh).Microbatches(tc.rows, tc.size); err != nil || got != tc.want {
			t.Errorf("%s, %d rows by %d: %d (%v), want %d", tc.mesh, tc.rows, tc.size, got, err, tc.want)
		}
	}
}

// TestMicrobatchesAreEqual checks that whatever is accepted uses up the batch, and
// whatever is refused could not.
func TestMicrobatchesAreEqual(t *testing.T) {
	random(t, func(t *testing.T, rng *rand.Rand, tree *Tree) {
		m := tree.Sizes()
		for range 20 {
			rows, size := 1+rng.IntN(200), 1+rng.IntN(4)
			got, err := tree.Microbatches(rows, size)
			fits := false
			for n := 1; n <= rows; n++ {
				fits = fits || n*size*m.DP == rows && (m.VPP == 1 || n%m.PP == 0)
			}
			if (err == nil) != fits || err == nil && got*size*m.DP != rows {
				t.Fatalf("%d rows by %d: %d, %v", rows, size, got, err)
			}
		}
	})
}
