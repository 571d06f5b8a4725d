package reference

import (
	"github.com/millrace-data/millrace/balance"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/jobspec"
	"github.com/millrace-data/millrace/planner/cost"
	"github.com/millrace-data/millrace/planner/strategy"
)

// evening is what a job evens its rows by.
type evening struct {
	models map[string]cost.Model // by source; "": of all others
	method strategy.RowMethod    // of the program; nil: the one that is built in
}

// evenBy returns what a job evens its rows by; nil if it does not.
func evenBy(job *jobspec.Job, methods strategy.RowMethods) (*evening, error) {
	by, even := &evening{models: map[string]cost.Model{}}, false
	for graph, p := range job.Primitives() {
		switch {
		case graph.Of != "text":
		case p.Cost != nil:
			model, err := cost.Parse(p.Cost.Text())
			if err != nil {
				return nil, err
			}
			if graph.Sources == nil {
				by.models[""] = model
			}
			for _, name := range graph.Sources {
				by.models[name] = model
			}
		case p.Balance != nil:
			method, err := methods.Named(p.Balance.RowMethod)
			if err != nil {
				return nil, err
			}
			by.method, even = method, p.Balance.Level != "inter" && !p.Balance.KeepOrder
		}
	}
	if !even {
		return nil, nil
	}
	return by, nil
}

// even moves samples between rows to even their costs, if the job evens rows.
func (r *reader) even(bins []int32) error {
	by, err := evenBy(r.job, r.methods)
	if by == nil || err != nil {
		return err
	}
	var costs []int64
	var tokens, rows []int32
	var of []int
	for k, n := range r.lengths() {
		if bins[k] < 0 {
			continue
		}
		d := &r.samples[k]
		sample := cost.Sample{Tokens: int64(len(d.tokens)), Images: int64(len(d.images))}
		for _, x := range d.images {
			sample.Patches += int64(x.H * x.W)
		}
		model, own := by.models[r.sources[d.source].spec.Name]
		if !own {
			model = by.models[""]
		}
		units, err := model.Cost(sample)
		if err != nil {
			return err
		}
		costs, tokens, rows, of = append(costs, units), append(tokens, n), append(rows, bins[k]), append(of, k)
	}
	switch {
	case by.method != nil:
		in := strategy.RowSamples{Tokens: tokens, Costs: costs, Row: rows, Rows: r.seats, Capacity: int32(r.length)}
		rows, err = in.By(by.method)
	case r.job.Batch.ContextSplit > 0:
		r.widths, err = new(balance.WideEvener).Even(tokens, costs, rows, r.wide())
	default:
		evener := balance.Evener{Thorough: r.job.Batch.Fill > 0}
		err = evener.Even(tokens, costs, rows, int32(r.length), r.seats)
	}
	if err != nil {
		return fault.Userf("evening rows: %w", err)
	}
	for i, k := range of {
		bins[k] = rows[i]
	}
	return nil
}
