package client

import "github.com/millrace-data/millrace/internal/fault"

// UserError is an error that the caller mends: a rank, mesh, spec or token that does not
// fit the job, or data that cannot be read. Its message says what to change. Test for
// it with errors.As or errors.AsType.
type UserError = fault.UserError

// LostError says that the service, its machine or the network went away, or that a
// deadline passed. Open a client again, with the last saved state, once the service is
// back. Test for it with errors.As or errors.AsType.
type LostError = fault.LostError
