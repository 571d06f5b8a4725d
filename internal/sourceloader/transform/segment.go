package transform

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/didyoumean"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/fieldpath"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// Segment is a part of a chain: native steps, which are applied to a record one after the
// other, or a function. Between two segments records cross in batches.
type Segment struct {
	Name     string    // "text+filter", "python clean:strip"; "" if it only passes records on
	Function *Function // nil: native
	Fused    bool      // it runs in the task of the function before it
	Light    bool      // its steps take little time beside a call of a function
	In, Out  []Column  // of its records; the last segment gives samples
}

// native is a run of native steps.
type native struct {
	names    []string   // of the steps
	columns  []string   // of the records it takes, in the order of Record.Values
	users    []string   // of each column, the step that names it first
	beside   [][]string // of each column, what functions before that step give
	given    []string   // columns that functions before this run give
	requires []bool     // of each column, that records must have it
	reader   []int      // of each column, its place among those of the first run; -1 if a function gives it
	steps    []step
	out      []output // of the records it gives; the last run gives samples
	after    *call    // nil: this is the last run
	fused    bool     // it is a part of the task of the function before it
	heavy    bool     // a step takes much time
}

// output is a column of the records that a native run gives.
type output struct {
	name   string
	column int // of the run's records, or fromText
}

// call is a function in a chain.
type call struct {
	*Function
	label     string
	handsOver bool          // there is no function: what comes next is another task's
	in        []int         // places of its columns in the records before it
	sides     []format.Side // of each column of the next run: of the records before it, or of what it gives
}

// textState is the column of the current text between two segments. No field path ends in
// a dot. A person reads textName.
const (
	textState = "text."
	textName  = "{text}"
)

// Segments returns the parts of the chain: native ones with functions between, so that the
// first and the last are native. Between native steps of two tasks is one without a function and a name.
func (c *Chain) Segments() (segments []Segment) {
	in := columnsOf(c.runs[0].columns, nil)
	for i := range c.runs {
		run := &c.runs[i]
		s := Segment{Name: strings.Join(run.names, "+"), In: in, Fused: run.fused, Light: !run.heavy}
		if run.after == nil {
			return append(segments, s)
		}
		for _, out := range run.out {
			at := out.column
			if at == fromText {
				s.Out = append(s.Out, Column{Name: textName, Kind: format.String})
			} else {
				s.Out = append(s.Out, in[at])
			}
		}
		in = columnsOf(c.runs[i+1].columns, append(slices.Clone(run.after.Out), s.Out...))
		if run.after.handsOver {
			segments = append(segments, s, Segment{Fused: true, In: s.Out, Out: in})
			continue
		}
		segments = append(segments, s, Segment{Name: operatorOf(run.after.label) + " " + run.after.Name, Function: run.after.Function, In: run.after.In, Out: in})
	}
	return segments
}

// operatorOf is the operator of a step with this label, transforms[1].python.
func operatorOf(label string) string { return label[strings.LastIndexByte(label, '.')+1:] }

// columnsOf returns columns by name, with what is known of them.
func columnsOf(names []string, known []Column) (columns []Column) {
	for _, name := range names {
		if name == textState {
			name = textName
		}
		column := Column{Name: name, Null: true}
		if at := indexOf(known, name); at >= 0 {
			column = known[at]
		}
		columns = append(columns, column)
	}
	return columns
}

// run is the native run that is being compiled.
func (c *compiler) run() *native { return &c.chain.runs[len(c.chain.runs)-1] }

// function ends the run with the function of a step, and begins the next one.
func (c *compiler) function(label string, i int) error {
	if c.hasTokens {
		return fault.Userf("a %s step comes before the tokens are made: put it before the tokenize or tokens step", operatorOf(label))
	}
	if c.hasChat {
		return fault.Userf("a %s step after chat would lose which part of the text carries loss: put it before, where it may change the messages", operatorOf(label))
	}
	f, err := c.open(i)
	if err != nil {
		return err
	}
	f.Operator = operatorOf(label)
	at, run := len(c.chain.runs)-1, c.run()
	after := &call{Function: f, label: label}
	for _, in := range f.In {
		place, err := c.output(at, in.Name, !in.Null)
		if err != nil {
			return fmt.Errorf("column %q: %w", in.Name, err)
		}
		if in.Name != currentText || !c.hasText {
			if err := c.takes(in.Name, needOf(&in)); err != nil {
				return err
			}
		}
		after.in = append(after.in, place)
	}
	run.after = after
	c.chain.beyond = append(c.chain.beyond, f.Digest)
	c.hasText = c.hasText && indexOf(f.Out, currentText) < 0
	if err := c.begin(label); err != nil {
		return err
	}
	c.fuse(i)
	return nil
}

