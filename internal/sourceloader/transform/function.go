package transform

import (
	"cmp"
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/imaging"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/jobspec"
)

// The kinds of functions.
const (
	MapFunction     = "map"      // one record of one
	FilterFunction  = "filter"   // keeps records, or leaves them out
	FlatMapFunction = "flat_map" // any number of records of one
)

// Column is a column of records between two segments of a chain.
type Column struct {
	Name    string
	Kind    format.Kind // format.Null: any
	Element format.Kind // of the elements of a List; format.Null: any
	Null    bool        // null is a value of it, and so is an absent field
}

// Function is an operator outside of the loader's process, as it describes itself.
type Function struct {
	Name     string   // as the job spec names it
	Operator string   // the step's name in job specs
	Kind     string   // map, filter or flat_map
	In       []Column // what it takes
	Out      []Column // what it gives; nothing if it is a filter
	Digest   [32]byte // of its code: other code gives other records
	// Runtime names the versions of what runs it, for a person: no digest covers them.
	Runtime string
	Pool    Pool // whose slots its calls take
	Caller  Caller
}

// Pool is what runs the calls of functions, those of one name together.
type Pool struct {
	Name  string  // "": one that all such functions share
	Slots int     // calls at a time that keep it busy
	Takes float64 // slots of a call; 0: one
	Heap  Heap    // nil: it is not known
	// Seats is how many calls at a time keep it busy now: Slots, or more while others help. nil: Slots.
	Seats func() int
}

// Heap is the memory that a pool takes outside of this process.
type Heap interface {
	// Held is how many bytes it has beyond what it needs to be there.
	Held() int64
	// Press has it take less, as long as anybody presses, at the cost of time. It never stands still for it.
	Press(who any, on bool)
}

// Caller runs a function on records. It is safe for concurrent use.
type Caller interface {
	// Call takes good records with the columns Function.In, none of them null unless the
	// column may be, and returns records with the columns Function.Out; record i comes of record from[i] of in, and from never falls. A
	// record that the function does not take, or fails on, is one bad record of out, whose error of class
	// fault.User says what the function said. An error of Call is about all records: lost if
	// the same call may succeed, user if the function cannot run at all.
	Call(ctx context.Context, in *format.Batch) (out *format.Batch, from []int32, err error)
}

// Awaiting is a Caller that calls on what is outside of the service.
type Awaiting interface {
	Caller
	// Awaits says what does not answer, why and for how long; "" if all does.
	Awaits() string
}

// Ending is a Caller that can end a call before all records are done, so that what it gives is not more than
// a bound and one record's.
type Ending interface {
	// CallSome is Call of the records from the first one on. It leaves those from end on, if
	// what comes out before them has most bytes, but does at least one. With most 0 it does all. Where it ends
	// may depend on anything.
	CallSome(ctx context.Context, in *format.Batch, first int, most int64) (out *format.Batch, from []int32, end int, err error)
}

// Functions opens the function of a step of a source whose paths are resolved; seed is the
// job's. It may be asked for the same one several times. What it opens, whoever made it closes.
type Functions func(seed uint64, src *jobspec.Source, step int) (*Function, error)

// Shared is what the chains of a job share. A nil Shared shares nothing, and has no functions.
type Shared struct {
	Tokenizers *Tokenizers
	Functions  Functions // nil: a source with a function does not compile
	Seed       uint64    // of the job
	// Room is where workers take the memory that pictures and sounds are decoded in; nil: there is no limit.
	Room imaging.Room
}

// NewShared returns what the chains of a job with this seed share.
func NewShared(seed uint64, functions Functions) *Shared {
	return &Shared{Tokenizers: NewTokenizers(), Functions: functions, Seed: seed}
}

