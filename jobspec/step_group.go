package jobspec

import (
	"fmt"
	"strings"
)

// Group makes one record of neighbouring records of a file.
type Group struct {
	By   string // the column whose value they share; "": any neighbours
	Rows int    // of a record at most; 0 = all that share the value
}

var groupOperator = Operator{
	Name:    "group",
	Doc:     "Makes one record of neighbouring records of a file: those with the same value of a column, or a number of them. Each other column becomes the list of their values, which `text` joins with line breaks. The place of the record is that of the first of them.",
	Example: "[{group: conversation}, {tokenize: bytes}]",
	Takes:   []string{"the column `by`"}, Gives: []string{"all other columns, as lists"},
	Records: Gathers,
	Rules: "The first step of a chain. Where a record ends depends on the file alone: a file is one chunk, whatever `chunk_bytes`. Records without a value of `by` stay alone. A record that cannot be read between two of a group makes the group a bad record; " +
		"so does a group above `max_record`, `max_elements` or 65,536 records.",

	step: (*Group)(nil), value: field{kind: objectKind, object: &groupObject},
}

var groupObject = object{title: "group", short: "by", fields: []field{
	{key: "by", name: "By", kind: textKind, empty: true, auto: "any neighbours",
		doc: "The column whose value neighbouring records share: a text, a number or a boolean."},
	{key: "rows", name: "Rows", kind: countKind, min: 1, max: 1 << 16, empty: true, auto: "all with the same value of `by`",
		doc: "Records that become one, at most. Without `by` it is required, and those that cannot be read do not count."},
}}

// Operator implements Transform.
func (*Group) Operator() string { return groupOperator.Name }

// Words implements Transform.
func (g *Group) Words() string {
	if g.By == "" {
		return fmt.Sprintf("%d records made one", g.Rows)
	}
	return "neighbours of one " + g.By + " made one"
}

func (g *Group) check(c *checker, at string) {
	if !c.sound(at) {
		return
	}
	if !strings.HasSuffix(parentField(at), "[0]") {
		c.error(at, "comes after another step", "move it to the front: it takes records as the files have them")
	}
	if g.By == "" && g.Rows == 0 {
		c.error(at, "says neither by nor rows", "give the column whose value neighbours share, or how many records become one")
	}
	if g.By != "" {
		c.column(at+".by", g.By)
	}
}

// Grouped returns the group step of the source, nil if it has none.
func (s *Source) Grouped() *Group {
	if len(s.Transforms) == 0 {
		return nil
	}
	g, _ := s.Transforms[0].(*Group)
	return g
}
