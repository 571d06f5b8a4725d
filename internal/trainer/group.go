package trainer

import (
	"encoding/binary"
	"fmt"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/constructor/assemble"
)

// group are the ranks of the first pipeline stage that share a microbatch, in the order
// of their slices.
type group struct {
	layout assemble.Layout
	ranks  []client.Rank
}

// groupOf returns the group of a rank's microbatch: the CP ranks of its DP index, or
// as many of the pool of all DP x CP ranks as the rank's tensors say. Groups are
// aligned, and their ranks agree.
func (t *run) groupOf(byPlace map[client.Rank]*client.Batch, at client.Rank, m int) (group, error) {
	if !t.layout.Split {
		g := group{layout: t.layout}
		for cp := range t.mesh.CP {
			g.ranks = append(g.ranks, client.Rank{DP: at.DP, CP: cp, TP: at.TP})
		}
		return g, nil
	}
	width, pool := localSize(byPlace[at], m), t.mesh.DP*t.mesh.CP
	if width < 1 || pool%width != 0 {
		return group{}, fmt.Errorf("its row is shared by %d ranks of a pool of %d", width, pool)
	}
	g := group{layout: t.layout.Over(width)}
	first := (at.DP*t.mesh.CP + at.CP) / width * width
	for rank := first; rank < first+width; rank++ {
		peer := client.Rank{DP: rank / t.mesh.CP, CP: rank % t.mesh.CP, TP: at.TP}
		if n := localSize(byPlace[peer], m); n != width {
			return group{}, fmt.Errorf("its row is shared by %d ranks, and that of %s, one of them, by %d", width, peer, n)
		}
		g.ranks = append(g.ranks, peer)
	}
	return g, nil
}

// localSize returns the size of a rank's group from its tensors; 0 if absent.
func localSize(b *client.Batch, m int) int {
	if m >= len(b.Microbatches) {
		return 0
	}
	data := named(b.Microbatches[m].Tensors, "local_cp_size")
	if len(data) != 4 {
		return 0
	}
	return int(int32(binary.LittleEndian.Uint32(data)))
}
