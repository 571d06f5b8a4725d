package mesh

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
)

// Canonical returns the short text of a tree, for logs and messages: the axes in
// their order with their sizes, then vpp and ep where they are above 1, as in
// "tp2 cp2 dp2 pp2 vpp2". Equal trees, and only those, have equal texts.
func (t *Tree) Canonical() string {
	var b strings.Builder
	for i, a := range t.order {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s%d", a, t.size[a])
	}
	if t.vpp > 1 {
		fmt.Fprintf(&b, " vpp%d", t.vpp)
	}
	if t.ep > 1 {
		fmt.Fprintf(&b, " ep%d", t.ep)
	}
	return b.String()
}

// Parse makes the tree of a text such as "tp2 cp2 dp2 pp2": dp, cp, pp and tp once
// each with their sizes, those with neighbouring ranks first. It may also name
// vpp and ep, which else are 1. Parse takes what Canonical returns.
func Parse(text string) (*Tree, error) {
	m := Sizes{VPP: 1, EP: 1}
	sizes := m.sizes()
	words := strings.Fields(text)
	if len(words) == 0 {
		return nil, fault.Userf(`mesh: the text is empty, valid is one such as "tp2 cp1 dp4 pp1"`)
	}
	for _, word := range words {
		name := strings.TrimRight(word, "0123456789")
		at := slices.Index(names, name)
		if at < 0 {
			return nil, fault.Userf("mesh: %s is not an axis%s", quote(word), instead(name, names,
				`valid is each of dp, cp, pp, tp with its size, as in "tp2 cp1 dp4 pp1", and vpp and ep if above 1`))
		}
		n, err := strconv.ParseUint(word[len(name):], 10, 32)
		if err != nil || n < 1 || n > maxAxis {
			return nil, fault.Userf("mesh: %s gives no size of %s, valid are %s1 to %s%d", quote(word), name, name, name, maxAxis)
		}
		*sizes[at] = int(n)
		if m.Order = append(m.Order, name); len(m.Order) > len(names) {
			break // one is named twice, and New reports it
		}
	}
	return New(m)
}
