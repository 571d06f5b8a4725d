// Package fault classifies errors at the boundaries of Millrace.
//
// Every error that crosses a package boundary belongs to one of three classes
// (Ray Data, arXiv 2501.12407, distinguishes the same causes): a user error
// says what to change and is never retried, a lost error is retried elsewhere
// under a cap, a bug stops the process with its context. The package owns the
// classes and nothing else: it never logs, retries or formats positions.
package fault

import (
	"context"
	"errors"
	"fmt"
)

// Class is the class of an error: who has to act on it.
type Class int

const (
	// Bug is a broken invariant: the zero class, so that an unclassified
	// error is never retried and never blamed on the user.
	Bug Class = iota
	// User is bad data, a bad spec or a bad request: stop and say what to change.
	User
	// Lost is a machine, process, disk or network that went away: try elsewhere.
	Lost
)

// String returns the word used in logs and status pages.
func (c Class) String() string {
	switch c {
	case User:
		return "user"
	case Lost:
		return "lost"
	default:
		return "bug"
	}
}

type classified struct {
	class Class
	err   error
}

func (e *classified) Error() string { return e.err.Error() }
func (e *classified) Unwrap() error { return e.err }

// Userf formats an error of class User. It wraps like fmt.Errorf.
func Userf(format string, args ...any) error {
	return &classified{User, fmt.Errorf(format, args...)}
}

// Lostf formats an error of class Lost. It wraps like fmt.Errorf.
func Lostf(format string, args ...any) error {
	return &classified{Lost, fmt.Errorf(format, args...)}
}

// As gives err the class c; nil stays nil. The outermost class wins.
func As(c Class, err error) error {
	if err == nil {
		return nil
	}
	return &classified{c, err}
}

// ClassOf returns the class of err: the outermost one set by this package,
// Lost for a cancelled or expired context, else Bug.
func ClassOf(err error) Class {
	var c *classified
	if errors.As(err, &c) {
		return c.class
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return Lost
	}
	return Bug
}
