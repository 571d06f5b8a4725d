package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// Use is what a step of a source uses a function for.
type Use struct {
	Name string // module:function
	// Seed is the job's, and Source its source's name: what is drawn by chance is keyed by
	// them, by the number that format.WithFile gives the file, and by the row.
	Seed   uint64
	Source string
	Step   string // as the log names it
	// Twice runs each batch a second time, divided elsewhere, and compares.
	Twice bool
}

// Function is a function in use. It is safe for concurrent use.
type Function struct {
	env  *Environment
	use  Use
	what Description
	in   []Type
	out  []Type
	// most is the bytes of a batch: fewer than the environment's after one took too long,
	// and more again after each that took a quarter of its time.
	most atomic.Int64
}

// Function returns a function for a step.
func (e *Environment) Function(ctx context.Context, use Use) (*Function, error) {
	d, err := e.Describe(ctx, use.Name)
	if err != nil {
		return nil, err
	}
	f := &Function{env: e, use: use, what: d, in: types(d.In), out: types(d.Out)}
	f.most.Store(int64(e.opt.BatchBytes))
	return f, nil
}

// Description returns what the function declares.
func (f *Function) Description() Description { return f.what }

// rows is a range of the good records of a call, by columns.
type rows struct {
	columns []format.Column
	keys    []key // nil unless the function draws by chance
	file    int
	lo, hi  int
}

// result is what rows became.
type result struct {
	columns []format.Column
	from    []int32 // of each row that came out, the place among the rows of the call
	bad     []badRow
}

type badRow struct {
	at  int
	err error
}

