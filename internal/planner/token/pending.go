package token

import (
	"encoding/json"
	"fmt"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/plan"
	statepb "github.com/millrace-data/millrace/internal/proto/state"
)

// packPending writes changes for steps to come. Weights are separated from the names
// of the sources, which the reader knows: with hundreds of sources their JSON
// form alone would be longer than a token may be. names are those of all sources
// up to the position.
func packPending(changes []plan.Change, names []string) (pending []*statepb.PendingChange) {
	for _, ch := range changes {
		p := &statepb.PendingChange{Json: ch.Text}
		if ch.Kind == plan.SetShares {
			p = packWeights(ch, names)
		}
		if ch.Kind == plan.AddSource {
			names = append(names[:len(names):len(names)], nameOf(ch.Add.Spec))
		}
		pending = append(pending, p)
	}
	return pending
}

// packWeights takes the weights out of the JSON form of a change, if they are
// decimals: then a bit for each source says whether it is named.
func packWeights(ch plan.Change, names []string) *statepb.PendingChange {
	whole := &statepb.PendingChange{Json: ch.Text}
	c, err := change.Parse(ch.Text)
	if err != nil {
		return whole
	}
	var weights []float64
	named := make([]uint64, len(names))
	for i, name := range names {
		if w, ok := c.Weights[name]; ok {
			named[i], weights = 1, append(weights, w)
		}
	}
	data, short := appendDecimals(appendColumn(nil, named), weights)
	if !short || len(weights) != len(c.Weights) || c.String() != string(ch.Text) {
		return whole
	}
	c.Weights = nil
	return &statepb.PendingChange{Json: []byte(c.String()), Weights: data}
}

// unpackPending is the inverse of packPending, for a position after some steps.
func unpackPending(pending []*statepb.PendingChange, step int64, names []string) ([]change.Change, error) {
	var changes []change.Change
	for _, p := range pending {
		text := p.Json
		if len(p.Weights) > 0 {
			var err error
			if text, err = withWeights(p, names); err != nil {
				return nil, err
			}
		}
		cs, err := change.ParseAll([][]byte{text})
		if err != nil {
			return nil, err
		}
		c := cs[0]
		if c.Step < step || c.Cancel != nil { // what was cancelled is not pending, nor is what did so
			return nil, fmt.Errorf("the change %s cannot be pending at step %d", c, step)
		}
		if c.Add != nil {
			names = append(names[:len(names):len(names)], nameOf(c.Add.Source))
		}
		changes = append(changes, cs...)
	}
	return changes, nil
}

// withWeights is the JSON form of a change whose weights were taken out of it.
func withWeights(p *statepb.PendingChange, names []string) ([]byte, error) {
	var c change.Change
	if err := json.Unmarshal(p.Json, &c); err != nil {
		return nil, fault.Userf("the change %s cannot be read: %w; use the version of Millrace that wrote it", p.Json, err)
	}
	r := columns{data: p.Weights}
	named := r.next(len(names))
	weights := r.decimals(len(names))
	c.Weights = map[string]float64{}
	for i, name := range names {
		if named[i] > 0 && len(weights) > 0 {
			c.Weights[name], weights = weights[0], weights[1:]
		}
	}
	if r.short || len(r.data) > 0 || len(weights) > 0 {
		return nil, fmt.Errorf("the weights that are set at step %d are not those of %d sources", c.Step, len(names))
	}
	return []byte(c.String()), nil
}

// nameOf is the name of a source's entry in the job spec.
func nameOf(entry []byte) string {
	var source struct {
		Name string `json:"name"`
	}
	_ = json.Unmarshal(entry, &source) // it was read as a job spec before; else it has no name here
	return source.Name
}
