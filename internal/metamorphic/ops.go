package metamorphic

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is what an operation does.
type Kind string

// The operations. A role is named by its kind and number: loader-0, constructor-1, planner.
const (
	Kill    Kind = "kill"    // a role ends in the middle of what it does, and starts again after For
	Add     Kind = "add"     // a loader or constructor joins
	Remove  Kind = "remove"  // a loader ends for good
	Isolate Kind = "isolate" // nothing reaches a role, or comes from it, for a time
	Slow    Kind = "slow"    // the files of all loaders take For longer to open, until the next Slow
	Pause   Kind = "pause"   // the ranks do not ask for a time
	Rejoin  Kind = "rejoin"  // the ranks end, and go on where they are from their token
	Back    Kind = "back"    // the ranks end, and go on from an older token: that of the step N before
	Forward Kind = "forward" // the ranks end, and go on from the last token within N steps that was saved before they went back: of a branch that they left
)

// Op is an operation after a step.
type Op struct {
	At   int64 // the ranks have this step
	Kind Kind
	Role string        // of Kill, Add, Remove, Isolate
	For  time.Duration // of Kill, Isolate, Slow, Pause
	N    int64         // of Back, Forward
}

// String is the operation as Parse reads it.
func (o Op) String() string {
	return strings.Join(strings.Fields(fmt.Sprintf("%d %s %s %v %d", o.At, o.Kind, dash(o.Role), o.For, o.N)), " ")
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Print is the text of a list, an operation a line.
func Print(ops []Op) string {
	var b strings.Builder
	for _, o := range ops {
		fmt.Fprintln(&b, o)
	}
	return b.String()
}

// Parse reads what Print wrote.
func Parse(text string) (ops []Op, err error) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		var o Op
		var pause string
		if _, err := fmt.Sscan(line, &o.At, &o.Kind, &o.Role, &pause, &o.N); err != nil {
			return nil, fmt.Errorf("operation %q: %w", line, err)
		}
		if o.For, err = time.ParseDuration(pause); err != nil {
			return nil, fmt.Errorf("operation %q: %w", line, err)
		}
		if o.Role == "-" {
			o.Role = ""
		}
		ops = append(ops, o)
	}
	return ops, nil
}

// Draw draws a list for a run of some steps. Few kinds at a time show more than all at once.
func Draw(rng *rand.Rand, opts Options, steps int64) (ops []Op) {
	kinds := []Kind{Kill, Add, Remove, Isolate, Slow, Pause, Rejoin, Back}
	rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	kinds = append(kinds[:1+rng.IntN(len(kinds))], Kill)
	n := 1 + rng.IntN(8)
	for range n {
		ops = append(ops, drawOp(rng, opts, rng.Int64N(steps-1), kinds[rng.IntN(len(kinds))]))
	}
	slices.SortStableFunc(ops, func(a, b Op) int { return cmp.Compare(a.At, b.At) })
	return andForth(rng, ops)
}

// andForth has the ranks that went back take up the branch that they left, now and then, after some
// steps of another one.
func andForth(rng *rand.Rand, ops []Op) (all []Op) {
	for _, o := range ops {
		if all = append(all, o); o.Kind == Back && rng.IntN(2) == 0 {
			all = append(all, Op{At: o.At + 1 - rng.Int64N(o.N+1), Kind: Forward, N: 1 + rng.Int64N(12)})
		}
	}
	return all
}

func drawOp(rng *rand.Rand, opts Options, at int64, kind Kind) Op {
	o := Op{At: at, Kind: kind}
	loader, constructor := fmt.Sprintf("loader-%d", rng.IntN(opts.Loaders)), fmt.Sprintf("constructor-%d", rng.IntN(opts.Constructors))
	any := []string{loader, loader, constructor, "planner"}[rng.IntN(4)]
	switch kind {
	case Kill:
		o.Role, o.For = any, between(rng, time.Millisecond, 5*time.Second)
	case Isolate:
		o.Role, o.For = any, between(rng, 10*time.Millisecond, 40*time.Second)
	case Add:
		o.Role = fmt.Sprintf("loader-%d", 10+at)
	case Remove:
		o.Role = loader
	case Slow, Pause:
		o.For = between(rng, time.Millisecond, 3*time.Second)
	case Back:
		o.N = 1 + rng.Int64N(12)
	}
	return o
}

// between draws a time from low to high, low ones more often.
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	u := r.Float64()
	return (low + time.Duration(u*u*float64(high-low))).Round(time.Millisecond)
}

// Reduce returns a shorter list that still fails, if there is one: it leaves out ever smaller
// parts, as long as fails says that the rest does. It calls fails at most tries times.
func Reduce(ops []Op, tries int, fails func([]Op) bool) []Op {
	for part := (len(ops) + 1) / 2; part > 0 && tries > 0; {
		shorter := false
		for from := 0; from < len(ops) && tries > 0; from += part {
			rest := append(append([]Op{}, ops[:from]...), ops[min(from+part, len(ops)):]...)
			tries--
			if fails(rest) {
				ops, shorter = rest, true
				break
			}
		}
		if !shorter {
			part /= 2
		}
		part = min(part, len(ops))
	}
	return ops
}
