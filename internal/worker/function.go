package worker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

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
	// Stop says that a bad row ends the job, so that CallSome leaves the rows behind one where it can: a function that
	// hangs would take its whole timeout for each of them.
	Stop bool
}

// Function is a function in use. It is safe for concurrent use.
type Function struct {
	env  *Environment
	use  Use
	what Description
	need Need
	// words are the use in log lines.
	words []any
	in    []Type
	out   []Type
	// most is the bytes of a batch: fewer than the environment's after one took too long,
	// and more again after each that took a quarter of its time.
	most   atomic.Int64
	growth growth
	blamed blamed
}

// growth is how many bytes a function gives for each that it takes: the most of late.
type growth struct {
	mu    sync.Mutex
	ratio float64
	known bool
}

// firstGrowth is what a function of whole batches is taken to give before it has given anything.
const firstGrowth = 16

// fade is what of a ratio is left after each batch that gives less.
const fade = 0.9

func (g *growth) get() (ratio float64, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ratio, g.known
}

func (g *growth) learn(in, out int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := float64(out) / float64(max(in, 1))
	g.ratio, g.known = max(now, fade*g.ratio), true
}

// Function returns a function for a step.
func (e *Environment) Function(ctx context.Context, use Use) (*Function, error) {
	d, err := e.Describe(ctx, use.Name)
	if err != nil {
		return nil, err
	}
	need, err := needOf(&d)
	if err != nil {
		return nil, err
	}
	e.lane(need)
	f := &Function{env: e, use: use, what: d, need: need, in: types(d.In), out: types(d.Out)}
	f.words = []any{"source", use.Source, "step", use.Step, "function", use.Name}
	f.most.Store(int64(e.opt.BatchBytes))
	return f, nil
}

// Description returns what the function declares.
func (f *Function) Description() Description { return f.what }

// rows is a range of the good records of a call, by columns.
type rows struct {
	of      *call
	columns []format.Column
	keys    []key // nil unless the function draws by chance
	file    int
	lo, hi  int
	most    int // bytes that come out, above which the rest is left; 0: none is
}

// result is what rows became, or the first of them.
type result struct {
	columns []format.Column
	from    []int32 // of each row that came out, the place among the rows of the call
	bad     []badRow
	end     int    // place of the first row that was left
	where   string // the pools that gave it; "": workers here
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
	out, from, _, err = f.CallSome(ctx, in, 0, 0)
	return out, from, err
}

// CallSome is Call of the rows of a batch from the first one on, which ends before the rows from
// end on, but not before it mapped one, if what comes out has most bytes; where it does so depends on
// more than the rows. So it does at a bad row where the job stops at one. With most 0 it maps all.
func (f *Function) CallSome(ctx context.Context, in *format.Batch, first int, most int64) (out *format.Batch, from []int32, end int, err error) {
	file, known := format.FileOf(ctx)
	if f.what.Rng && !known {
		return nil, nil, 0, fmt.Errorf("function %s draws by chance, and the call does not say which file it is for", f.use.Name)
	}
	c := &call{in: in, first: first, errs: map[int]error{}}
	if err := f.check(c); err != nil {
		return nil, nil, 0, err
	}
	r := f.rows(c, file, most)
	if known, err := f.refuse(r); err != nil {
		return nil, nil, 0, err
	} else if known {
		c.drop()
		r = f.rows(c, file, most)
	}
	done := result{columns: f.empty(), end: r.hi}
	if r.hi > r.lo {
		if done, err = f.pieces(ctx, r); err != nil {
			return nil, nil, 0, err
		}
	}
	out, from, end = c.merge(done)
	return out, from, end, nil
}

// rows are those of a call that a worker is to map: where the job stops at a bad row, those before the first one.
func (f *Function) rows(c *call, file int, most int64) rows {
	r := rows{of: c, columns: c.columns, file: file, lo: c.begin(c.first), hi: c.count, most: int(min(most, MaxBatch))}
	if f.use.Stop && most > 0 {
		for at := range c.errs {
			if at >= c.first {
				r.hi = min(r.hi, c.begin(at))
			}
		}
	}
	if f.what.Rng {
		for i := range c.count {
			row, part := c.in.Key(c.place(i))
			r.keys = append(r.keys, key{row, int64(part)})
		}
	}
	return r
}

