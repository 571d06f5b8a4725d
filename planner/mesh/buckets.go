package mesh

import (
	"iter"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
)

// Buckets are the consumers of a tree's data at one axis, in groups, and the ranks
// among them that fetch: the result of distribute(axis, group_size) and broadcast_at(dim).
// Buckets and groups are numbered from 0. Read-only, safe for concurrent use.
type Buckets struct {
	tree      Tree
	axis      string
	stride    [levels]int  // from one bucket to the next along each axis, 0 where a bucket spans all of it
	inside    [levels]bool // axes that a bucket spans
	broadcast [levels]bool // axes along which only index 0 fetches
	count     int
	groupSize int
}

// LastGroup is what the last group of buckets may be.
type LastGroup uint8

const (
	// EqualLast says that all groups have the same size, which divides the number of
	// buckets. The zero value.
	EqualLast LastGroup = iota
	// SmallerLast says that the last group has the buckets that are left.
	SmallerLast
)

// Buckets divides the ranks at an axis: dp, cp, pp, tp or world. A bucket is the
// set of ranks with equal indices at that axis and at those above it in the
// hierarchy dp, cp, pp, tp; at world it is one rank. Each groupSize consecutive
// buckets are a group; groupSize divides their number unless last says SmallerLast, and 0
// makes one group of all. Every rank fetches until BroadcastAt says otherwise.
func (t *Tree) Buckets(axis string, groupSize int, last ...LastGroup) (Buckets, error) {
	b := Buckets{tree: *t, axis: axis, count: 1}
	if err := b.cut(axis); err != nil {
		return Buckets{}, err
	}
	if b.groupSize = groupSize; groupSize == 0 {
		b.groupSize = b.count
	}
	if b.groupSize < 1 || b.count%b.groupSize != 0 && !slices.Contains(last, SmallerLast) {
		return Buckets{}, fault.Userf("distribute: group_size %d does not divide the %d buckets at %s of mesh %s; %s, and 0 for one group; or say that the last group may be smaller",
			groupSize, b.count, axis, t.Canonical(), validDivisors(b.count, groupSize))
	}
	return b, nil
}

// cut numbers the buckets at an axis.
func (b *Buckets) cut(at string) error {
	if at == "world" {
		b.stride, b.count = b.tree.stride, b.tree.World()
		return nil
	}
	level := axis(slices.Index(names[:levels], at))
	switch {
	case level >= 0:
	case slices.Contains(names, at):
		return fault.Userf("distribute: %s adds no ranks, so there is nothing to distribute over; valid axes are dp, cp, pp, tp and world", at)
	default:
		return fault.Userf("distribute: unknown axis %s%s", quote(at),
			instead(at, append(names[:levels:levels], "world"), "valid are dp, cp, pp, tp and world"))
	}
	for a := tp; a >= dp; a-- {
		if b.inside[a] = a > level; !b.inside[a] {
			b.stride[a] = b.count
			b.count *= b.tree.size[a]
		}
	}
	return nil
}

// Axis returns the axis of distribution.
func (b Buckets) Axis() string { return b.axis }

// Len returns the number of buckets.
func (b Buckets) Len() int { return b.count }

// GroupSize returns the number of buckets in each group, but for a smaller last one.
func (b Buckets) GroupSize() int { return b.groupSize }

// Groups returns the number of groups.
func (b Buckets) Groups() int {
	size := max(1, b.groupSize)
	return (b.count + size - 1) / size
}

// Of returns the bucket of a rank.
func (b Buckets) Of(rank int) (int, error) {
	if err := b.tree.checkRank(rank); err != nil {
		return 0, err
	}
	bucket := 0
	for a := range levels {
		bucket += b.tree.index(rank, a) * b.stride[a]
	}
	return bucket, nil
}

// Group returns the group of a bucket.
func (b Buckets) Group(bucket int) (int, error) {
	if err := b.check(bucket); err != nil {
		return 0, err
	}
	return bucket / b.groupSize, nil
}

// Ranks yields the ranks that share a bucket, in ascending order.
func (b Buckets) Ranks(bucket int) (iter.Seq[int], error) {
	if err := b.check(bucket); err != nil {
		return nil, err
	}
	return b.tree.span(b.first(bucket), b.inside), nil
}

// Fetchers yields the ranks of a bucket that fetch, in ascending order: those
// with index 0 along all dims of BroadcastAt.
func (b Buckets) Fetchers(bucket int) (iter.Seq[int], error) {
	if err := b.check(bucket); err != nil {
		return nil, err
	}
	return b.tree.span(b.first(bucket), b.fetching()), nil
}

// BroadcastAt returns the same buckets with a broadcast on the trainer's side along
// dims, which replace earlier ones. Valid dims are those of cp, pp and tp that lie
// inside a bucket: along the others ranks consume different data.
func (b Buckets) BroadcastAt(dims ...string) (Buckets, error) {
	b.broadcast = [levels]bool{}
	for i, dim := range dims {
		at := slices.Index(names[:levels], dim)
		switch {
		case at < 0:
			return Buckets{}, fault.Userf("broadcast_at: unknown dim %s%s", quote(dim), instead(dim, names[:levels], b.validDims()))
		case !b.inside[at]:
			return Buckets{}, fault.Userf("broadcast_at: along %s ranks consume different data, since it is distributed at %s; %s", dim, b.axis, b.validDims())
		case slices.Contains(dims[:i], dim):
			return Buckets{}, fault.Userf("broadcast_at: %s is named twice; %s", dim, b.validDims())
		}
		b.broadcast[at] = true
	}
	return b, nil
}

// validDims names the dims that may be broadcast along.
func (b Buckets) validDims() string {
	dims := b.dims(b.inside)
	if len(dims) == 0 {
		return "no dim is valid: each rank is its own bucket"
	}
	return "valid are " + strings.Join(dims, ", ") + ", each once"
}

// dims names a set of axes.
func (b Buckets) dims(of [levels]bool) (dims []string) {
	for a := range levels {
		if of[a] {
			dims = append(dims, a.String())
		}
	}
	return dims
}

// Fetches reports whether a rank fetches for itself and the ranks it broadcasts to; if
// not, a broadcast serves it.
func (b Buckets) Fetches(rank int) (bool, error) {
	root, err := b.BroadcastRoot(rank)
	return err == nil && root == rank, err
}

// BroadcastRoot returns the rank that fetches a rank's data: the rank
// itself if it fetches, else the one that broadcasts to it.
func (b Buckets) BroadcastRoot(rank int) (int, error) {
	if err := b.tree.checkRank(rank); err != nil {
		return 0, err
	}
	root := rank
	for a := range levels {
		if b.broadcast[a] {
			root -= b.tree.index(rank, a) * b.tree.stride[a]
		}
	}
	return root, nil
}

// first returns the lowest rank of a bucket.
func (b Buckets) first(bucket int) int {
	rank := 0
	for a := range levels {
		if !b.inside[a] {
			rank += bucket / b.stride[a] % b.tree.size[a] * b.tree.stride[a]
		}
	}
	return rank
}

// fetching returns the axes along which fetchers of one bucket differ.
func (b Buckets) fetching() (free [levels]bool) {
	for a := range levels {
		free[a] = b.inside[a] && !b.broadcast[a]
	}
	return free
}

func (b Buckets) check(bucket int) error {
	if bucket < 0 || bucket >= b.count {
		return fault.Userf("no bucket %d: buckets at %s of mesh %s go from 0 to %d", bucket, b.axis, b.tree.Canonical(), b.count-1)
	}
	return nil
}
