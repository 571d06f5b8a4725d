package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// ToStatus turns an error into the gRPC status that says its class. An error
// that is a status already, and was given no class, keeps its code.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	switch fault.ClassOf(err) {
	case fault.User:
		return status.Error(codes.FailedPrecondition, err.Error())
	case fault.Lost:
		return status.Error(lostCode(err), err.Error())
	}
	if s, ok := status.FromError(err); ok && s.Code() != codes.Unknown {
		return err
	}
	return status.Error(codes.Internal, err.Error())
}

// lostCode tells a deadline and a caller that left from all that is unavailable.
func lostCode(err error) codes.Code {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	}
	return codes.Unavailable
}

// FromStatus is the inverse of ToStatus: it gives an error that came over the
// wire its class, and the bare text of the other side.
func FromStatus(err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	var text error = &coded{s.Message(), s.Code()}
	if _, silent := Silent(err); silent || notOurs(err) {
		text = err
	}
	switch s.Code() {
	case codes.Internal:
		if strings.Contains(s.Message(), "RST_STREAM") { // gRPC itself: a proxy lost the server behind it in the middle of an answer
			return fault.As(fault.Lost, text)
		}
		return fault.As(fault.Bug, text)
	case codes.ResourceExhausted:
		if err := tooLarge(s.Message()); err != nil {
			return err
		}
		return fault.As(fault.Lost, text)
	case codes.InvalidArgument, codes.FailedPrecondition, codes.NotFound, codes.AlreadyExists,
		codes.OutOfRange, codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented:
		return fault.As(fault.User, text)
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted:
		return fault.As(fault.Lost, text)
	default:
		return fault.As(fault.Bug, text)
	}
}

// coded is an error that came over the wire.
type coded struct {
	text string
	code codes.Code
}

func (e *coded) Error() string { return e.text }

func codeOf(err error) codes.Code {
	if e, ok := errors.AsType[*coded](err); ok {
		return e.code
	}
	return codes.Unknown
}

// Unknown says whether a server does not know the call that was made: it is of a version without
// it, which under TLS lets nobody make it.
func Unknown(err error) bool {
	code := codeOf(err)
	return code == codes.Unimplemented || code == codes.PermissionDenied
}

// OtherService says whether a server refused a request because it answers those with another access key, or does not
// know the call at all, or is no Millrace service: to a caller that it has answered before, it is another one.
func OtherService(err error) bool {
	code := codeOf(err)
	return code == codes.Unauthenticated || code == codes.Unimplemented || notOurs(err)
}

// JoinAgain says whether a constructor refused a request because the rank has to join again.
func JoinAgain(err error) bool { return codeOf(err) == codes.Aborted }

// JoinedSince says whether a constructor refused a request because its rank joined once more
// since.
func JoinedSince(err error) bool { return codeOf(err) == codes.AlreadyExists }

// Moved says whether a constructor or a planner refused a request because the job was moved, and the rank is not
// one of those that go along.
func Moved(err error) bool { return codeOf(err) == codes.OutOfRange }

// ToFailure puts an error on a session's stream. source is its index in the job
// spec, -1 if no one source is to blame.
func ToFailure(err error, source int) *pb.Failure {
	return &pb.Failure{Class: fault.ClassOf(err).String(), Message: err.Error(), Source: uint32(source + 1)}
}

// FromFailure is the inverse of ToFailure.
func FromFailure(f *pb.Failure) error {
	err := errors.New(f.GetMessage())
	for _, c := range []fault.Class{fault.User, fault.Lost} {
		if f.GetClass() == c.String() {
			return fault.As(c, err)
		}
	}
	return fault.As(fault.Bug, err)
}

// Final is what trainers hear of a job that has failed. A lost error is one
// that asking again may mend, and clients do ask again; here it is the job that
// has stopped for good, so that they must not.
func Final(err error) error {
	if fault.ClassOf(err) != fault.Lost {
		return err
	}
	return fault.As(fault.User, fmt.Errorf("the job has failed, start the service again: %w", err))
}
