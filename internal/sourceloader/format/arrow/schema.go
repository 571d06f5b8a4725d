package arrow

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/fieldpath"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/columnar"
)

// kind is a type of the Type union in Arrow's Schema.fbs, by number.
type kind uint8

const (
	kindNull kind = iota + 1
	kindInt
	kindFloat
	kindBinary
	kindUtf8
	kindBool
	kindDecimal
	kindDate
	kindTime
	kindTimestamp
	kindInterval
	kindList
	kindStruct
	kindUnion
	kindFixedBinary
	kindFixedList
	kindMap
	kindDuration
	kindLargeBinary
	kindLargeUtf8
	kindLargeList
	kindRunEnd
	kindBinaryView
	kindUtf8View
	kindListView
	kindLargeListView
)

var kindNames = [...]string{
	"unknown", "null", "int", "float", "binary", "utf8", "bool", "decimal", "date", "time", "timestamp", "interval", "list",
	"struct", "union", "fixed_size_binary", "fixed_size_list", "map", "duration", "large_binary", "large_utf8", "large_list",
	"run_end_encoded", "binary_view", "utf8_view", "list_view", "large_list_view",
}

func (k kind) String() string { return kindNames[min(int(k), int(kindLargeListView))] }

// field is a node of the schema tree.
type field struct {
	name     string
	kind     kind
	width    int // of a value, in bytes; elements of a fixed-size list
	signed   bool
	scale    int  // of a decimal
	dense    bool // of a union
	isJSON   bool // text that holds JSON, by its extension type
	children []*field

	// dictionary, if set, says that batches hold indexes into a dictionary,
	// whose values the rest of the field describes.
	dictionary *dictionary
}

type dictionary struct {
	id     int64
	width  int // of an index, in bytes
	signed bool
}

// maxDepth bounds the nesting of a hostile schema.
const maxDepth = 64

// readSchema reads the Schema table. Its root field is a struct of the
// columns.
func readSchema(t flatTable) (*field, error) {
	if t.int16(0, 0) != 0 {
		return nil, fault.Userf("the file is big-endian, which is not supported; write it on a little-endian machine")
	}
	root := &field{kind: kindStruct}
	if err := root.readChildren(t, 1, 0); err != nil {
		return nil, err
	}
	return root, t.b.err()
}

func (f *field) readChildren(t flatTable, id, depth int) error {
	start, n := t.vector(id, 4)
	if depth > maxDepth {
		return fault.Userf("the schema nests more than %d deep (damaged)", maxDepth)
	}
	for i := range n {
		child, err := readField(t.element(start, i), depth)
		if err != nil {
			return err
		}
		f.children = append(f.children, child)
	}
	return nil
}

func readField(t flatTable, depth int) (*field, error) {
	f := &field{name: t.string(0), kind: kind(t.int8(2, 0))}
	if f.kind == 0 || f.kind > kindLargeListView {
		return nil, fault.Userf("the field %q is of the unknown type %d", f.name, f.kind)
	}
	typ, _ := t.table(3)
	if err := f.readType(typ); err != nil {
		return nil, err
	}
	if d, ok := t.table(4); ok {
		index, ok := d.table(1)
		f.dictionary = &dictionary{id: d.int64(0), width: 4, signed: true}
		if ok {
			f.dictionary.width, f.dictionary.signed = int(index.int32(0, 0))/8, index.int8(1, 0) != 0
		}
		if w := f.dictionary.width; w != 1 && w != 2 && w != 4 && w != 8 {
			return nil, fault.Userf("the field %q has dictionary indexes of %d bytes (1, 2, 4 or 8)", f.name, w)
		}
	}
	if err := f.readChildren(t, 5, depth+1); err != nil {
		return nil, err
	}
	f.isJSON = extension(t) == "arrow.json"
	if _, list := f.element(); list && len(f.children) != 1 {
		return nil, fault.Userf("the field %q is a %s of %d types, not one (damaged)", f.name, f.kind, len(f.children))
	}
	if f.kind == kindMap { // what writers call the two differs
		for i, c := range f.children[0].children[:min(2, len(f.children[0].children))] {
			c.name = columnar.MapNames[i]
		}
	}
	return f, t.b.err()
}

