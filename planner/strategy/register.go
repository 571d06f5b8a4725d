package strategy

import (
	"maps"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/didyoumean"
	"github.com/millrace-data/millrace/internal/fault"
)

// registered are the strategies that job specs may name.
var registered = map[string]Strategy{}

// Register gives a strategy a name for job specs, `strategy: NAME`. It is meant to be
// called from main before a job is loaded, and is not safe for concurrent use. The
// name is part of the job's identity: take another one when the strategy
// changes what rows hold. It is an error if the name is empty or taken.
func Register(name string, plan Strategy) error {
	switch {
	case strings.TrimSpace(name) == "" || plan == nil:
		return fault.Userf("strategy: registering %q: a name and a function are needed", name)
	case registered[name] != nil:
		return fault.Userf("strategy: registering %q: the name is taken; names in use are %s", name, strings.Join(names(), ", "))
	}
	registered[name] = plan
	return nil
}

// Named returns the strategy that was registered by a name.
func Named(name string) (Strategy, error) {
	plan := registered[name]
	if plan != nil {
		return plan, nil
	}
	if len(registered) == 0 {
		return nil, fault.Userf("strategy: nothing is registered as %q in this program: it is a Go function that a program of your own registers, "+
			"by strategy.Register before cli.Main; run the same command of that program, as in `./mine reference job.yaml`, or write the strategy as a list of primitives", name)
	}
	if near := didyoumean.Nearest(name, names()); near != "" {
		return nil, fault.Userf("strategy: nothing is registered as %q, did you mean %q? Names in use are %s", name, near, strings.Join(names(), ", "))
	}
	return nil, fault.Userf("strategy: nothing is registered as %q; names in use are %s", name, strings.Join(names(), ", "))
}

func names() []string { return slices.Sorted(maps.Keys(registered)) }
