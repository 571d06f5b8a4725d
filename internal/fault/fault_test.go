package fault_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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
