package mesh

import (
	"fmt"
	"strings"
)

// String prints the tree in at most nine lines, whatever its size: of each axis the
// first index with all that is below it, then the others in one line, with the step
// from rank to rank, since their subtrees are alike.
func (t *Tree) String() string {
	return t.header() + t.lines(func(a axis) (string, string) { return "", as(a) })
}

func (t *Tree) header() string {
	return fmt.Sprintf("%s: %s\n", plural(t.World(), "rank"), t.Canonical())
}

// lines draws the tree. notes returns, per axis, the notes after its first index
// and after the others.
func (t *Tree) lines(notes func(axis) (first, others string)) string {
	var left, right []string
	line := func(a axis, label, note string) {
		left = append(left, strings.Repeat("  ", int(a))+a.String()+" "+label)
		right = append(right, note)
	}
	for a := range levels {
		note, _ := notes(a)
		if a == tp {
			note = join("rank 0", note)
		}
		line(a, "0", note)
	}
	for a := tp; a >= dp; a-- {
		_, note := notes(a)
		step := fmt.Sprintf("rank +%d", t.stride[a])
		switch n := t.size[a]; {
		case n == 2:
			line(a, "1", join(step, note))
		case n > 2:
			line(a, fmt.Sprintf("1..%d", n-1), join(step+" each", note))
		}
	}
	return columns(left, right)
}

// String prints the tree as [Tree.String] does, with bucket numbers and the ranks
// that fetch.
func (b Buckets) String() string {
	each := b.tree.product(b.inside)
	text := b.tree.header() + fmt.Sprintf("distribute at %s: %s of %s", b.axis, plural(b.count, "bucket"), plural(each, "rank"))
	if b.Groups() > 1 {
		text += fmt.Sprintf(", in %d groups of %s", b.Groups(), plural(b.groupSize, "bucket"))
	}
	if dims := b.dims(b.broadcast); dims != nil {
		text += fmt.Sprintf("\nbroadcast at %s: %s in each bucket", strings.Join(dims, ", "), plural(b.tree.product(b.fetching()), "fetcher"))
	}
	return text + "\n" + b.tree.lines(b.notes)
}

// notes returns, for an axis, the buckets and broadcasts of its first index and of
// the others.
func (b Buckets) notes(a axis) (first, others string) {
	if lowest := a == tp || b.inside[a+1]; lowest && !b.inside[a] {
		first = "bucket 0"
	}
	if a == tp {
		first = join(first, "fetches")
	}
	switch {
	case b.broadcast[a]:
		return first, fmt.Sprintf("served by %s 0", a)
	case !b.inside[a]:
		others = fmt.Sprintf("bucket +%d", b.stride[a])
		if b.tree.size[a] > 2 {
			others += " each"
		}
	}
	return first, join(others, as(a))
}

// as notes that a subtree is like the first.
func as(a axis) string { return fmt.Sprintf("as %s 0", a) }

// columns aligns notes after labels.
func columns(left, right []string) string {
	width := 0
	for _, l := range left {
		width = max(width, len(l))
	}
	var b strings.Builder
	for i, l := range left {
		b.WriteString(strings.TrimRight(fmt.Sprintf("%-*s   %s", width, l, right[i]), " ") + "\n")
	}
	return b.String()
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ", " + b
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
