package strategy

import (
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
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
// changes what rows hold. It is an error if the name is empty or taken. A panic of the
// strategy, or of a cost or a method of its own, becomes the error of its step.
func Register(name string, plan Strategy) error {
	switch {
	case strings.TrimSpace(name) == "" || plan == nil:
		return fault.Userf("strategy: registering %q: a name and a function are needed", name)
	case registered[name] != nil:
		return fault.Userf("strategy: registering %q: the name is taken; names in use are %s", name, strings.Join(names(), ", "))
	}
	registered[name] = func(s *Step) (err error) {
		defer func() {
			if r := recover(); r != nil {
				s.fail(fault.Userf("strategy %q panicked: %v", name, where(r)))
				err = s.err
			}
		}()
		return plan(s)
	}
	return nil
}

// panicked is a panic with the line that it came from.
type panicked struct {
	value any
	at    string
}

func (p panicked) String() string { return fmt.Sprintf("%v (%s)", p.value, p.at) }

// where says where a recovered panic came from. It is called by the function that
// recovered.
func where(value any) panicked {
	if p, ok := value.(panicked); ok {
		return p // of another goroutine
	}
	var callers [64]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers[:])])
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, "runtime.") || !more {
			return panicked{value, fmt.Sprintf("%s:%d, in %s", filepath.Base(f.File), f.Line, f.Function)}
		}
	}
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
