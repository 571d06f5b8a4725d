package mesh

import (
	"math"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
)

// refused checks that err is a user error with the wanted text.
func refused(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil {
		t.Errorf("nothing is refused, want: %s", want)
	} else if err.Error() != want || fault.ClassOf(err) != fault.User {
		t.Errorf("%v error\n%s, want\n%s", fault.ClassOf(err), err, want)
	}
}

func TestBadMeshes(t *testing.T) {
	mesh := func(change func(*Sizes)) error {
		m := Sizes{DP: 2, CP: 2, PP: 2, TP: 2, VPP: 1, EP: 1}
		change(&m)
		tree, err := New(m)
		if (tree == nil) != (err != nil) {
			t.Errorf("New gives %v and %v", tree, err)
		}
		return err
	}
	order := func(names ...string) error { return mesh(func(m *Sizes) { m.Order = names }) }
	const validOrder = "; valid is each of dp, cp, pp, tp once, and ep and vpp if you like"

	refused(t, mesh(func(m *Sizes) { m.PP = 0 }), "mesh: pp is 0, valid are 1 to 1048576")
	refused(t, mesh(func(m *Sizes) { m.TP = -1 }), "mesh: tp is -1, valid are 1 to 1048576")
	refused(t, mesh(func(m *Sizes) { m.VPP = 0 }), "mesh: vpp is 0, valid are 1 to 1048576")
	refused(t, mesh(func(m *Sizes) { m.DP = 1<<20 + 1 }), "mesh: dp is 1048577, valid are 1 to 1048576")
	refused(t, mesh(func(m *Sizes) { m.DP, m.TP, m.PP, m.CP = 1<<20, 1<<20, 1<<20, 1<<20 }),
		"mesh: dp 1048576 * cp 1048576 * pp 1048576 * tp 1048576 are more than 16777216 ranks, the maximum")
	refused(t, mesh(func(m *Sizes) { m.EP = 3 }),
		"mesh: ep 3 does not divide dp 2 * cp 2 = 4, the ranks that experts are laid over; valid are 1, 2 and 4")
	refused(t, mesh(func(m *Sizes) { m.DP, m.CP, m.EP = 1, 1, 2 }),
		"mesh: ep 2 does not divide dp 1 * cp 1 = 1, the ranks that experts are laid over; valid is 1")

	refused(t, order("tp", "cp", "dq", "pp"), `mesh: order names an unknown axis "dq", did you mean "dp"? Valid`+strings.TrimPrefix(validOrder, "; valid"))
	refused(t, order("tensor"), `mesh: order names an unknown axis "tensor"`+validOrder)
	refused(t, order("tp", "cp", "tp", "pp"), "mesh: order names tp twice"+validOrder)
	refused(t, order("tp", "cp", "ep", "dp"), "mesh: order lacks pp"+validOrder)
	refused(t, order(strings.Repeat("x", 100)), `mesh: order names an unknown axis "`+strings.Repeat("x", 64)+`"...`+validOrder)

	if err := mesh(func(m *Sizes) { m.DP, m.TP, m.PP, m.CP = 1<<20, 1, 16, 1 }); err != nil {
		t.Errorf("a mesh of 2^24 ranks: %v", err)
	}
	_, err := parse(t, "tp1 cp1 dp4 pp1 ep4").Change(Sizes{DP: 2})
	refused(t, err, "mesh: ep 4 does not divide dp 2 * cp 1 = 2, the ranks that experts are laid over; valid are 1 and 2")
}

