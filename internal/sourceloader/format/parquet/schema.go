package parquet

import (
	"math/bits"

	pq "github.com/parquet-go/parquet-go/format"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/fieldpath"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/columnar"
)

// Members of the LogicalType union, by field number.
const (
	logicalString    = 1
	logicalMap       = 2
	logicalList      = 3
	logicalEnum      = 4
	logicalDecimal   = 5
	logicalDate      = 6
	logicalTimestamp = 8
	logicalInteger   = 10
	logicalJSON      = 12
	logicalFloat16   = 15
)

// Converted types, the older annotations, by number.
const (
	convertedUTF8        = 0
	convertedMap         = 1
	convertedMapKeyValue = 2
	convertedList        = 3
	convertedEnum        = 4
	convertedDecimal     = 5
	convertedDate        = 6
	convertedTimeMillis  = 7
	convertedTimeMicros  = 8

	convertedTimestampMillis = 9
	convertedTimestampMicros = 10

	convertedUint8  = 11
	convertedUint64 = 14
	convertedInt64  = 18
	convertedJSON   = 19
)

// node is a node of the schema tree.
type node struct {
	element
	children []*node
	column   int // number of the leaf among the leaves, in a row group's order
	// first to last are the numbers of the leaves below it, or of itself.
	first, last int
	maxRep      int
	maxDef      int
}

// schemaTree builds the tree from the elements, which are written depth first.
func schemaTree(elements []element) (*node, error) {
	b := &schemaBuilder{left: elements}
	if len(elements) == 0 {
		return nil, fault.Userf("the schema is empty (damaged)")
	}
	root := &node{element: elements[0]}
	b.left = elements[1:]
	root.leaf = false
	if err := b.grow(root, 0); err != nil {
		return nil, err
	}
	if len(b.left) > 0 {
		return nil, fault.Userf("the schema holds %d elements that belong to no group (damaged)", len(b.left))
	}
	return root, nil
}

type schemaBuilder struct {
	left   []element
	leaves int
}

func (b *schemaBuilder) grow(parent *node, depth int) error {
	if parent.element.children < 0 || parent.element.children > len(b.left) || depth > 64 {
		return fault.Userf("the schema claims %d fields in %q, %d deep, with %d elements left (damaged)",
			parent.element.children, parent.name, depth, len(b.left))
	}
	for range parent.element.children {
		if len(b.left) == 0 {
			return fault.Userf("the schema ends inside the group %q (damaged)", parent.name)
		}
		n := &node{element: b.left[0], maxRep: parent.maxRep, maxDef: parent.maxDef, first: b.leaves}
		b.left = b.left[1:]
		switch n.repetition {
		case pq.Required:
		case pq.Optional:
			n.maxDef++
		case pq.Repeated:
			n.maxDef++
			n.maxRep++
		default:
			return fault.Userf("the field %q has the unknown repetition %d (damaged)", n.name, n.repetition)
		}
		parent.children = append(parent.children, n)
		if n.leaf {
			n.column = b.leaves
			b.leaves++
			n.last = b.leaves
			continue
		}
		if err := b.grow(n, depth+1); err != nil {
			return err
		}
		n.last = b.leaves
		if n.isMap() && len(n.children) == 1 { // what writers call the two differs
			for i, c := range n.children[0].children[:min(2, len(n.children[0].children))] {
				c.name = columnar.MapNames[i]
			}
		}
	}
	return nil
}

func (n *node) isMap() bool {
	return n.logical == logicalMap || n.logical == 0 && (n.converted == convertedMap || n.converted == convertedMapKeyValue)
}

func (n *node) isList() bool {
	return n.logical == logicalList || n.logical == 0 && n.converted == convertedList
}

// isInteger says that the leaf holds whole numbers, not a date, time or decimal.
func (n *node) isInteger() bool {
	if n.physical != pq.Int32 && n.physical != pq.Int64 {
		return false
	}
	plain := n.logical == 0 && (n.converted < 0 || n.converted >= convertedUint8 && n.converted <= convertedInt64)
	return plain || n.logical == logicalInteger
}

func (n *node) isUnsigned() bool {
	return n.unsigned || n.logical == 0 && n.converted >= convertedUint8 && n.converted <= convertedUint64
}

func (n *node) isDecimal() bool {
	return n.logical == logicalDecimal || n.logical == 0 && n.converted == convertedDecimal
}

func (n *node) isText() bool {
	switch n.logical {
	case 0:
		return n.converted == convertedUTF8 || n.converted == convertedEnum || n.converted == convertedJSON
	case logicalString, logicalEnum, logicalJSON:
		return true
	}
	return false
}

// place is a position on the way down the schema: a node, and whether its own
// repetition has been entered already (a repeated node is a list of itself).
type place struct {
	node    *node
	entered bool
}

// element steps into a list or map. repeated is the node whose levels count
// the elements.
func (p place) element() (elem place, repeated *node, ok bool) {
	n := p.node
	if n.repetition == pq.Repeated && !p.entered {
		return place{n, true}, n, true
	}
	if n.leaf || len(n.children) != 1 || n.children[0].repetition != pq.Repeated {
		return place{}, nil, false
	}
	inner := n.children[0]
	switch {
	case n.isMap() && !inner.leaf:
		return place{inner, true}, inner, true
	case n.isList() && twoLevelList(n, inner):
		return place{inner, true}, inner, true
	case n.isList():
		return place{inner.children[0], false}, inner, true
	}
	return place{}, nil, false
}