// Call maps a batch, whose columns are those of Description.In in order, to one of the
// columns of Description.Out. Row i of out came from row from[i] of in. A row that cannot
// be mapped is a bad record of out, with an error of class fault.User of what the function
// said; a bad record of in stays as it is. The error of the call is about the function
// (user), or about workers that are lost too often (lost).
func (f *Function) Call(ctx context.Context, in *format.Batch) (out *format.Batch, from []int32, err error) {
	file, known := format.FileOf(ctx)
	if f.what.Rng && !known {
		return nil, nil, fmt.Errorf("function %s draws by chance, and the call does not say which file it is for", f.use.Name)
	}
	c := &call{in: in, errs: map[int]error{}}
	if err := f.check(c); err != nil {
		return nil, nil, err
	}
	r := rows{columns: c.columns, file: file, hi: c.count}
	if f.what.Rng {
		for i := range c.count {
			row, part := in.Key(c.place(i))
			r.keys = append(r.keys, key{row, int64(part)})
		}
	}
	if r.hi == 0 {
		out, from = c.merge(result{columns: f.empty()})
		return out, from, nil
	}
	done, err := f.pieces(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	out, from = c.merge(done)
	return out, from, nil
}

// call is a batch on its way.
type call struct {
	in      *format.Batch
	columns []format.Column
	count   int           // rows of columns
	places  []int32       // in the batch, of each row of columns; nil if none is left out
	errs    map[int]error // of bad records
}

func (c *call) place(row int) int {
	if c.places == nil {
		return row
	}
	return int(c.places[row])
}

// check leaves out bad records, and those whose values are not what the function takes.
func (f *Function) check(c *call) error {
	c.columns, c.count = c.in.Columns(), c.in.Len()
	if c.in.Refused() {
		for i := range c.count {
			if err := c.in.Bad(i); err != nil {
				c.errs[i] = err
			}
		}
		c.drop()
	}
	if c.count == 0 {
		return nil
	}
	if len(c.columns) != len(f.in) {
		return fmt.Errorf("function %s takes %d columns, and the batch has %d", f.use.Name, len(f.in), len(c.columns))
	}
	before := len(c.errs)
	for i, t := range f.in {
		if t.fits(span{&c.columns[i], 0, c.count}) {
			continue
		}
		for row := range c.count {
			if why := t.misfit(&c.columns[i], row); why != "" && c.errs[c.place(row)] == nil {
				c.errs[c.place(row)] = fault.Userf("column %q %s", f.what.In[i].Name, why)
			}
		}
	}
	if len(c.errs) > before {
		c.drop()
	}
	return nil
}

// drop leaves the records out that have an error.
func (c *call) drop() {
	columns := make([]int, len(c.columns))
	for i := range columns {
		columns[i] = i
	}
	good, places := c.in.Good(columns, c.errs)
	c.columns, c.count, c.places = good.Columns(), good.Len(), places
}

// empty are output columns without a row.
func (f *Function) empty() []format.Column {
	columns := make([]format.Column, len(f.out))
	for i, t := range f.out {
		for c := &columns[i]; t.Of != nil; t = *t.Of {
			c.Elements = &format.Column{}
			c = c.Elements
		}
	}
	return columns
}

// merge puts bad records between those that came out.
func (c *call) merge(r result) (*format.Batch, []int32) {
	for _, b := range r.bad {
		c.errs[c.place(b.at)] = b.err
	}
	if len(c.errs) == 0 && len(r.from) == c.in.Len() && ascends(r.from) {
		return format.FromColumns(c.in.Rows(), nil, r.columns), r.from
	}
	all, n := c.in.Rows(), len(r.from)+len(c.errs)
	rows, bad, from := make([]int64, 0, n), make([]error, 0, n), make([]int32, 0, n)
	add := func(at int, err error) {
		rows, bad, from = append(rows, all[at]), append(bad, err), append(from, int32(at))
	}
	failed := slices.Sorted(maps.Keys(c.errs))
	for _, row := range r.from {
		at := c.place(int(row))
		for ; len(failed) > 0 && failed[0] < at; failed = failed[1:] {
			add(failed[0], c.errs[failed[0]])
		}
		add(at, nil)
	}
	for _, at := range failed {
		add(at, c.errs[at])
	}
	return format.FromColumns(rows, bad, r.columns), from
}

// ascends reports whether each row gave one.
func ascends(from []int32) bool {
	for i, at := range from {
		if int(at) != i {
			return false
		}
	}
	return true
}

// pieces maps rows in batches of the environment's size, as many at a time as its workers take.
func (f *Function) pieces(ctx context.Context, r rows) (result, error) {
	cuts := f.cut(nil, r)
	done := make([]result, len(cuts))
	if len(cuts) == 1 {
		return f.piece(ctx, cuts[0])
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(seatsEach * f.env.opt.Workers)
	for i, piece := range cuts {
		group.Go(func() (err error) {
			done[i], err = f.piece(ctx, piece)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return result{}, err
	}
	return combine(done...), nil
}

// cut halves rows until each part is a batch.
func (f *Function) cut(to []rows, r rows) []rows {
	if r.hi-r.lo == 1 || int64(f.size(r)) <= f.most.Load() {
		return append(to, r)
	}
	left, right := r.halves()
	return f.cut(f.cut(to, left), right)
}

func (f *Function) size(r rows) int { return sizeOf(r.columns, f.in, r.lo, r.hi, r.keys != nil) }

func (r rows) halves() (left, right rows) {
	left, right = r, r
	left.hi = (r.lo + r.hi) / 2
	right.lo = left.hi
	return left, right
}

func combine(parts ...result) result {
	all := parts[0]
	for _, r := range parts[1:] {
		all.columns = join(all.columns, r.columns)
		all.from = append(all.from, r.from...)
		all.bad = append(all.bad, r.bad...)
	}
	return all
}

// piece maps one batch, and maps it again if it is asked for.
func (f *Function) piece(ctx context.Context, r rows) (result, error) {
	first, err := f.insist(ctx, r)
	if err != nil || !f.use.Twice {
		return first, err
	}
	again := make([]result, 1, 2)
	if r.hi-r.lo == 1 {
		again[0], err = f.insist(ctx, r)
	} else {
		left, right := r.halves()
		again = again[:2] // the second half first, for functions that count
		if again[1], err = f.insist(ctx, right); err == nil {
			again[0], err = f.insist(ctx, left)
		}
	}
	if err != nil {
		return first, err
	}
	return first, f.compare(first, combine(again...))
}

// compare returns an error of class fault.User if two runs differ.
func (f *Function) compare(a, b result) error {
	const rule = "it must depend on its row only, not on other rows, the time, or chance other than rng"
	what := func(where string) error {
		return fault.Userf("function %s gives something else when it runs again: %s: %s", f.use.Name, where, rule)
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

// Limits of how often a batch is run again.
const (
	// ownDeaths is how often a batch may end its worker before it is halved, or its row given
	// up: once may have another cause.
	ownDeaths = 2
	// outsideDeaths is how often a row may lose its worker to something outside of it.
	outsideDeaths = 8
	// otherDeaths is how often a batch may lose its worker to another one's work.
	otherDeaths = 64
)

// insist maps rows whatever becomes of workers: what ends one again is halved, and so is
// what raises without saying for which row.
func (f *Function) insist(ctx context.Context, r rows) (result, error) {
	var deaths [3]int // own, outside, other
	for {
		begin := time.Now()
		done, death, err := f.once(ctx, r)
		switch {
		case errors.Is(err, errRaised) && r.hi-r.lo > 1:
			return f.halve(ctx, r)
		case err != nil:
			return result{}, err
		case death == nil:
			f.took(r, time.Since(begin))
			return done, nil
		}
		deaths[death.kind()]++
		switch {
		case death.slow && death.working && r.hi-r.lo > 1:
			f.most.Store(min(f.most.Load(), int64(f.size(r)/2))) // so that later ones need not fail first
			return f.halve(ctx, r)
		case death.setup && deaths[0] >= ownDeaths:
			return result{}, fault.Userf("function %s: its setup: %s", f.use.Name, death.why)
		case deaths[2] >= otherDeaths, deaths[1] >= outsideDeaths:
			return result{}, fault.Lostf("function %s: %s, the %dth time", f.use.Name, death.why, deaths[1]+deaths[2])
		case deaths[0]+deaths[1] >= ownDeaths && r.hi-r.lo > 1:
			return f.halve(ctx, r)
		case deaths[0] >= ownDeaths:
			return result{columns: f.empty(), bad: []badRow{{r.lo, fault.As(fault.User, errors.New(death.why))}}}, nil
		}
	}
}

// took makes batches larger again if one of the present size took little time.
func (f *Function) took(r rows, d time.Duration) {
	most, all := f.most.Load(), int64(f.env.opt.BatchBytes)
	if most < all && d < f.env.opt.Timeout/4 && int64(f.size(r)) > most/2 {
		f.most.Store(min(2*most, all))
	}
}

// kind is the place of a death in insist's counts.
func (d *death) kind() int {
	switch {
	case !d.working && !d.setup:
		return 2
	case d.outside:
		return 1
	}
	return 0
}

func (f *Function) halve(ctx context.Context, r rows) (result, error) {
	left, right := r.halves()
	first, err := f.insist(ctx, left)
	if err != nil {
		return result{}, err
	}
	second, err := f.insist(ctx, right)
	if err != nil {
		return result{}, err
	}
	return combine(first, second), nil
}