func TestBadTexts(t *testing.T) {
	const valid = `; valid is each of dp, cp, pp, tp with its size, as in "tp2 cp1 dp4 pp1", and vpp and ep if above 1`
	for text, want := range map[string]string{
		" ":                         `mesh: the text is empty, valid is one such as "tp2 cp1 dp4 pp1"`,
		"tp2 cp1 dd4 pp1":           `mesh: "dd4" is not an axis, did you mean "dp"? V` + valid[3:],
		"16":                        `mesh: "16" is not an axis` + valid,
		"tp2 cp dp4":                `mesh: "cp" gives no size of cp, valid are cp1 to cp1048576`,
		"tp2 cp0 dp4":               `mesh: "cp0" gives no size of cp, valid are cp1 to cp1048576`,
		"tp99999999999999999999":    `mesh: "tp99999999999999999999" gives no size of tp, valid are tp1 to tp1048576`,
		"tp-2":                      `mesh: "tp-2" is not an axis, did you mean "tp"? V` + valid[3:],
		"tp2 cp1 dp4":               "mesh: order lacks pp; valid is each of dp, cp, pp, tp once, and ep and vpp if you like",
		strings.Repeat("dp1 ", 1e4): "mesh: order names dp twice; valid is each of dp, cp, pp, tp once, and ep and vpp if you like",
	} {
		_, err := Parse(text)
		refused(t, err, want)
	}
}

func TestBadBuckets(t *testing.T) {
	tree := parse(t, "tp2 cp3 dp120 pp2")
	for _, tc := range []struct {
		axis  string
		group int
		want  string
	}{
		{"DP", 0, `distribute: unknown axis "DP", did you mean "dp"? Valid are dp, cp, pp, tp and world`},
		{"wordl", 0, `distribute: unknown axis "wordl", did you mean "world"? Valid are dp, cp, pp, tp and world`},
		{"", 0, `distribute: unknown axis ""; valid are dp, cp, pp, tp and world`},
		{"vpp", 0, "distribute: vpp adds no ranks, so there is nothing to distribute over; valid axes are dp, cp, pp, tp and world"},
		{"dp", 7, "distribute: group_size 7 does not divide the 120 buckets at dp of mesh tp2 cp3 dp120 pp2; valid are the divisors of 120, such as 6 and 8, and 0 for one group; or say that the last group may be smaller"},
		{"dp", -1, "distribute: group_size -1 does not divide the 120 buckets at dp of mesh tp2 cp3 dp120 pp2; valid are the divisors of 120, such as 1, and 0 for one group; or say that the last group may be smaller"},
		{"dp", math.MaxInt, "distribute: group_size 9223372036854775807 does not divide the 120 buckets at dp of mesh tp2 cp3 dp120 pp2; valid are the divisors of 120, such as 120, and 0 for one group; or say that the last group may be smaller"},
	} {
		_, err := tree.Buckets(tc.axis, tc.group)
		refused(t, err, tc.want)
	}
	_, err := parse(t, "tp1 cp3 dp4 pp1").Buckets("cp", 5)
	refused(t, err, "distribute: group_size 5 does not divide the 12 buckets at cp of mesh tp1 cp3 dp4 pp1; valid are 1, 2, 3, 4, 6 and 12, and 0 for one group; or say that the last group may be smaller")
}

func TestBadBroadcasts(t *testing.T) {
	tree := parse(t, "tp2 cp2 dp2 pp2")
	for _, tc := range []struct {
		at, dims, want string
	}{
		{"dp", "tq", `broadcast_at: unknown dim "tq", did you mean "tp"? Valid are cp, pp, tp, each once`},
		{"dp", "tp tp", "broadcast_at: tp is named twice; valid are cp, pp, tp, each once"},
		{"cp", "cp", "broadcast_at: along cp ranks consume different data, since it is distributed at cp; valid are pp, tp, each once"},
		{"cp", "tp dp", "broadcast_at: along dp ranks consume different data, since it is distributed at cp; valid are pp, tp, each once"},
		{"world", "tp", "broadcast_at: along tp ranks consume different data, since it is distributed at world; no dim is valid: each rank is its own bucket"},
	} {
		b, _ := tree.Buckets(tc.at, 0)
		_, err := b.BroadcastAt(strings.Fields(tc.dims)...)
		refused(t, err, tc.want)
	}
}

