package cut

import (
	"testing"

	"github.com/millrace-data/millrace/planner/mesh"
)

// TestStride: a rank's number is the sum of its indices times the strides.
func TestStride(t *testing.T) {
	for _, order := range [][]string{nil, {"dp", "pp", "cp", "tp"}, {"pp", "tp", "dp", "cp"}} {
		for _, m := range []mesh.Sizes{{DP: 3, CP: 2, PP: 1, TP: 4}, {DP: 1, CP: 1, PP: 1, TP: 1}, {DP: 2, CP: 3, PP: 4, TP: 5}} {
			m.VPP, m.EP, m.Order = 1, 1, order
			tree, err := mesh.New(m)
			if err != nil {
				t.Fatal(err)
			}
			by := stride(tree)
			for rank := range tree.World() {
				at, _ := tree.Coordinates(rank)
				if got := at.DP*int(by[0]) + at.CP*int(by[1]) + at.PP*int(by[2]) + at.TP*int(by[3]); got != rank {
					t.Errorf("%s: %s is rank %d by strides %v, not %d", tree.Canonical(), at, got, by, rank)
				}
			}
		}
	}
}
