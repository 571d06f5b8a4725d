package strategy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/didyoumean"
	"github.com/millrace-data/millrace/internal/fault"
)

// RowMethod is a method of one's own for the level inside microbatches: it says which row each
// sample goes to, under the token cap. Its result is checked, and used as it is.
type RowMethod interface {
	// Name is what errors, job specs and the job's identity call the method. Take another one
	// when what it does changes.
	Name() string
	// Assign returns the row of each sample. It must be a function of its argument, whose slices
	// are its own.
	Assign(in RowSamples) ([]int32, error)
}

// RowSamples are the samples of a step's rows, a column for each field, and the rows that they are
// packed into.
type RowSamples struct {
	Tokens   []int32 // that each takes of a row
	Costs    []int64 // of each, in units of the cost model
	Row      []int32 // where each was packed, 0 to Rows-1
	Rows     int     //
	Capacity int32   // tokens of a row
}

// By returns the rows that a method gives the samples. An error names the method and the first
// sample or row that is wrong.
func (in RowSamples) By(m RowMethod) (row []int32, err error) {
	defer func() {
		if r := recover(); r != nil {
			row, err = nil, fmt.Errorf("method %q panicked: %v", m.Name(), where(r))
		}
	}()
	given := in // the method's own, as the result is checked by in
	given.Tokens, given.Costs, given.Row = slices.Clone(in.Tokens), slices.Clone(in.Costs), slices.Clone(in.Row)
	if row, err = m.Assign(given); err == nil {
		err = in.check(row)
	}
	if err != nil {
		return nil, fmt.Errorf("method %q: %w", m.Name(), err)
	}
	return row, nil
}

func (in RowSamples) check(row []int32) error {
	if len(row) != len(in.Tokens) {
		return fmt.Errorf("%d samples have a row, and there are %d", len(row), len(in.Tokens))
	}
	tokens := make([]int64, in.Rows)
	for i, r := range row {
		if r < 0 || int(r) >= in.Rows {
			return fmt.Errorf("sample %d goes to row %d; rows are 0 to %d", i, r, in.Rows-1)
		}
		if tokens[r] += int64(in.Tokens[i]); tokens[r] > int64(in.Capacity) {
			return fmt.Errorf("sample %d makes row %d %d tokens long; it has room for %d", i, r, tokens[r], in.Capacity)
		}
	}
	return nil
}

// RowMethods holds the row methods of a program by the names that job specs give them, as
// `balance: {row_method: NAME}`. It is read only once it is in use; nil is empty.
type RowMethods map[string]RowMethod

// Check returns an error of class user for an empty name, a nil method, or one that calls
// itself something else.
func (m RowMethods) Check() error {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		switch method := m[name]; {
		case strings.TrimSpace(name) == "" || name == "auto" || method == nil:
			return fault.Userf("row method %q: a name other than auto and a method are needed", name)
		case method.Name() != name:
			return fault.Userf("row method %q calls itself %q: register it under its name", name, method.Name())
		}
	}
	return nil
}

// Named returns the row method of a name, nil for auto and "", the one that is built in.
func (m RowMethods) Named(name string) (RowMethod, error) {
	if method := m[name]; method != nil || name == "" || name == "auto" {
		return method, nil
	}
	names := append(slices.Sorted(maps.Keys(m)), "auto")
	text := fmt.Sprintf("; valid are %s, and others in a program of your own that registers them", strings.Join(names, ", "))
	if near := didyoumean.Nearest(name, names); near != "" {
		text = fmt.Sprintf(", did you mean %q? Valid are %s", near, strings.Join(names, ", "))
	}
	return nil, fault.Userf("strategy: no row method is registered as %q%s", name, text)
}
