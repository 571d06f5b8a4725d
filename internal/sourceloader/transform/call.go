package transform

import (
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// pass puts the records of a batch through the function, and gives them the columns that
// the next run takes.
func (c *call) pass(ctx context.Context, before *native, in *format.Batch) (*format.Batch, Tally, error) {
	bad := c.refused(before, in)
	records, origins := in.Good(c.in, bad)
	out, from := &format.Batch{}, []int32(nil)
	if records.Len() > 0 {
		var err error
		if out, from, err = c.Caller.Call(ctx, records); err == nil {
			err = c.outputs(records.Len(), out, from)
		}
		if err != nil {
			return nil, Tally{}, c.failed(err)
		}
	}
	j := joining{call: c, in: in, bad: bad, out: out, join: format.NewJoin(in, out)}
	for _, at := range from {
		j.from = append(j.from, origins[at])
	}
	j.all()
	return j.join.Batch(c.sides), j.tally, nil
}

// failed is the error of a call, for which no record is to blame.
func (c *call) failed(err error) error {
	class := fault.ClassOf(err)
	if err = fmt.Errorf("%s %s: %w", c.label, c.Name, err); class == fault.User {
		err = &callError{err}
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
			err.(*absence).column = before.reader[out.column]
			err = fmt.Errorf("row %d: %s %s: %w", rec.Row, c.label, c.Name, err)
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
	tally Tally
}

// all goes through the records of in, each with all of its parts.
func (j *joining) all() {
	for i, k := 0, 0; i < j.in.Len(); {
		row, _ := j.in.Key(i)
		end, last := i, k
		for ; end < j.in.Len(); end++ {
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
			return &stepError{fault.As(fault.ClassOf(rec.Err), fmt.Errorf("row %d: %s %s: %w", row, j.label, j.Name, rec.Err))}
		}
		for n := range j.Out {
			if what := j.Out[n].accepts(&rec.Values[n]); what != "" {
				return &stepError{fault.Userf("row %d: %s %s: column %q that it gave: %s", row, j.label, j.Name, j.Out[n].Name, what)}
			}
		}
	}
	return nil
}
