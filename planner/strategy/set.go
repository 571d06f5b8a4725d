package strategy

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/didyoumean"
	"github.com/millrace-data/millrace/internal/fault"
)

// Set holds the strategies of a program by the names that job specs give them,
// `strategy: NAME`. A name is part of the job's identity: take another one when the
// strategy changes what rows hold. A Set is read only once it is in use; nil is empty.
type Set map[string]Strategy

// Check returns an error of class user for an empty name or a nil function.
func (s Set) Check() error {
	for _, name := range s.names() {
		if strings.TrimSpace(name) == "" || s[name] == nil {
			return fault.Userf("strategy %q: a name and a function are needed", name)
		}
	}
	return nil
}

// Named returns the strategy of a name. A panic of the strategy, or of a cost or a
// method of its own, becomes the error of its step, of class user as what the strategy
// returns. Its plan is checked: what it changed in the result of the step must leave
// every sample in a row with room for it, and one row in each place.
func (s Set) Named(name string) (Strategy, error) {
	if plan := s[name]; plan != nil {
		return recovering(name, plan), nil
	}
	if len(s) == 0 {
		return nil, fault.Userf("strategy: nothing is registered as %q in this program: it is a Go function that a program of your own passes "+
			"to millrace.Main; run the same command of that program, as in `./mine reference job.yaml`, or write the strategy as a list of primitives", name)
	}
	if near := didyoumean.Nearest(name, s.names()); near != "" {
		return nil, fault.Userf("strategy: nothing is registered as %q, did you mean %q? Valid are %s", name, near, strings.Join(s.names(), ", "))
	}
	return nil, fault.Userf("strategy: nothing is registered as %q; valid are %s", name, strings.Join(s.names(), ", "))
}

func (s Set) names() []string { return slices.Sorted(maps.Keys(s)) }

// recovering is a strategy whose panics are errors, as what it returns and a plan that it
// spoiled: all of them are the user's, and name it.
func recovering(name string, plan Strategy) Strategy {
	return func(s *Step) (err error) {
		defer func() {
			if r := recover(); r != nil {
				s.fail(fault.Userf("strategy %q panicked: %v", name, where(r)))
				err = s.err
			}
		}()
		kept := s.keepDrawn()
		if err = plan(s); err == nil && s.done && s.err == nil {
			var count []int32
			if count, err = s.checkResult(kept); err == nil {
				s.result.index = newIndex(s.result, s.buf, count)
			}
		}
		if err != nil && s.err == nil && !errors.Is(err, ErrBlocked) && fault.ClassOf(err) == fault.Bug {
			err = fault.Userf("strategy %q: %w", name, err)
		}
		return err
	}
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