// twoLevelList tells the old encoding of lists, where the repeated field is the
// element, from the standard one, where it wraps the element. The rules are
// those of the Parquet specification (LogicalTypes, backward compatibility).
func twoLevelList(list, inner *node) bool {
	return inner.leaf || len(inner.children) != 1 || inner.name == "array" || inner.name == list.name+"_tuple" ||
		inner.children[0].repetition == pq.Repeated
}

// field is a path resolved against a schema.
type field struct {
	leaf   *node // nil: the values are objects
	object place // of objects
	named  place // where the path ends
	unsaid int   // of lists, those from there on
	// lists holds, outermost first, the definition level at which a list on
	// the way to the leaf has an element. One less means that it is empty,
	// still less that it or something above is null.
	lists []int
	// tokens says that the innermost list was named without [] and holds
	// integers, and so is read as token ids.
	tokens bool
}

// resolve finds the leaf or group that path names.
func (root *node) resolve(name string, path fieldpath.Path) (field, error) {
	var f field
	at := place{root, true}
	for i, step := range path {
		elem, repeated, isList := at.element()
		switch {
		case step.Each && isList:
			f.lists = append(f.lists, repeated.maxDef)
			at = elem
		case step.Each:
			return f, fault.Userf("column %q: %q is not a list; leave out the []", name, path[:i])
		case isList:
			fixed := append(append(append(fieldpath.Path{}, path[:i]...), fieldpath.Step{Each: true}), path[i:]...)
			return f, fault.Userf("column %q: %q is a list; write %q", name, path[:i], fixed)
		default:
			child, err := at.node.child(name, step.Key)
			if err != nil {
				return f, err
			}
			if child == nil {
				return f, format.NoSuchColumn(name, root.paths())
			}
			at = place{child, false}
		}
	}
	f.named = at
	return f, root.finish(&f, at, name)
}

// finish steps through the lists that the path left unsaid, down to the leaf or group.
func (root *node) finish(f *field, at place, name string) error {
	for !at.isObject() {
		elem, repeated, isList := at.element()
		if !isList {
			break
		}
		f.lists = append(f.lists, repeated.maxDef)
		f.unsaid++
		at = elem
	}
	if at.isObject() {
		f.object = at
		return nil
	}
	f.leaf = at.node
	f.tokens = f.unsaid > 0 && at.node.isInteger()
	return at.node.trusted(name)
}

// trusted checks that the leaf is stored as its annotation says.
func (n *node) trusted(column string) error {
	if want, ok := n.annotated(); ok && want != n.physical {
		return fault.Userf("column %q is annotated as a type that is stored as %s, and stored as %s: its values cannot be trusted; write the file again", column, want, n.physical)
	}
	return nil
}

// annotated returns the physical type that the annotation of an integer, date
// or time belongs to.
func (n *node) annotated() (pq.Type, bool) {
	switch {
	case n.logical == logicalInteger:
		if n.bits == 64 {
			return pq.Int64, true
		}
		return pq.Int32, true
	case n.logical == logicalDate:
		return pq.Int32, true
	case n.logical == logicalTimestamp:
		return pq.Int64, true
	case n.logical != 0:
		return 0, false
	}
	switch n.converted {
	case convertedTimeMicros, convertedTimestampMillis, convertedTimestampMicros, convertedUint64, convertedInt64:
		return pq.Int64, true
	case convertedDate, convertedTimeMillis:
		return pq.Int32, true
	}
	return pq.Int32, n.converted >= convertedUint8 && n.converted <= convertedInt64
}

// child returns the field of that name, nil if there is none. Of two it cannot be known which one is meant.
func (n *node) child(column, name string) (found *node, err error) {
	for _, c := range n.children {
		if c.name != name {
			continue
		}
		if found != nil {
			return nil, fault.Userf("column %q: there are two fields named %q; rename one", column, name)
		}
		found = c
	}
	return found, nil
}

// paths lists the columns of the schema as field paths.
func (n *node) paths() []string { return appendPaths(nil, place{n, true}, nil) }

func appendPaths(have []string, at place, path fieldpath.Path) []string {
	lists := path
	for {
		elem, _, isList := at.element()
		if !isList {
			break
		}
		at, lists = elem, append(lists[:len(lists):len(lists)], fieldpath.Step{Each: true})
	}
	if at.node.leaf {
		if at.node.isInteger() && len(lists) > len(path) {
			lists = path // a plain name reads a list of integers as tokens
		}
		return append(have, lists.String())
	}
	if len(path) > 0 {
		have = append(have, path.String()) // of objects
	}
	for _, c := range at.node.children {
		have = appendPaths(have, place{c, false}, append(lists[:len(lists):len(lists)], fieldpath.Step{Key: c.name}))
	}
	return have
}

// levelWidth is the number of bits of a level up to max.
func levelWidth(max int) int { return bits.Len(uint(max)) }