// begin begins a run, which has the current text if there is one.
func (c *compiler) begin(label string) error {
	before := c.run()
	given := slices.Clone(before.given)
	for _, out := range before.after.Out {
		given = append(given, out.Name)
	}
	c.chain.runs = append(c.chain.runs, native{given: given})
	if !c.hasText {
		return nil
	}
	_, err := c.column(textState)
	run := c.run()
	run.steps = append(run.steps, step{label, c.place, func(w *Worker, rec *format.Record) (bool, error) {
		w.text = rec.Values[0].Bytes
		return true, nil
	}})
	return err
}

// output returns the place of a column in the records that run at gives.
func (c *compiler) output(at int, name string, required bool) (int, error) {
	run := &c.chain.runs[at]
	out := output{name, fromText}
	if last := at == len(c.chain.runs)-1; name == currentText && last && c.hasText {
		out.name = textState
	} else if name != textState {
		place, err := c.columnOf(at, name, required)
		if err != nil {
			return 0, err
		}
		out.column = place
	}
	if place := slices.Index(run.out, out); place >= 0 {
		return place, nil
	}
	run.out = append(run.out, out)
	return len(run.out) - 1, nil
}

// columnOf returns the place of a column in the records that run at takes: a function
// before it gives the column, or else the reader.
func (c *compiler) columnOf(at int, path string, required bool) (int, error) {
	run := &c.chain.runs[at]
	place := slices.Index(run.columns, path)
	if place < 0 {
		if _, err := fieldpath.Parse(path); err != nil && path != textState {
			return 0, err
		}
		origin, err := c.supply(at, path)
		if err != nil {
			return 0, err
		}
		place = len(run.columns)
		run.columns, run.users = append(run.columns, path), append(run.users, c.label)
		run.beside = append(run.beside, c.run().given)
		run.requires, run.reader = append(run.requires, false), append(run.reader, origin)
	}
	if required {
		run.requires[place] = true
		if origin := run.reader[place]; origin >= 0 {
			c.chain.runs[0].requires[origin] = true
		}
	}
	return place, nil
}

// supply has a new column of run at come from where it is, and returns its place among
// those of the reader, -1 if it is none of them.
func (c *compiler) supply(at int, path string) (origin int, err error) {
	if at == 0 {
		return len(c.chain.runs[0].columns), nil
	}
	before := &c.chain.runs[at-1]
	f := before.after
	if given := f.gives(path); given >= 0 {
		f.sides = append(f.sides, format.Side{Right: true, Column: given})
		return -1, nil
	}
	if !slices.Contains(before.given, path) {
		if err := f.hides(path, before.given); err != nil {
			return 0, err
		}
	}
	place, err := c.output(at-1, path, false)
	if err != nil {
		return 0, err
	}
	f.sides = append(f.sides, format.Side{Column: place})
	if column := before.out[place].column; column != fromText {
		return before.reader[column], nil
	}
	return -1, nil
}

// gives returns the place of the column of a path among those that the function gives, -1 if it is none of them. Each
// element of a list is the list.
func (c *call) gives(path string) int {
	if given := indexOf(c.Out, path); given >= 0 {
		return given
	}
	list, each := strings.CutSuffix(path, "[]")
	if given := indexOf(c.Out, list); each && given >= 0 && c.Out[given].Kind == format.List {
		return given
	}
	return -1
}

// hides returns an error of class fault.User if a path leads into a column that the function gives. given are the columns that
// functions before it give.
func (c *call) hides(path string, given []string) error {
	hint := ""
	if near := didyoumean.Nearest(path, given); near != "" {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	for _, out := range c.Out {
		rest, in := strings.CutPrefix(path, out.Name)
		switch {
		case !in || path == textState || rest[0] != '.' && rest[0] != '[':
		case c.Operator == pythonOperator || c.Operator == callOperator:
			return fault.Userf("column %q is inside of %q, which %s (function %s) gives: only a step before that one can take it; or have the function give %[1]q itself%s", path, out.Name, c.label, c.Name, hint)
		default:
			return fault.Userf("column %q is inside of %q, in whose place %s puts something else: only a step before that one, such as text, can take it%s", path, out.Name, c.label, hint)
		}
	}
	return nil
}
