package rpc

import (
	"context"
	"io"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// Network is what connections are made over, in place of the operating system's. A test
// gives one in memory, with the real gRPC above it. It is safe for concurrent use.
type Network interface {
	// Listen opens an address of the form HOST:PORT.
	Listen(address string) (net.Listener, error)
	// Dial connects to an address that someone listens on, or fails when ctx ends.
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// Over returns the security of roles that listen and dial on a network of their own. Whoever
// is on it is trusted: no access key is asked for.
func Over(network Network) Security { return Security{network: network} }

// Carrier carries calls in place of gRPC, message by message: a test gives one in memory,
// which costs a fraction. To those who call and serve it behaves as gRPC does. It is safe for
// concurrent use.
type Carrier interface {
	// Listen opens an address of the form HOST:PORT. Requests of more than largest bytes are
	// refused.
	Listen(address string, largest int) (Server, error)
	// Connect returns a connection to an address. It connects at the first call.
	Connect(address string) Conn
}

// Local says whether processes of the same machine may meet elsewhere than at their addresses: not if their
// connections are made over a network of their own.
func (s Security) Local() bool { return s.network == nil && s.carrier == nil }

// Through is Over for roles whose calls a carrier carries.
func Through(carrier Carrier) Security { return Security{carrier: carrier} }

// Server serves calls at an address. Services are registered before Serve.
type Server interface {
	grpc.ServiceRegistrar
	// Serve serves until ctx ends, and then as the function Serve does. It is called once.
	Serve(ctx context.Context) error
	// Close closes the address of a server that is not to Serve.
	Close() error
}

// Conn is what calls go over. *grpc.ClientConn is one, and says what the methods do.
type Conn interface {
	grpc.ClientConnInterface
	io.Closer
	Connect()
	GetState() connectivity.State
	WaitForStateChange(ctx context.Context, from connectivity.State) bool
	ResetConnectBackoff()
}

// served is a gRPC server and its listener.
type served struct {
	*grpc.Server
	listener net.Listener
	security Security
}

// Close implements Server.
func (s *served) Close() error { return s.listener.Close() }

// Serve implements Server.
func (s *served) Serve(ctx context.Context) error {
	go s.security.WatchCertificate(ctx.Done())
	return Serve(ctx, s.Server, s.listener)
}
