package cut

import (
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/planner/mesh"
)

// Mesh is a mesh as ranks and constructors get it.
func Mesh(t *mesh.Tree) *pb.Mesh {
	m := t.Sizes()
	return &pb.Mesh{Dp: uint32(m.DP), Cp: uint32(m.CP), Pp: uint32(m.PP), Tp: uint32(m.TP), Vpp: uint32(m.VPP), Stride: stride(t)}
}

// stride is how far the numbers of neighbouring ranks are apart, by axis.
func stride(t *mesh.Tree) (strides []uint32) {
	m := t.Sizes()
	for i, size := range []int{m.DP, m.CP, m.PP, m.TP} {
		var next [4]int
		next[i] = min(1, size-1)
		rank, _ := t.Rank(mesh.Coordinates{DP: next[0], CP: next[1], PP: next[2], TP: next[3]})
		strides = append(strides, uint32(rank))
	}
	return strides
}