func TestBadNumbers(t *testing.T) {
	tree := parse(t, "tp2 cp2 dp2 pp2")
	b, _ := tree.Buckets("dp", 0)
	for _, rank := range []int{-1, 16, math.MaxInt, math.MinInt} {
		_, of := tree.Coordinates(rank)
		_, in := b.Of(rank)
		_, fetches := b.Fetches(rank)
		_, root := b.BroadcastRoot(rank)
		for _, err := range []error{of, in, fetches, root} {
			if err == nil || !strings.HasSuffix(err.Error(), ": ranks of mesh tp2 cp2 dp2 pp2 go from 0 to 15") {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
	}
	for _, bucket := range []int{-1, 2, math.MaxInt} {
		_, ranks := b.Ranks(bucket)
		_, fetchers := b.Fetchers(bucket)
		_, group := b.Group(bucket)
		for _, err := range []error{ranks, fetchers, group} {
			if err == nil || !strings.HasSuffix(err.Error(), ": buckets at dp of mesh tp2 cp2 dp2 pp2 go from 0 to 1") {
				t.Errorf("bucket %d: %v", bucket, err)
			}
		}
	}
	_, err := tree.Rank(Coordinates{DP: 1, CP: 2})
	refused(t, err, "no rank has dp=1 cp=2 pp=0 tp=0: cp of mesh tp2 cp2 dp2 pp2 goes from 0 to 1")
	_, err = tree.Rank(Coordinates{PP: -1})
	refused(t, err, "no rank has dp=0 cp=0 pp=-1 tp=0: pp of mesh tp2 cp2 dp2 pp2 goes from 0 to 1")
}

func TestBadBatches(t *testing.T) {
	for _, tc := range []struct {
		mesh       string
		rows, size int
		want       string
	}{
		{"tp1 cp1 dp2 pp1", 0, 1, "batch: 0 rows, valid are 1 to 17592186044416"},
		{"tp1 cp1 dp2 pp1", math.MaxInt, 1, "batch: 9223372036854775807 rows, valid are 1 to 17592186044416"},
		{"tp1 cp1 dp2 pp1", 8, 0, "batch: microbatch size is 0 rows, valid are 1 to 1048576"},
		{"tp1 cp1 dp3 pp1", 8, 2, "batch: 8 rows are not a multiple of dp 3 * microbatch size 2; valid are 6 and 12 rows, or dp 2 and 4 with 8 rows"},
		{"tp1 cp1 dp3 pp1 ep3", 8, 2, "batch: 8 rows are not a multiple of dp 3 * microbatch size 2; valid are 6 and 12 rows"},
		{"tp1 cp1 dp4 pp1", 2, 1, "batch: 2 rows are not a multiple of dp 4 * microbatch size 1; valid is 4 rows, or dp 2 with 2 rows"},
		{"tp1 cp1 dp4 pp1", 9, 2, "batch: 9 rows are not a multiple of dp 4 * microbatch size 2; valid are 8 and 16 rows"},
		{"tp1 cp1 dp4 pp4 vpp2", 24, 1, "batch: 24 rows give each dp index 6 microbatches of 1 row, not a multiple of pp 4, which the interleaved schedule of vpp 2 needs; valid are 16 and 32 rows, or dp 3 and 6 with 24 rows"},
		{"tp1 cp1 dp4 pp4 vpp2", 23, 1, "batch: 23 rows are not a multiple of dp 4 * microbatch size 1; valid are 16 and 32 rows"},
		{"tp16 cp1 dp1048575 pp1", 1 << 21, 1, "batch: 2097152 rows are not a multiple of dp 1048575 * microbatch size 1; valid are 2097150 and 3145725 rows, or dp 524288 and 1048576 with 2097152 rows"},
	} {
		_, err := parse(t, tc.mesh).Microbatches(tc.rows, tc.size)
		refused(t, err, tc.want)
	}
}