// extension returns the name of the extension type of a field, "" if it is of none.
func extension(t flatTable) string {
	start, n := t.vector(6, 4)
	for i := range n {
		if pair := t.element(start, i); pair.string(0) == "ARROW:extension:name" {
			return pair.string(1)
		}
	}
	return ""
}

// readType reads the parameters of the type.
func (f *field) readType(t flatTable) error {
	switch f.kind {
	case kindInt:
		f.width, f.signed = int(t.int32(0, 0))/8, t.int8(1, 0) != 0
	case kindFloat:
		f.width = 2 << min(uint16(t.int16(0, 0)), 3)
	case kindDecimal:
		f.scale, f.width = int(t.int32(1, 0)), int(t.int32(2, 128))/8
	case kindDate:
		f.width, f.signed = 4+4*min(int(uint16(t.int16(0, 1))), 2), true
	case kindTime:
		f.width, f.signed = int(t.int32(1, 32))/8, true
	case kindTimestamp, kindDuration:
		f.width, f.signed = 8, true
	case kindUnion:
		f.dense = t.int16(0, 0) == 1
	case kindFixedBinary, kindFixedList:
		f.width = int(t.int32(0, 0))
		if f.width < 0 {
			return fault.Userf("the field %q has the size %d (damaged)", f.name, f.width)
		}
		return nil
	default:
		return nil
	}
	valid := f.width == 1 || f.width == 2 || f.width == 4 || f.width == 8
	if f.kind == kindDecimal {
		valid = f.width == 4 || f.width == 8 || f.width == 16 || f.width == 32
	}
	if !valid && f.kind != kindUnion {
		return fault.Userf("the field %q is a %s of %d bytes, which there is not (damaged)", f.name, f.kind, f.width)
	}
	return nil
}

// element returns the field of a list's elements.
func (f *field) element() (*field, bool) {
	switch f.kind {
	case kindList, kindLargeList, kindFixedList, kindListView, kindLargeListView, kindMap:
		if len(f.children) == 1 {
			return f.children[0], true
		}
		return nil, true
	}
	return nil, false
}

// columnPath is a field path resolved against a schema: from the root on, the
// number of the child to go to at each struct and eachElement at each list.
type columnPath struct {
	steps  []int
	named  int      // of the steps, those that the path says
	fields []*field // that the steps lead through, root first
	leaf   *field   // or struct or map, whose values are objects
	// tokens says that the innermost list was named without [] and holds
	// integers, and so is read as token ids.
	tokens bool
}

const eachElement = -1

func (root *field) resolve(name string, path fieldpath.Path) (columnPath, error) {
	p := columnPath{leaf: root}
	for i, step := range path {
		elem, isList := p.leaf.element()
		switch {
		case step.Each && isList:
			p.step(eachElement, elem)
		case step.Each:
			return p, fault.Userf("column %q: %q is not a list; leave out the []", name, path[:i])
		case isList:
			fixed := append(append(append(fieldpath.Path{}, path[:i]...), fieldpath.Step{Each: true}), path[i:]...)
			return p, fault.Userf("column %q: %q is a list; write %q", name, path[:i], fixed)
		default:
			n, err := p.leaf.child(name, step.Key)
			if err != nil {
				return p, err
			}
			if n < 0 {
				return p, format.NoSuchColumn(name, root.paths())
			}
			p.step(n, p.leaf.children[n])
		}
	}
	p.named = len(p.steps)
	for !p.leaf.isObject() {
		elem, isList := p.leaf.element()
		if !isList {
			break
		}
		p.step(eachElement, elem)
		p.tokens = elem.kind == kindInt
	}
	if p.leaf.isObject() {
		return p, p.leaf.writable(name)
	}
	return p, p.leaf.readable(name)
}

// isObject reports whether values of the field are objects: groups of fields, or maps.
func (f *field) isObject() bool { return f.kind == kindStruct || f.isMap() }

// isMap reports whether the field is a map of keys to values.
func (f *field) isMap() bool {
	return f.kind == kindMap && f.children[0].kind == kindStruct && len(f.children[0].children) == 2 && !f.children[0].children[0].nested()
}

func (f *field) nested() bool {
	_, list := f.element()
	return list || f.kind == kindStruct || f.kind == kindUnion || f.kind == kindRunEnd
}

