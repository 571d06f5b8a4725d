package fault_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
)

func TestClassOf(t *testing.T) {
	user := fault.Userf("row %d: %w", 3, io.ErrUnexpectedEOF)
	for _, tc := range []struct {
		err  error
		want fault.Class
	}{
		{errors.New("anything"), fault.Bug},
		{user, fault.User},
		{fmt.Errorf("reading x: %w", user), fault.User},
		{fault.As(fault.Lost, user), fault.Lost},
		{context.DeadlineExceeded, fault.Lost},
		{fmt.Errorf("dial: %w", context.Canceled), fault.Lost},
	} {
		if got := fault.ClassOf(tc.err); got != tc.want {
			t.Errorf("ClassOf(%v) = %v, want %v", tc.err, got, tc.want)
		}
	}
	if !errors.Is(user, io.ErrUnexpectedEOF) {
		t.Error("Userf does not wrap")
	}
	if fault.As(fault.User, nil) != nil {
		t.Error("As(nil) is not nil")
	}
}

// TestOutermostClass: what errors.As finds is what ClassOf says, and all else is found
// through it.
func TestOutermostClass(t *testing.T) {
	inner := fault.Userf("row %d: %w", 3, &os.PathError{Op: "open", Path: "x", Err: os.ErrNotExist})
	for _, outer := range []fault.Class{fault.Bug, fault.User, fault.Lost} {
		err := fmt.Errorf("source: %w", fault.As(outer, fmt.Errorf("reading: %w", inner)))
		_, user := errors.AsType[*fault.UserError](err)
		_, lost := errors.AsType[*fault.LostError](err)
		if user != (outer == fault.User) || lost != (outer == fault.Lost) || fault.ClassOf(err) != outer {
			t.Errorf("%v outside: a user error: %v, a lost one: %v, class %v", outer, user, lost, fault.ClassOf(err))
		}
		if path, ok := errors.AsType[*os.PathError](err); !ok || path.Path != "x" || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v outside: the wrapped error is not found", outer)
		}
	}
}