// call is a batch on its way.
type call struct {
	in      *format.Batch
	first   int // row that it begins at
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

// begin is the place of the first row from one of the batch on among those of columns.
func (c *call) begin(first int) int {
	if c.places == nil {
		return first
	}
	at, _ := slices.BinarySearch(c.places, int32(first))
	return at
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

// merge puts bad records between those that came out. end is the first row of the batch that was left.
func (c *call) merge(r result) (out *format.Batch, from []int32, end int) {
	for _, b := range r.bad {
		c.errs[c.place(b.at)] = b.err
	}
	if end = c.in.Len(); r.end < c.count {
		end = c.place(r.end)
	}
	if len(c.errs) == 0 && len(r.from) == c.in.Len() && ascends(r.from) {
		return format.FromColumns(c.in.Rows(), nil, r.columns), r.from, end
	}
	all, n := c.in.Rows(), len(r.from)+len(c.errs)
	rows, bad, from := make([]int64, 0, n), make([]error, 0, n), make([]int32, 0, n)
	add := func(at int, err error) {
		rows, bad, from = append(rows, all[at]), append(bad, err), append(from, int32(at))
	}
	failed := slices.DeleteFunc(slices.Sorted(maps.Keys(c.errs)), func(at int) bool { return at < c.first || at >= end })
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
	return format.FromColumns(rows, bad, r.columns), from, end
}

// ascends reports whether each row gave one, which of most batches is known by where the numbers lie.
func ascends(from []int32) bool {
	all := format.Ordinals(len(from))
	return len(from) == 0 || &from[0] == &all[0] || slices.Equal(from, all)
}

// pieces maps rows in batches of the environment's size, as many at a time as its workers take and, if what
// comes out is bounded, as are expected to give no more than that. What comes behind a batch
// that was not done to its end is left.
func (f *Function) pieces(ctx context.Context, r rows) (result, error) {
	cuts := f.within(f.cut(nil, r))
	done := make([]result, len(cuts))
	if len(cuts) == 1 {
		return f.piece(ctx, cuts[0])
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(f.Seats(), 1))
	var over atomic.Bool
	begun := 0
	for ; begun < len(cuts) && !over.Load(); begun++ {
		i := begun
		group.Go(func() (err error) {
			if done[i], err = f.piece(ctx, cuts[i]); err == nil && f.last(done[i], cuts[i]) {
				over.Store(true)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return result{}, err
	}
	for i := range begun {
		if f.last(done[i], cuts[i]) {
			return combine(done[:i+1]...), nil
		}
	}
	return combine(done...), nil
}

// within returns the first batches, those that are expected to give no more than most bytes.
func (f *Function) within(cuts []rows) []rows {
	most := cuts[0].most
	if most == 0 {
		return cuts
	}
	growth, known := f.growth.get()
	for i, sum := 0, 0.0; i < len(cuts); i++ {
		if sum += growth * float64(f.size(cuts[i])); i > 0 && (!known || sum > float64(most)) {
			return cuts[:i]
		}
	}
	return cuts
}

// cut halves rows until each part is a batch.
func (f *Function) cut(to []rows, r rows) []rows {
	if r.hi-r.lo == 1 || f.fits(r) {
		return append(to, r)
	}
	left, right := r.halves()
	return f.cut(f.cut(to, left), right)
}

// fits reports whether rows are few enough for a batch. A function of whole batches cannot stop within
// one, so what it is expected to give counts as well.
func (f *Function) fits(r rows) bool {
	size := int64(f.size(r))
	if r.most > 0 && f.what.Kind == "map_batches" {
		growth, known := f.growth.get()
		if !known {
			growth = firstGrowth
		}
		if growth*float64(size) > float64(r.most) {
			return false
		}
	}
	return size <= f.most.Load()>>f.env.shift.Load()
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
		all.end = r.end
		all.where = cmp.Or(all.where, r.where)
	}
	return all
}
