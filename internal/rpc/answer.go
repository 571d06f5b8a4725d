package rpc

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace-data/millrace/internal/fault"
)

// What gRPC says of an address where no gRPC is spoken, of one that does not answer, and of a name that nobody has.
var (
	noAnswer    = regexp.MustCompile(`server preface|i/o timeout|deadline exceeded`)
	httpAnswer  = regexp.MustCompile(`unexpected HTTP status code received from server: (\d+)`)
	otherAnswer = regexp.MustCompile(`malformed header: missing HTTP (content-type|status)|received unexpected content-type`)
	// What is no HTTP/2: of HTTP/1, SSH and others.
	otherTongue = regexp.MustCompile(`error reading server preface: .*frame too large|initial http2 frame from server is not a settings frame`)
	otherRole   = regexp.MustCompile(`^unknown service millrace\.v1\.(\w+)(: this is (.*))?$`)
)

// notPlanner is what a role of a service says to those that take it for the planner; client/python knows it, too.
const notPlanner = "unknown service millrace.v1.Planner: this is a Millrace loader or constructor"

const (
	noAddress = "name resolver error: produced zero addresses"
	noHost    = "there is no host "
)

// NoHost says whether DNS does not know the host of an address.
func NoHost(err error) bool { return err != nil && strings.Contains(err.Error(), noHost) }

// httpError is an answer of what is no service of ours: a web server, or a proxy whose service is away. It is a
// status, as other errors of calls are.
type httpError struct {
	address string
	code    int  // of HTTP; 0: it is not known
	tls     bool // it takes TLS only, and this side speaks plain text
}

// explain gives an error of a call on a connection that gRPC does not explain to those who gave an address the words that do.
func (l *listener) explain(w *wire, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	text := s.Message()
	if m := otherRole.FindStringSubmatch(text); m != nil && s.Code() == codes.Unimplemented {
		return status.Error(s.Code(), wrongRole(l.address, m[1], m[3]))
	}
	if otherTongue.MatchString(text) {
		return &httpError{address: l.address}
	}
	if w.silent.Load() && s.Code() == codes.Canceled {
		return status.Errorf(codes.Unavailable, "the connection to %s has carried nothing for a while, and another one takes its place", l.address)
	}
	if silence, mute := w.mute(); mute && s.Code() == codes.Unavailable && noAnswer.MatchString(text) {
		return &silentError{l.address, silence}
	}
	if m := httpAnswer.FindStringSubmatch(text); m != nil {
		code, _ := strconv.Atoi(m[1]) // three digits
		return &httpError{address: l.address, code: code}
	}
	if otherAnswer.MatchString(text) {
		return &httpError{address: l.address}
	}
	if before, after, ok := strings.Cut(text, noAddress); ok {
		host, _, _ := net.SplitHostPort(l.address) // as checkAddress had it
		return status.Errorf(s.Code(), "%s%s%s (DNS): check the name%s", before, noHost, host, after)
	}
	return err
}

// wrongRole says that what answers at an address does not serve what was asked of it, but is another role, if that is known.
func wrongRole(address, want, is string) string {
	if want = strings.ToLower(want); want != rolePlanner {
		return fmt.Sprintf("what answers at %s is another role or service, and no Millrace %s", address, want)
	}
	return fmt.Sprintf("what answers at %s is %s, not the planner: give the address that `millrace planner` or `millrace serve` printed", address, cmp.Or(is, "another role or service"))
}

// away says whether it is the answer of a proxy that does not reach what is behind it.
func (e *httpError) away() bool {
	return e.code >= 500 || e.code == http.StatusTooManyRequests || e.code == http.StatusRequestTimeout
}

func (e *httpError) Error() string {
	switch {
	case e.tls:
		return fmt.Sprintf("what answers at %s takes TLS only: give --tls-cert, --tls-key and --tls-ca (Python: tls_cert=, tls_key=, tls_ca=)", e.address)
	case e.away():
		return fmt.Sprintf("what answers at %s is not a Millrace service but a proxy that does not reach one now (HTTP %d)", e.address, e.code)
	case e.code == 0:
		return fmt.Sprintf("what answers at %s is not a Millrace service: check address and port", e.address)
	}
	return fmt.Sprintf("what answers at %s is not a Millrace service (HTTP %d): check address and port", e.address, e.code)
}

// GRPCStatus makes it an error of a service that is not there now, or of who gave the address.
func (e *httpError) GRPCStatus() *status.Status {
	if e.away() {
		return status.New(codes.Unavailable, e.Error())
	}
	return status.New(codes.FailedPrecondition, e.Error())
}

// notOurs says whether an error is the answer of what is no Millrace service.
func notOurs(err error) bool {
	_, ok := errors.AsType[*httpError](err)
	return ok
}

// Lost gives an error of a service that was found before, or that the planner has named, the class that its answer
// has there: what is no Millrace service has its address for now only.
func Lost(err error) error {
	if notOurs(err) {
		return fault.As(fault.Lost, err)
	}
	return err
}

// The limits of names of hosts, in bytes.
const longestName, longestLabel = 253, 63

// checkHost refuses a name that no host can have.
func checkHost(host, address string) error {
	if n := len(strings.TrimSuffix(host, ".")); n > longestName {
		return fault.Userf("address %.40q... has a host's name of %d characters: names have at most %d", address, n, longestName)
	}
	for label := range strings.SplitSeq(host, ".") {
		if len(label) > longestLabel {
			return fault.Userf("address %.40q... has a host's name with a part of %d characters: between two dots are at most %d", address, len(label), longestLabel)
		}
	}
	return nil
}
