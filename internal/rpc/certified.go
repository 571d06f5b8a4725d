package rpc

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"regexp"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// certified are gRPC's credentials of connections each of which has the certificate and the authorities that the files hold
// when it begins.
type certified struct{ *identity }

func (c certified) now() credentials.TransportCredentials { return credentials.NewTLS(c.current()) }

// ClientHandshake implements credentials.TransportCredentials.
func (c certified) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c.now().ClientHandshake(ctx, authority, raw)
}

// ServerHandshake implements credentials.TransportCredentials.
func (c certified) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c.now().ServerHandshake(raw)
}

// Info implements credentials.TransportCredentials.
func (c certified) Info() credentials.ProtocolInfo { return c.now().Info() }

// Clone implements credentials.TransportCredentials.
func (c certified) Clone() credentials.TransportCredentials { return c }

// OverrideServerName implements credentials.TransportCredentials. Nobody asks for it: names are checked as they are dialed.
func (certified) OverrideServerName(string) error {
	return errors.New("the name of a server is not overridden")
}

// trust gives errors of connections to an address whose sides do not trust each other the class of the user's, whose certificates
// these are. Once another side has accepted this one, they are lost as other connections are: a certificate that has ended is
// renewed.
type trust struct {
	address string
	own     *identity // nil: plain text
	looks   bool      // plain text: whether TLS is spoken at the address can be found out
}

// options are those of a connection.
func (t *trust) options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return t.explain(ctx, call(ctx, method, request, reply, conn, opts...))
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			stream, err := open(ctx, desc, conn, method, opts...)
			return stream, t.explain(ctx, err)
		}),
	}
}

// What gRPC says of a connection whose sides do not trust each other, and of one that the other side has closed: perhaps as it
// takes TLS only, or does not take our certificate, of which it may be too late to hear.
var (
	untrusted = regexp.MustCompile(`\b(x509|tls): `)
	hungUp    = regexp.MustCompile(`error reading server preface: (EOF|.*reset by peer)|broken pipe|reset by peer`)
)

// explain gives the error of a call that has found no connection its class.
func (t *trust) explain(ctx context.Context, err error) error {
	if status.Code(err) != codes.Unavailable {
		return err
	}
	text := status.Convert(err).Message()
	if t.looks && hungUp.MatchString(text) && (t.own == nil || !t.own.met.Load()) {
		text = cmp.Or(t.ask(ctx), text)
	}
	switch {
	case t.own == nil && text == takesTLS:
		return &httpError{address: t.address, tls: true}
	case t.own != nil && !t.own.met.Load() && untrusted.MatchString(text):
		return status.Errorf(codes.Unauthenticated, "what answers at %s and this side, with the certificate %s and the authority %s, do not trust each other: %s; "+
			"a certificate must name the host or address that it is reached at, be valid now and be signed by the authority that the other side has", t.address, t.own.files[0], t.own.files[2], text)
	}
	return err
}

// takesTLS is what ask hears of who trusts us.
const takesTLS = "it takes TLS"

// ask connects once more, by TLS, and returns what the other side says of that; "" if it speaks no TLS. It says nothing itself, and
// without certificates of its own believes nothing.
func (t *trust) ask(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	network, address := "tcp", t.address
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
	}
	config := &tls.Config{InsecureSkipVerify: true}
	if t.own != nil {
		config = t.own.current().Clone()
	}
	config.NextProtos = []string{"h2"}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, network, address)
	if err == nil {
		defer conn.Close()
		if t.own == nil {
			return takesTLS
		}
		deadline, _ := ctx.Deadline()
		err = conn.SetReadDeadline(deadline)
	}
	if err == nil {
		_, err = conn.Read(make([]byte, 1)) // a certificate that is not taken is refused after the handshake
	}
	if err != nil && untrusted.MatchString(err.Error()) {
		return err.Error()
	}
	return ""
}
