package plan

import (
	"bytes"
	"slices"

	"github.com/millrace-data/millrace/planner/mesh"
)

// Same says whether the steps after two positions are the same, pending changes
// aside: one may have been made since the other was saved. What no plan depends on
// is not compared: samples and tokens drawn, skips, the numbers of bans, and the
// weights that shares were made of.
func (s State) Same(other State) bool {
	return s.Step == other.Step && slices.Equal(s.Carry, other.Carry) && slices.Equal(s.Held, other.Held) &&
		slices.EqualFunc(s.Cursors, other.Cursors, Cursor.same) && s.Settings.same(other.Settings)
}

func (c Cursor) same(other Cursor) bool {
	c.Samples, c.Tokens = other.Samples, other.Tokens
	return c == other
}

func (s Settings) same(other Settings) bool {
	return s.Batch == other.Batch && sameMesh(s.Mesh, other.Mesh) && slices.Equal(s.Shares, other.Shares) &&
		slices.Equal(s.Out, other.Out) && slices.Equal(s.Gone, other.Gone) &&
		slices.EqualFunc(s.Bans, other.Bans, func(a, b Ban) bool { a.ID = b.ID; return a == b }) &&
		slices.EqualFunc(s.Added, other.Added, func(a, b Added) bool {
			return a.Share == b.Share && a.Limit > 0 == (b.Limit > 0) && a.Manifest == b.Manifest && bytes.Equal(a.Spec, b.Spec)
		})
}

func sameMesh(a, b *mesh.Tree) bool { return a == b || a != nil && b != nil && a.Equal(b) }