// writable checks that a field can be part of an object.
func (f *field) writable(path string) error {
	if err := f.readable(path); err != nil {
		return err
	}
	if elem, list := f.element(); list && !f.isMap() {
		return elem.writable(path + "[]")
	}
	fields, prefix := f.children, path+"."
	if f.isMap() {
		fields, prefix = f.children[0].children, path+"[]."
	}
	for i, c := range fields {
		if slices.ContainsFunc(fields[:i], func(before *field) bool { return before.name == c.name }) {
			return fault.Userf("column %q: there are two fields named %q; rename one", path, c.name)
		}
		if err := c.writable(prefix + c.name); err != nil {
			return err
		}
	}
	return nil
}

func (p *columnPath) step(n int, to *field) {
	p.steps, p.fields, p.leaf = append(p.steps, n), append(p.fields, p.leaf), to
}

// child returns the number of the struct's field of that name, or -1.
func (f *field) child(column, name string) (int, error) {
	found := -1
	if f.kind != kindStruct {
		return found, nil
	}
	for i, c := range f.children {
		if c.name == name && found >= 0 {
			return 0, fault.Userf("column %q: there are two fields named %q; rename one", column, name)
		}
		if c.name == name {
			found = i
		}
	}
	return found, nil
}

// readable checks that values of the field have a Kind.
func (f *field) readable(column string) error {
	switch f.kind {
	case kindUnion, kindRunEnd, kindInterval:
		return fault.Userf("column %q is of type %s, which is not supported; write it as a plain type", column, f.kind)
	}
	return nil
}

// paths lists the columns below the field as field paths.
func (f *field) paths() []string {
	var have []string
	for _, c := range f.children {
		have = c.appendPaths(have, fieldpath.Path{{Key: c.name}})
	}
	return have
}

func (f *field) appendPaths(have []string, path fieldpath.Path) []string {
	at, lists := f, path
	for {
		elem, isList := at.element()
		if !isList {
			break
		}
		at, lists = elem, append(lists[:len(lists):len(lists)], fieldpath.Step{Each: true})
	}
	if at.kind != kindStruct {
		if at.kind == kindInt {
			lists = path // a plain name reads a list of integers as tokens
		}
		return append(have, lists.String())
	}
	have = append(have, path.String())
	for _, c := range at.children {
		have = c.appendPaths(have, append(lists[:len(lists):len(lists)], fieldpath.Step{Key: c.name}))
	}
	return have
}

// nodeBuffers returns how many buffers a batch holds for the field itself; a
// union had a validity bitmap before version 5 of the metadata.
func (f *field) nodeBuffers(version int16) int {
	if f.dictionary != nil {
		return 2
	}
	switch f.kind {
	case kindNull, kindRunEnd:
		return 0
	case kindStruct, kindFixedList:
		return 1
	case kindBinary, kindUtf8, kindLargeBinary, kindLargeUtf8, kindListView, kindLargeListView:
		return 3
	case kindUnion:
		n := 1
		if f.dense {
			n++
		}
		if version < version5 {
			n++
		}
		return n
	}
	return 2 // validity, and values or offsets or views
}

func (f *field) isView() bool { return f.kind == kindBinaryView || f.kind == kindUtf8View }

// String describes the field for messages.
func (f *field) String() string { return fmt.Sprintf("%q (%s)", f.name, f.kind) }

// typeName adds the type of the field.
func (f *field) typeName(t *columnar.TypeName) {
	if t.Full() {
		return
	}
	if f.dictionary != nil {
		values := *f
		values.dictionary = nil
		t.Add("dictionary")
		t.Fields(1, func(int) { values.typeName(t) })
		return
	}
	switch elem, list := f.element(); {
	case f.isMap():
		t.Add("map")
		t.Fields(2, func(i int) { elem.children[i].typeName(t) })
	case list:
		t.Add(f.kind.String())
		t.Fields(1, func(int) { elem.typeName(t) })
	case f.kind == kindStruct:
		t.Add("struct")
		t.Fields(len(f.children), func(i int) {
			t.Add(f.children[i].name, ": ")
			f.children[i].typeName(t)
		})
	case f.isJSON:
		t.Add("json")
	case f.kind == kindUtf8:
		t.Add("string") // as in Parquet
	case f.kind == kindInt && !f.signed:
		t.Add("uint", strconv.Itoa(8*f.width))
	case f.kind == kindInt:
		t.Add("int", strconv.Itoa(8*f.width))
	default:
		t.Add(f.kind.String())
	}
}