// open opens the function of a step, and checks its description.
func (c *compiler) open(step int) (*Function, error) {
	if c.shared.Functions == nil {
		return nil, fault.Userf("a %s step needs worker processes or a server, and this program opens none", operatorOf(c.label))
	}
	f, err := c.shared.Functions(c.shared.Seed, c.source, step)
	if err != nil {
		return nil, err
	}
	switch {
	case f.Kind != MapFunction && f.Kind != FilterFunction && f.Kind != FlatMapFunction:
		return nil, fmt.Errorf("function %s is of kind %q; valid are %s, %s and %s", f.Name, f.Kind, MapFunction, FilterFunction, FlatMapFunction)
	case f.Kind == FilterFunction && len(f.Out) > 0:
		return nil, fmt.Errorf("function %s is a filter, and gives columns", f.Name)
	case f.Kind != FilterFunction && len(f.Out) == 0:
		return nil, fault.Userf("function %s gives no column: a later step needs one; a function that only leaves records out is a filter", f.Name)
	}
	for i, column := range f.Out {
		if at := indexOf(f.Out[:i], column.Name); at >= 0 {
			return nil, fault.Userf("function %s gives column %q twice", f.Name, column.Name)
		}
	}
	return f, nil
}

func indexOf(columns []Column, name string) int {
	for i, c := range columns {
		if c.Name == name {
			return i
		}
	}
	return -1
}

// accepts says what is wrong with a value of the column, "" if nothing.
func (c *Column) accepts(v *format.Value) string {
	switch {
	case v.Kind == format.Null && c.Null, c.Kind == format.Null:
		return ""
	case v.Kind != c.Kind:
		return fmt.Sprintf("it is %s, not %s", kindWords(v.Kind), kindWords(c.Kind))
	case c.Kind != format.List || c.Element == format.Null:
		return ""
	}
	for i := range v.List {
		if kind := v.List[i].Kind; kind != c.Element {
			return fmt.Sprintf("its element %d is %s, not %s", i, kindWords(kind), kindWords(c.Element))
		}
	}
	return ""
}

// kindWords names a kind for a person.
func kindWords(k format.Kind) string {
	words := [...]string{format.Null: "null", format.String: "a text", format.Bytes: "bytes", format.Int: "an integer", format.Float: "a number with a fraction",
		format.Bool: "true or false", format.Tokens: "token ids", format.List: "a list"}
	if int(k) < len(words) {
		return words[k]
	}
	return fmt.Sprintf("of kind %d", k)
}

// some calls the function for records from the first one on, until most bytes have come out.
func (f *Function) some(ctx context.Context, in *format.Batch, first int, most int64) (out *format.Batch, from []int32, end int, err error) {
	if e, ok := f.Caller.(Ending); ok && (most > 0 || first > 0) {
		out, from, end, err = e.CallSome(ctx, in, first, most)
	} else {
		out, from, err = f.Caller.Call(ctx, in)
		first, end = 0, in.Len()
	}
	if err == nil {
		err = f.outputs(first, end, in.Len(), out, from)
	}
	return out, from, end, err
}

// outputs checks what a call returned for records first to end of n: whoever breaks these rules is a bug.
func (f *Function) outputs(first, end, n int, out *format.Batch, from []int32) error {
	if out.Len() != len(from) {
		return fmt.Errorf("function %s gave %d records and the origins of %d", f.Name, out.Len(), len(from))
	}
	if end <= first || end > n {
		return fmt.Errorf("function %s ended at record %d of %d, and began at %d", f.Name, end, n, first)
	}
	if f.Kind == MapFunction && len(from) != end-first {
		return fmt.Errorf("function %s gave %d records for %d, though it is a map", f.Name, len(from), end-first)
	}
	last := int32(first)
	for i, at := range from {
		step := int32(cmp.Compare(i, 0)) // to the next origin, at the least
		if f.Kind == FlatMapFunction {
			step = 0
		}
		switch {
		case int(at) < first || int(at) >= end:
			return fmt.Errorf("function %s gave record %d of record %d, of %d", f.Name, i, at, n)
		case at < last+step:
			return fmt.Errorf("function %s, a %s, gave record %d of record %d after one of record %d", f.Name, f.Kind, i, at, last)
		}
		last = at
	}
	return nil
}
