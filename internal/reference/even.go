package reference

import (
	"github.com/millrace-data/millrace/balance"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/jobspec"
	"github.com/millrace-data/millrace/planner/cost"
)

// evenBy returns the cost by which a job evens its rows; nil if it does not.
func evenBy(job *jobspec.Job) (model cost.Model, err error) {
	graph, even := "text", false
	for _, p := range job.Strategy {
		switch {
		case p.Graph != "":
			graph = p.Graph
		case p.Cost != nil && graph == "text":
			if model, err = cost.Parse(p.Cost.Text()); err != nil {
				return nil, err
			}
		case p.Balance != nil && graph == "text":
			even = p.Balance.Level != "inter" && !p.Balance.KeepOrder
		}
	}
	if !even {
		return nil, nil
	}
	return model, nil
}

// even moves samples between rows to even their costs, if the job evens rows.
func (r *reader) even(bins []int32) error {
	model, err := evenBy(r.job)
	if model == nil || err != nil {
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
		units, err := model.Cost(sample)
		if err != nil {
			return err
		}
		costs, tokens, rows, of = append(costs, units), append(tokens, n), append(rows, bins[k]), append(of, k)
	}
	if err := new(balance.Evener).Even(tokens, costs, rows, int32(r.length), r.seats); err != nil {
		return fault.Userf("evening rows by %v: %w", model, err)
	}
	for i, k := range of {
		bins[k] = rows[i]
	}
	return nil
}
