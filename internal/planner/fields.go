package planner

import (
	"fmt"
	"slices"
	"strings"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// AbsentField is a field that a source names and some of its records lack.
type AbsentField struct {
	Field   string `json:"field"`
	Records uint64 `json:"records"` // that lack it
	Of      uint64 `json:"of"`      // records read
	Hint    string `json:"hint"`    // what one of them has in its place
}

// Nowhere says that no record has the field.
func (f AbsentField) Nowhere() bool { return f.Records == f.Of }

// String says so, for a person.
func (f AbsentField) String() string {
	if f.Nowhere() {
		return fmt.Sprintf("none of the %d records read has a field %q%s", f.Of, f.Field, f.Hint)
	}
	return fmt.Sprintf("%d of the %d records read have no field %q", f.Records, f.Of, f.Field)
}

// fields counts the records of a source, and the fields that they lack.
type fields struct {
	records uint64
	absent  []*pb.AbsentField // by path
}

// add counts a block, and returns the fields that no earlier one lacked.
func (f *fields) add(b *pb.BlockRead) (first []string) {
	f.records += b.Records
	for _, a := range b.Absent {
		at, known := slices.BinarySearchFunc(f.absent, a.Path, func(x *pb.AbsentField, path string) int { return strings.Compare(x.Path, path) })
		if !known {
			f.absent = slices.Insert(f.absent, at, &pb.AbsentField{Path: a.Path, Hint: a.Hint})
			first = append(first, a.Path)
		}
		f.absent[at].Records += a.Records
	}
	return first
}

func (f *fields) list() (list []AbsentField) {
	for _, a := range f.absent {
		list = append(list, AbsentField{Field: a.Path, Records: a.Records, Of: f.records, Hint: a.Hint})
	}
	return list
}

// nowhere says that no record of a block has some field; "" if there is no such.
func nowhere(b *pb.BlockRead) string {
	for _, a := range b.Absent {
		if f := (AbsentField{Field: a.Path, Records: a.Records, Of: b.Records, Hint: a.Hint}); f.Nowhere() {
			return f.String()
		}
	}
	return ""
}

// Absent are the fields that source i names and records lack, of all blocks that were
// read so far.
func (d *Dry) Absent(i int) []AbsentField { return d.p.ledger[i].fields.list() }
