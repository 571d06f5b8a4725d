package mesh

import (
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
)

// maxRows bounds a global batch: a row for every microbatch slot of the largest mesh.
const maxRows = maxWorld * maxAxis

// Microbatches returns how many microbatches of size rows each dp index gets of a
// global batch of rows. It is an error if dp * size does not divide rows, and, with
// vpp above 1, if pp does not divide the result: Megatron-LM's interleaved schedule
// runs microbatches in groups of microbatch_group_size_per_vp_stage, which is pp
// unless set. The message names the nearest batches that fit the mesh, and the
// nearest dp that fits the batch.
func (t *Tree) Microbatches(rows, size int) (int, error) {
	if rows < 1 || int64(rows) > maxRows {
		return 0, fault.Userf("batch: %d rows, valid are 1 to %d", rows, int64(maxRows))
	}
	if size < 1 || size > maxAxis {
		return 0, fault.Userf("batch: microbatch size is %d rows, valid are 1 to %d", size, maxAxis)
	}
	r, unit := int64(rows), int64(t.size[dp])*int64(size)
	group := t.microbatchGroup()
	count := r / unit
	switch {
	case r%unit != 0:
		return 0, fault.Userf("batch: %d rows are not a multiple of dp %d * microbatch size %d; %s", rows, t.size[dp], size, t.validRows(r, int64(size)*group))
	case count%group != 0:
		return 0, fault.Userf("batch: %d rows give each dp index %d microbatches of %s, not a multiple of pp %d, which the interleaved schedule of vpp %d needs; %s",
			rows, count, plural(size, "row"), t.size[pp], t.vpp, t.validRows(r, int64(size)*group))
	}
	return int(count), nil
}

// PoolMicrobatches returns how many microbatches each rank of the pool gets, where the
// dp x cp ranks of a batch are one pool, microbatches have size rows, and a row of width w
// takes w of the batch's units. It is an error if the pool does not divide units or is not a multiple of
// widest, the largest width, or, with vpp above 1, if pp does not divide the result.
func (t *Tree) PoolMicrobatches(units, widest, size int) (int, error) {
	pool := int64(t.size[dp]) * int64(t.size[cp])
	u, group := int64(units), t.microbatchGroup()*int64(size)
	low := max(u/(pool*group), 1) * pool * group
	switch {
	case units < 1 || u > maxRows:
		return 0, fault.Userf("batch: %d sequences, valid are 1 to %d", units, int64(maxRows))
	case pool%int64(widest) != 0:
		return 0, fault.Userf("batch: rows of up to %d ranks do not divide a pool of dp %d * cp %d ranks; valid is a multiple of %d ranks, or a smaller context_split", widest, t.size[dp], t.size[cp], widest)
	case u%(pool*group) != 0:
		return 0, fault.Userf("batch: %d sequences are not a multiple of %d, for the %d ranks of dp %d * cp %d%s%s; valid are %d and %d",
			units, pool*group, pool, t.size[dp], t.size[cp], several(size), t.interleaved(), low, low+pool*group)
	}
	return int(u / (pool * int64(size))), nil
}

// several returns the part of a message about microbatches of several rows.
func several(size int) string {
	if size == 1 {
		return ""
	}
	return fmt.Sprintf(" and microbatches of %d rows", size)
}

// interleaved returns the part of a message about the interleaved schedule.
func (t *Tree) interleaved() string {
	if t.vpp == 1 {
		return ""
	}
	return fmt.Sprintf(" and pp %d, which the interleaved schedule of vpp %d needs", t.size[pp], t.vpp)
}

// microbatchGroup returns the number that the count of microbatches is a multiple of.
func (t *Tree) microbatchGroup() int64 {
	if t.vpp > 1 {
		return int64(t.size[pp])
	}
	return 1
}

// validRows names the nearest batches that fit the mesh, and the nearest dp that
// fits rows. Each dp index takes a multiple of share rows.
func (t *Tree) validRows(rows, share int64) string {
	unit := int64(t.size[dp]) * share
	low := rows / unit * unit
	text := fmt.Sprintf("valid is %d rows", unit)
	if low > 0 {
		text = fmt.Sprintf("valid are %d and %d rows", low, low+unit)
	}
	if rows%share != 0 {
		return text // no dp helps
	}
	most := maxWorld / (t.World() / t.size[dp])
	fitting := slices.DeleteFunc(divisors(rows/share), func(n int64) bool {
		return n > int64(min(most, maxAxis)) || n*int64(t.size[cp])%int64(t.ep) != 0
	})
	if len(fitting) > 0 {
		text += fmt.Sprintf(", or dp %s with %d rows", and(nearest(int64(t.size[dp]), fitting)), rows)
	}
	return text
}
