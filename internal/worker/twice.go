package worker

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
)

// piece maps one batch, and maps it again if it is asked for.
func (f *Function) piece(ctx context.Context, r rows) (result, error) {
	first, err := f.insist(ctx, r)
	if err != nil || !f.use.Twice || f.stops(first, r) {
		return first, err
	}
	r.hi, r.most = first.end, 0
	again := make([]result, 1, 2)
	if r.hi-r.lo == 1 {
		again[0], err = f.insist(ctx, r)
	} else {
		left, right := r.uneven()
		again = again[:2] // the second part first, for functions that count
		if again[1], err = f.insist(ctx, right); err == nil {
			again[0], err = f.insist(ctx, left)
		}
	}
	if err != nil {
		return first, err
	}
	return first, f.compare(first, combine(again...))
}

// uneven divides rows so that a function that counts its calls up to a small number and begins again is at another count
// when it has a row again: the second part, which runs first, has no divisor of 10 or less.
func (r rows) uneven() (left, right rows) {
	n := (r.hi - r.lo) / 2
	for slices.ContainsFunc([]int{2, 3, 5, 7}, func(p int) bool { return n%p == 0 }) {
		n--
	}
	left, right = r, r
	left.hi = r.hi - n
	right.lo = left.hi
	return left, right
}

// compare returns an error of class fault.User if two runs differ.
func (f *Function) compare(a, b result) error {
	const rule = "it must depend on its row only, not on other rows, the time, or chance other than rng"
	what := func(where string) error {
		return fault.Userf("function %s gives something else when it runs again%s: %s: %s", f.use.Name, places(a, b), where, rule)
	}
	if len(a.bad) != len(b.bad) {
		return what(fmt.Sprintf("%d rows fail, then %d", len(a.bad), len(b.bad)))
	}
	for i := range a.bad {
		if a.bad[i].at != b.bad[i].at {
			return what("other rows fail")
		}
	}
	if len(a.from) != len(b.from) {
		return what(fmt.Sprintf("%d rows, then %d", len(a.from), len(b.from)))
	}
	for i := range a.from {
		if a.from[i] != b.from[i] {
			return what(fmt.Sprintf("row %d of the output comes from another row", i))
		}
	}
	for i := range a.columns {
		if row := differs(&a.columns[i], &b.columns[i]); row >= 0 {
			return what(fmt.Sprintf("column %q of row %d of the output", f.what.Out[i].Name, row))
		}
	}
	return nil
}

// places says where two runs were, if not both were here.
func places(a, b result) string {
	if a.where == "" && b.where == "" {
		return ""
	}
	return fmt.Sprintf(" (first %s, then %s)", place(a), place(b))
}

func place(r result) string {
	if r.where == "" {
		return "here"
	}
	return "on worker pool " + r.where
}
