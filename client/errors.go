package client

import (
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/rpc"
)

// MovedError says that the job was moved to another step, as its text says by whom, and that this
// rank, which was elsewhere, does not go along: restart all ranks from the same checkpoint. It is
// found in a *UserError, with errors.As or errors.AsType. Next, At and State return it as soon as
// the service says so, whatever was read ahead.
type MovedError struct{ text string }

// Error says who moved the job, and to which step.
func (e *MovedError) Error() string { return e.text }

// moved gives an error that says so its type.
func moved(err error) error {
	if !rpc.Moved(err) {
		return err
	}
	return fault.As(fault.User, &MovedError{err.Error()})
}

// UserError is an error that the caller mends: a rank, mesh, spec or token that does not
// fit the job, or data that cannot be read. Its message says what to change. Test for
// it with errors.As or errors.AsType.
type UserError = fault.UserError

// LostError says that the service, its machine or the network went away, or that a
// deadline passed. Open a client again, with the last saved state, once the service is
// back. Test for it with errors.As or errors.AsType.
type LostError = fault.LostError
