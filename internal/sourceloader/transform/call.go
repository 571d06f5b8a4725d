package transform

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/jobspec"
)

// Give takes records that come out of a segment: whole ones, in order. Left is how many records of
// what went in are yet to come.
type Give func(out *format.Batch, left int) error

// pass puts the records of a batch through the function, and gives them the columns that
// the next run takes: whenever most bytes or more have come out. With most 0 it gives all at once.
func (c *call) pass(ctx context.Context, before *native, in *format.Batch, most int64, give Give) (tally Tally, err error) {
	if c.handsOver {
		return tally, give(c.handOn(in), 0)
	}
	p := passage{call: c, in: in, bad: c.refused(before, in)}
	p.good, p.origins = in.Good(c.in, p.bad)
	for {
		if err := p.advance(ctx, most); err != nil {
			return tally, c.failed(err)
		}
		end := p.whole()
		if end == p.at && end < in.Len() {
			continue // what the parts of one record give is more than that
		}
		out := format.Concat(p.out)
		j := joining{call: c, in: in, bad: p.bad, out: out, from: p.from, join: format.NewJoin(in, out), tally: &tally}
		j.all(p.at, end)
		if err := give(j.join.Batch(c.sides), in.Len()-end); err != nil || end == in.Len() {
			return tally, err
		}
		p.cut(end)
	}
}

// handOn gives records the columns that the next run takes.
func (c *call) handOn(in *format.Batch) *format.Batch {
	j := format.NewJoin(in, &format.Batch{})
	for i := range in.Len() {
		row, part := in.Key(i)
		if err := in.Bad(i); err != nil {
			j.AddBad(row, part, err)
		} else {
			j.Add(row, part, i, 0)
		}
	}
	return j.Batch(c.sides)
}

// passage is a batch on its way through a function.
type passage struct {
	*call
	in      *format.Batch
	bad     map[int]error // of records of in
	good    *format.Batch // the others
	origins []int32       // of each of good, its place in in
	at      int           // place in in of the first record that was not given
	done    int           // of good that the function was called for
	out     []*format.Batch
	from    []int32 // of each record of out, its place in in
}

// advance calls the function for the records that come next.
func (p *passage) advance(ctx context.Context, most int64) error {
	if p.done == p.good.Len() {
		return nil
	}
	out, from, end, err := p.some(ctx, p.good, p.done, most)
	if err != nil {
		return err
	}
	p.out, p.done = append(p.out, out), end
	for _, at := range from {
		p.from = append(p.from, p.origins[at])
	}
	return nil
}

// whole is the place of the first record that is not done with all its parts.
func (p *passage) whole() int {
	if p.done == p.good.Len() {
		return p.in.Len()
	}
	end := int(p.origins[p.done])
	row, _ := p.in.Key(end)
	for end > p.at {
		if before, _ := p.in.Key(end - 1); before != row {
			break
		}
		end--
	}
	return end
}

// cut goes on from a record, of which nothing was given. Parts of it that are done are done again.
func (p *passage) cut(end int) {
	p.at, p.out, p.from = end, nil, nil
	p.done, _ = slices.BinarySearch(p.origins, int32(end))
}

// The operators of steps whose columns the job spec decides: those of functions, and those which a model server answers.
var (
	pythonOperator = (*jobspec.Python)(nil).Operator()
	callOperator   = (*jobspec.Call)(nil).Operator()
)

// failed is the error of a call, for which no record is to blame.
func (c *call) failed(err error) error {
	class := fault.ClassOf(err)
	err = fmt.Errorf("%s %s: %w", c.label, c.Name, &raisedError{err})
	if class == fault.User {
		err = &callError{err}
	}
	if c.Operator == callOperator {
		err = &serverError{err}
	}
	return fault.As(class, err)
}

// refused returns the errors of the records that are bad, and of those without a value that
// the function needs. That values are of its kinds is the caller's to see.
func (c *call) refused(before *native, in *format.Batch) map[int]error {
	bad := map[int]error{}
	var rec format.Record
	for i := range in.Len() {
		if in.Record(i, &rec); rec.Err != nil {
			bad[i] = rec.Err
		} else if err := c.refuses(before, &rec); err != nil {
			bad[i] = err
		}
	}
	return bad
}

// refuses says why the function does not take a record, nil if it does.
func (c *call) refuses(before *native, rec *format.Record) error {
	for i, column := range c.In {
		v := &rec.Values[c.in[i]]
		if v.Kind != format.Null || column.Null {
			continue
		}
		err := fault.Userf("row %d: %s %s: column %q is null, which the function does not take", rec.Row, c.label, c.Name, column.Name)
		if out := before.out[c.in[i]]; v.Absent && out.column != fromText {
			err = absent(rec, c.in[i], column.Name, "have the function take None")
			err.(*absence).column = out.column
			err = fmt.Errorf("row %d: %s %s: %w", rec.Row, c.label, c.Name, before.settled(err))
		}
		return &stepError{err}
	}
	return nil
}

// joining puts what a function gave beside what its records had before.
type joining struct {
	*call
	in    *format.Batch
	bad   map[int]error // of records of in
	out   *format.Batch
	from  []int32 // of each record of out, its record in in
	join  *format.Join
	tally *Tally
}

// all goes through the records of in from place i on, each with all of its parts.
func (j *joining) all(i, until int) {
	for k := 0; i < until; {
		row, _ := j.in.Key(i)
		end, last := i, k
		for ; end < until; end++ {
			if r, _ := j.in.Key(end); r != row {
				break
			}
		}
		for last < len(j.from) && int(j.from[last]) < end {
			last++
		}
		j.record(row, i, end, k, last)
		i, k = end, last
	}
}

// record joins a record: its parts are i to end of in, and gave k to last of out.
func (j *joining) record(row int64, i, end, k, last int) {
	if err := j.wrong(row, i, end, k, last); err != nil {
		j.join.AddBad(row, 0, err)
		return
	}
	given := 0
	for at := i; at < end; at++ {
		n := 0
		for ; k < last && int(j.from[k]) == at; k++ {
			_, part := j.in.Key(at)
			if j.Kind == FlatMapFunction {
				part = int32(given)
			}
			j.join.Add(row, part, at, k)
			n, given = n+1, given+1
		}
		if n == 0 {
			j.tally.Filtered++
		}
	}
}

// wrong is the first error of a record, nil if none of its parts is bad.
func (j *joining) wrong(row int64, i, end, k, last int) error {
	for at := i; at < end; at++ {
		if err := j.bad[at]; err != nil {
			return err
		}
	}
	var rec format.Record
	for ; k < last; k++ {
		if j.out.Record(k, &rec); rec.Err != nil {
			return &stepError{fault.As(fault.ClassOf(rec.Err), fmt.Errorf("row %d: %s %s: %w", row, j.label, j.Name, &raisedError{rec.Err}))}
		}
		for n := range j.Out {
			if what := j.Out[n].accepts(&rec.Values[n]); what != "" {
				return &stepError{fault.Userf("row %d: %s %s: column %q that it gave: %s", row, j.label, j.Name, j.Out[n].Name, what)}
			}
		}
	}
	return nil
}
