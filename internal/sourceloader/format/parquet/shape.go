package parquet

import (
	pq "github.com/parquet-go/parquet-go/format"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format/columnar"
)

// shape is a part of a group of fields, as its JSON text has it. The levels are definition
// levels.
type shape struct {
	path     string // in errors
	key      []byte // of a field: its name as JSON, with the colon
	above    int    // level at which what holds it is there
	def      int    // level at which it is there, not null
	elem     int    // of a list or map: level at which it has an element
	rep      int    // of a list or map: repetition level of its further elements
	leaf     *node  // nil if it has parts
	isJSON   bool   // of a leaf: text that holds JSON
	is       shapeKind
	from, to int // its leaves, among those of the column
	parts    []*shape
}

type shapeKind uint8

const (
	isLeaf  shapeKind = iota
	isList            // parts[0] is the element
	isMap             // parts are key and value
	isGroup           // parts are the fields
)

// isObject reports whether values at the place are objects: a group of fields, or a map.
func (p place) isObject() bool {
	if p.node.repetition == pq.Repeated && !p.entered {
		return false
	}
	if _, ok := p.mapped(); ok {
		return true
	}
	_, _, list := p.element()
	return !list && !p.node.leaf
}

// mapped returns the group of key and value of a map.
func (p place) mapped() (*node, bool) {
	n := p.node
	if n.repetition == pq.Repeated && !p.entered || n.leaf || !n.isMap() || len(n.children) != 1 {
		return nil, false
	}
	inner := n.children[0]
	ok := inner.repetition == pq.Repeated && !inner.leaf && len(inner.children) == 2 && inner.children[0].leaf && inner.children[0].repetition != pq.Repeated
	return inner, ok
}

// shapeOf compiles what is at the place. Leaves are counted from the first one of the column.
func shapeOf(p place, path string, above, first int) (*shape, error) {
	n := p.node
	s := &shape{path: path, above: above, def: n.maxDef, from: n.first - first, to: n.last - first}
	if s.from == s.to {
		return nil, fault.Userf("the group %q has no fields (damaged)", path)
	}
	if inner, ok := p.mapped(); ok {
		s.is, s.elem, s.rep = isMap, inner.maxDef, inner.maxRep
		return s, s.add([]place{{inner.children[0], false}, {inner.children[1], false}}, path+"[].", s.elem, first)
	}
	if elem, repeated, ok := p.element(); ok {
		s.is, s.def, s.elem, s.rep = isList, repeated.maxDef-1, repeated.maxDef, repeated.maxRep
		part, err := shapeOf(elem, path+"[]", s.elem, first)
		s.parts = []*shape{part}
		return s, err
	}
	if n.leaf {
		s.leaf, s.isJSON = n, n.logical == logicalJSON || n.logical == 0 && n.converted == convertedJSON
		return s, nil
	}
	s.is = isGroup
	fields := make([]place, len(n.children))
	seen := map[string]bool{}
	for i, c := range n.children {
		if seen[c.name] {
			return nil, fault.Userf("column %q: there are two fields named %q; rename one", path, c.name)
		}
		seen[c.name] = true
		fields[i] = place{c, false}
	}
	return s, s.add(fields, path+".", s.def, first)
}

// add adds the fields of a group.
func (s *shape) add(fields []place, prefix string, above, first int) error {
	for _, f := range fields {
		part, err := shapeOf(f, prefix+f.node.name, above, first)
		if err != nil {
			return err
		}
		part.key = append(columnar.AppendQuoted(nil, f.node.name), ':')
		s.parts = append(s.parts, part)
	}
	return nil
}

// typeName adds the type of what is at the place.
func (p place) typeName(t *columnar.TypeName) {
	if t.Full() {
		return
	}
	if inner, ok := p.mapped(); ok {
		t.Add("map")
		t.Fields(2, func(i int) { place{inner.children[i], false}.typeName(t) })
		return
	}
	if elem, _, ok := p.element(); ok {
		t.Add("list")
		t.Fields(1, func(int) { elem.typeName(t) })
		return
	}
	if p.node.leaf {
		t.Add(p.node.typeName())
		return
	}
	t.Add("struct")
	t.Fields(len(p.node.children), func(i int) {
		c := p.node.children[i]
		t.Add(c.name, ": ")
		place{c, false}.typeName(t)
	})
}

// typeName is the type of a leaf.
func (n *node) typeName() string {
	logical := map[int]string{logicalString: "string", logicalEnum: "string", logicalJSON: "json", logicalDecimal: "decimal", logicalDate: "date",
		logicalTimestamp: "timestamp", logicalFloat16: "halffloat"}
	converted := map[int]string{convertedUTF8: "string", convertedEnum: "string", convertedJSON: "json", convertedDecimal: "decimal", convertedDate: "date",
		convertedTimestampMillis: "timestamp", convertedTimestampMicros: "timestamp"}
	physical := map[pq.Type]string{pq.Boolean: "bool", pq.Int32: "int32", pq.Int64: "int64", pq.Int96: "timestamp", pq.Float: "float", pq.Double: "double",
		pq.ByteArray: "binary", pq.FixedLenByteArray: "binary"}
	if name := logical[n.logical]; name != "" {
		return name
	}
	if name := converted[n.converted]; n.logical == 0 && name != "" {
		return name
	}
	return physical[n.physical]
}
