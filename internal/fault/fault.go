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
	"strings"
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

// classed is what the three classes have in common. It has no Unwrap: an error that
// another class wraps is found by errors.Is and errors.As, and its class is not.
type classed struct{ err error }

// Error returns the message of the wrapped error, as valid UTF-8: messages travel as text, and what they quote of files,
// such as the names of a tar's members, may be anything.
func (e *classed) Error() string { return strings.ToValidUTF8(e.err.Error(), "\uFFFD") }

// Is forwards errors.Is to the wrapped error.
func (e *classed) Is(target error) bool { return errors.Is(e.err, target) }

// As forwards errors.As to the wrapped error, except for classes: the outermost counts.
func (e *classed) As(target any) bool {
	switch target.(type) {
	case **UserError, **LostError, **bugError, *hasClass:
		return false
	}
	return errors.As(e.err, target)
}

// UserError is an error of class User: bad data, a bad spec or a bad request. Its
// message says what to change; trying again without a change is useless.
type UserError struct{ classed }

// LostError is an error of class Lost: a machine, process, disk or network that went
// away. Neither the spec nor the data is at fault; trying again may help.
type LostError struct{ classed }

type bugError struct{ classed }

func (*UserError) class() Class { return User }
func (*LostError) class() Class { return Lost }
func (*bugError) class() Class  { return Bug }

type hasClass interface{ class() Class }

// Userf formats an error of class User. It wraps like fmt.Errorf.
func Userf(format string, args ...any) error { return As(User, fmt.Errorf(format, args...)) }

// Lostf formats an error of class Lost. It wraps like fmt.Errorf.
func Lostf(format string, args ...any) error { return As(Lost, fmt.Errorf(format, args...)) }

// As gives err the class c; nil stays nil. The outermost class wins.
func As(c Class, err error) error {
	if err == nil {
		return nil
	}
	switch c {
	case User:
		return &UserError{classed{err}}
	case Lost:
		return &LostError{classed{err}}
	}
	return &bugError{classed{err}}
}

// ClassOf returns the class of err: the outermost one set by this package,
// Lost for a cancelled or expired context, else Bug.
func ClassOf(err error) Class {
	var c hasClass
	if errors.As(err, &c) {
		return c.class()
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return Lost
	}
	return Bug
}

// ErrTried is found by errors.Is in an error of class Lost after which nothing is tried again: whoever
// gives it has tried as often as is of use, and those further out only wrap it.
var ErrTried = errors.New("it was tried often enough")

type tried struct{ error }

func (t *tried) Unwrap() error        { return t.error }
func (t *tried) Is(target error) bool { return target == ErrTried }

// Tried marks an error with ErrTried.
func Tried(err error) error { return &tried{err} }
