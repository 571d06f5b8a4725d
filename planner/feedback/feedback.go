// Package feedback adjusts the mix of a job by the losses that trainers report.
//
// It owns the policies: functions from the weights in force and the losses of
// the sources to the next weights. It never sets them; the planner does, as a
// change that the log and the tokens keep, so that a replay needs no
// policy and a policy may be any Go code. A Set holds a program's own policies.
package feedback

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
)

// Input is the input of a policy, one entry per source in each column.
type Input struct {
	Sources []string
	Current []float64 // parts of the mix in force; 1 in all
	Base    []float64 // parts of the mix that the job spec has for this step; 1 in all
	Loss    []float64 // mean per token since the last decision; NaN if nothing was reported
}

// Policy decides on weights. Weights returns one for each source, none negative
// and not all zero, of any sum; nil leaves the mix alone. It is called by one
// goroutine.
type Policy interface {
	Weights(in Input) []float64
}

// Options are the feedback options of the job spec.
type Options struct {
	Rate  float64 // how fast weights move
	Floor float64 // the least part of its base that a source keeps
}

// Factory makes the policy of one job; never nil.
type Factory func(o Options) Policy

// Set holds the policies of a program by the names that job specs give them, beside the
// built-in ones. It is read only once it is in use; nil is empty.
type Set map[string]Factory

var builtIn = Set{"exponential": func(o Options) Policy { return Exponential(o) }}

// Check returns an error of class user for a name that is empty or taken, or a nil
// factory.
func (s Set) Check() error {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		switch {
		case name == "" || s[name] == nil:
			return fault.Userf("feedback policy %q: a name and a factory are needed", name)
		case name == "none" || builtIn[name] != nil:
			return fault.Userf("feedback policy %q: the name is taken: choose another", name)
		}
	}
	return nil
}

// New makes the policy of a job; nil for "none" and "". A factory that panics or makes
// none is an error of class user.
func (s Set) New(name string, o Options) (Policy, error) {
	if name == "none" || name == "" {
		return nil, nil
	}
	for _, set := range []Set{builtIn, s} {
		if f := set[name]; f != nil {
			return f.policy(name, o)
		}
	}
	names := slices.Sorted(maps.Keys(s))
	return nil, fault.Userf("unknown feedback policy %q; valid are none, %s, and those that a program passes to millrace.Main",
		name, strings.Join(append(slices.Sorted(maps.Keys(builtIn)), names...), ", "))
}

// policy calls the factory, which a program may have written.
func (f Factory) policy(name string, o Options) (p Policy, err error) {
	defer func() {
		if r := recover(); r != nil {
			p, err = nil, fault.Userf("feedback policy %q: its factory panicked: %v", name, r)
		}
	}()
	if p = f(o); p == nil {
		return nil, fault.Userf("feedback policy %q: its factory returned nil; return a policy, whose Weights may be nil to leave the mix alone", name)
	}
	return p, nil
}

// Exponential multiplies each source's weight by exp(rate * (its loss - the mean
// loss over the mix)): exponential weights, as in the multiplicative-weights
// method (Arora, Hazan and Kale, 2012). No source falls below Floor times its
// base part of the mix. Sources without a report keep their weight.
type Exponential Options

// Weights implements Policy.
func (e Exponential) Weights(in Input) []float64 {
	var mean, part float64
	for i, loss := range in.Loss {
		if !math.IsNaN(loss) && in.Current[i] > 0 {
			mean += in.Current[i] * loss
			part += in.Current[i]
		}
	}
	if part == 0 {
		return nil
	}
	mean /= part
	next := slices.Clone(in.Current)
	for i, loss := range in.Loss {
		if math.IsNaN(loss) || in.Current[i] == 0 {
			continue
		}
		const most = 4 // e^4 in one decision: a wrong report must not dominate the mix
		next[i] *= math.Exp(min(max(e.Rate*(loss-mean), -most), most))
	}
	return e.atLeast(next, in)
}

// atLeast scales weights to parts of the mix, and raises those below their floor to it.
func (e Exponential) atLeast(next []float64, in Input) []float64 {
	low := make([]bool, len(next))
	for {
		left, sum := 1.0, 0.0 // of the mix, and of the weights that share it
		for i := range next {
			if low[i] {
				left -= e.Floor * in.Base[i]
			} else {
				sum += next[i]
			}
		}
		scale, more := max(left, 0)/max(sum, math.SmallestNonzeroFloat64), false
		for i, w := range next {
			if !low[i] && in.Current[i] > 0 && !math.IsNaN(in.Loss[i]) && w*scale < e.Floor*in.Base[i] {
				low[i], more = true, true
			}
		}
		if more {
			continue
		}
		for i := range next {
			if next[i] *= scale; low[i] {
				next[i] = e.Floor * in.Base[i]
			}
		}
		return next
	}
}

// Mean accumulates the reports of ranks until a policy decides.
type Mean struct {
	sum, tokens map[string]float64
}

// Add takes the mean loss over some tokens of a source.
func (m *Mean) Add(source string, loss float64, tokens uint64) error {
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return fault.Userf("the loss of source %q is %v: report finite numbers, and leave sources without tokens out", source, loss)
	}
	if m.sum == nil {
		m.sum, m.tokens = map[string]float64{}, map[string]float64{}
	}
	n := float64(max(tokens, 1))
	sum := m.sum[source] + loss*n
	if math.IsInf(sum, 0) {
		return fault.Userf("the loss of source %q is %v over %d tokens, more than there are numbers for: report the mean of a token", source, loss, tokens)
	}
	m.sum[source] = sum
	m.tokens[source] += n
	return nil
}

// Take returns the means by source, NaN where nothing was added, and resets them.
func (m *Mean) Take(sources []string) []float64 {
	means := make([]float64, len(sources))
	for i, name := range sources {
		means[i] = m.sum[name] / m.tokens[name]
	}
	*m = Mean{}
	return means
}
