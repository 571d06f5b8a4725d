package rpc

import (
	"cmp"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"

	"github.com/millrace-data/millrace/internal/fault"
)

// Security says how roles and trainers trust each other. The zero value is plain text, which
// Listen allows on loopback and unix sockets only, and the access key that the planner has
// made for its job, which Dial finds by the planner's address.
//
// An access key proves the client to the service. With TLS both sides prove themselves by
// certificates, whose roles say what each may ask for; a key counts beside them if it is given.
type Security struct {
	CertFile      string // PEM; with KeyFile. The files are read again when they have changed
	KeyFile       string
	CAFile        string // PEM; the CA certificates that peers must be signed by (mutual TLS)
	Insecure      bool   // allow plain text off loopback: the network is trusted
	AccessKeyFile string // holds the access key; default: MILLRACE_ACCESS_KEY, MILLRACE_ACCESS_KEY_FILE, or what is left for clients

	standby   bool    // a planner that stands by for another one
	planner   string  // the address whose access key counts
	accessKey string  // the key, if it is known; a planner's
	network   Network // nil: the operating system's
	carrier   Carrier // nil: gRPC
}

// Of returns s for one who belongs to the service of a planner: it is that one's access key
// that counts, whoever is called or serves.
func (s Security) Of(planner string) Security {
	s.planner = cmp.Or(s.planner, planner)
	return s
}

func (s Security) enabled() bool { return s.CertFile != "" }

func (s Security) validate() error {
	if (s.CertFile == "") != (s.KeyFile == "") || (s.CertFile == "") != (s.CAFile == "") {
		return fault.Userf("TLS needs all three of --tls-cert, --tls-key and --tls-ca")
	}
	return nil
}

// maxMessage bounds one message that is not a frame: the plan of a step with a
// million samples is about 10 MB.
const maxMessage = 256 << 20

// planWindow is how much a planner may send a role that has not read what came before: a constructor's part of a step's
// plan goes at once. With gRPC's own 64 KiB the rest of it waits until the role has had its turn on a machine that has other
// things to do. On a link of 10 KB/s it takes less time than serverPatience.
const planWindow = 256 << 10

// keepAlive finds a peer that went away without a word: a ping after 10 s of
// silence, given up 10 s later.
const keepAlive = 10 * time.Second

// serverPatience is how long a server waits for the answer to its ping, which may come behind a step on a slow link.
const serverPatience = 30 * time.Second

// idleTime is how long a connection stays that is Occasional and has no call: longer than the pauses between tries.
const idleTime = 3 * time.Second

// connectTime is how long a connection may take to be there: a process that is stopped takes
// connections and says nothing on them.
const connectTime = 5 * time.Second

// reconnect says how soon a connection that failed is tried again. gRPC's own limit is two
// minutes, which a role that came back would not be found for.
var reconnect = backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}

// NewServer returns a gRPC server with Millrace's codec and limits. It asks for the access key
// of the planner that sec is Of; Run sees to it that one exists.
func NewServer(sec Security, with ...grpc.ServerOption) (*grpc.Server, error) {
	if err := sec.validate(); err != nil {
		return nil, err
	}
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(Codec()),
		experimental.BufferPool(frameBuffers),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepAlive / 2, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepAlive, Timeout: serverPatience}),
	}
	if sec.enabled() {
		own, err := sec.identity()
		if err != nil {
			return nil, err
		}
		options = append(options, grpc.Creds(certified{own}))
	}
	if g := (&guard{keys: sec.keys(), tls: sec.enabled(), planner: sec.planner == ""}); g.tls || g.keys != nil {
		options = append(options, grpc.InTapHandle(g.admit))
	}
	return grpc.NewServer(append(options, with...)...), nil
}

// Occasional is for a connection on which calls are rare: after idleTime without one it is closed, and the next call opens
// it again. Thousands of ranks call the planner when they join and when they save. With TLS it stays, as a certificate that
// ends would not open it again.
func Occasional(sec Security) grpc.DialOption {
	if sec.enabled() {
		return grpc.EmptyDialOption{}
	}
	return grpc.WithIdleTimeout(idleTime)
}

// Dial returns a connection to address: HOST:PORT or unix:PATH. It connects at
// the first call. Unless sec is Of another one, address is the planner's, which may
// send planWindow bytes ahead. more are options beside those of all connections. An
// address or files that cannot be are an error of class fault.User.
func Dial(address string, sec Security, more ...grpc.DialOption) (Conn, error) {
	if err := cmp.Or(sec.validate(), checkAddress(address)); err != nil {
		return nil, err
	}
	if sec.carrier != nil {
		return newLink(address, func() (Conn, error) { return sec.carrier.Connect(address), nil })
	}
	creds, trusts := insecure.NewCredentials(), &trust{address: address, looks: sec.network == nil}
	if sec.enabled() {
		own, err := sec.identity()
		if err != nil {
			return nil, err
		}
		creds, trusts.own = certified{own}, own
	}
	target, dialer := sec.target(address)
	options := []grpc.DialOption{dialer,
		grpc.WithTransportCredentials(creds),
		grpc.WithPerRPCCredentials(&caller{keys: sec.Of(address).keys(), own: trusts.own}),
		grpc.WithNoProxy(), // a cluster's proxy is for the world outside, and does not know its pods
		experimental.WithBufferPool(frameBuffers),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(Codec()), grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepAlive, Timeout: keepAlive}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: connectTime}),
	}
	options = append(options, trusts.options()...)
	if sec.planner == "" { // it is the planner
		options = append(options, grpc.WithInitialWindowSize(planWindow), grpc.WithInitialConnWindowSize(planWindow))
	}
	options = append(options, more...)
	conn, err := newLink(address, func() (Conn, error) { return grpc.NewClient(target, options...) })
	if err != nil {
		return nil, fault.Userf("address %q: %w; use HOST:PORT or unix:PATH", address, err)
	}
	return conn, nil
}

// target is what gRPC calls address, and how it connects there.
func (s Security) target(address string) (string, grpc.DialOption) {
	if s.network != nil {
		return "passthrough:///" + address, grpc.WithContextDialer(s.network.Dial)
	}
	// To gRPC it is a URL, in which these have another meaning: in paths, and before the zone of an IPv6 address.
	path, socket := strings.CutPrefix(address, "unix:")
	switch {
	case socket && strings.ContainsAny(path, "%?#"):
		if whole, err := filepath.Abs(path); err == nil {
			address = (&url.URL{Scheme: "unix", Path: whole}).String()
		}
	case !socket && strings.Contains(address, "%"):
		address = "dns:///" + strings.ReplaceAll(address, "%", "%25")
	}
	return address, grpc.EmptyDialOption{}
}

// checkAddress refuses what names no host or no port: gRPC would take port 443, or look for
// the name for ever.
func checkAddress(address string) error {
	if path, ok := strings.CutPrefix(address, "unix:"); ok && path != "" {
		if most := len(syscall.RawSockaddrUnix{}.Path) - 1; len(path) > most {
			return fault.Userf("address %q: the path of a socket has %d bytes at most: name a shorter one, such as one from the folder that this runs in", address, most)
		}
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || host == "" || strings.ContainsAny(host, "/ ") {
		return fault.Userf("address %q is none: give HOST:PORT, such as 127.0.0.1:7070, or unix:PATH", address)
	}
	return checkHost(host, address)
}

// OnlyHere reports whether a role that found its planner off loopback can itself be
// reached from its own machine only.
func OnlyHere(address, planner string) bool {
	own, _, err := net.SplitHostPort(address)
	theirs, _, bad := net.SplitHostPort(planner)
	return err == nil && bad == nil && Loopback(own) && !Loopback(theirs) && !strings.HasPrefix(planner, "unix:")
}

// Listen opens address (HOST:PORT or unix:PATH). Off loopback it insists on TLS
// or on Insecure, since whoever reaches the port can read the training data.
func Listen(address string, sec Security) (net.Listener, error) {
	if sec.network != nil {
		return sec.network.Listen(address)
	}
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		return listenUnix(path)
	}
	if err := sec.checkPlain(address); err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(address) // it was checked
	return listenTCP(host, address, "--listen")
}

// checkPlain refuses to listen where the whole network reads along.
func (s Security) checkPlain(address string) error {
	if strings.HasPrefix(address, "unix:") {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fault.Userf("address %q: %w; use HOST:PORT or unix:PATH", address, err)
	}
	if !Loopback(host) && !s.enabled() && !s.Insecure {
		return fault.Userf("listening on %s without TLS would show the training data to the whole network: "+
			"give --tls-cert, --tls-key and --tls-ca, listen on 127.0.0.1, or say --insecure if the network is trusted", address)
	}
	return nil
}

// ListenPages opens address (HOST:PORT) for pages about the service, in HTTP. Off loopback it insists on
// TLS or on Insecure, as Listen does; a certificate is asked of callers, and one that is given is checked: which pages need one is
// the server's. flag names where the address came from, in messages.
func ListenPages(address string, sec Security, flag string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fault.Userf("%s %q: %w; use HOST:PORT", flag, address, err)
	}
	if err := sec.validate(); err != nil {
		return nil, err
	}
	if !Loopback(host) && !sec.enabled() && !sec.Insecure {
		return nil, fault.Userf("%s %s without TLS would show the names of the job, its sources, roles and ranks, and how far they are, to the whole network: "+
			"give --tls-cert, --tls-key and --tls-ca, an address on 127.0.0.1, or say --insecure if the network is trusted", flag, address)
	}
	l, err := listenTCP(host, address, flag)
	if err != nil || Loopback(host) || !sec.enabled() {
		return l, err
	}
	own, err := sec.identity()
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return tls.NewListener(l, &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		config := own.current().Clone()
		config.ClientAuth = tls.VerifyClientCertIfGiven
		return config, nil
	}}), nil
}

// listenTCP opens a port. flag is what the address was given with.
func listenTCP(host, address, flag string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	unknown, _ := errors.AsType[*net.DNSError](err) // which may be of the port
	if errors.Is(err, syscall.EADDRNOTAVAIL) || unknown != nil && unknown.Name == host {
		return nil, fault.Userf("listening on %s: %w: this machine has no such address; name one of its own with %s "+
			"(0.0.0.0 is all of them), and with --advertise the one that others reach it at, where that is another", address, err, flag)
	}
	if err != nil {
		return nil, fault.Userf("listening on %s: %w; choose another port with %s, or 0 for a free one", address, err, flag)
	}
	return withZone(l, host), nil
}

// withZone gives the address of a listener the zone of the host that it was asked for, which not every system says again.
func withZone(l net.Listener, host string) net.Listener {
	at, ok := l.Addr().(*net.TCPAddr)
	if _, zone, has := strings.Cut(host, "%"); ok && has && at.Zone == "" {
		return &zoned{l, &net.TCPAddr{IP: at.IP, Port: at.Port, Zone: zone}}
	}
	return l
}

// zoned is a listener on an address of a zone.
type zoned struct {
	net.Listener
	at net.Addr
}

func (l *zoned) Addr() net.Addr { return l.at }

// Loopback says whether a host is this machine, reached by itself only.
func Loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Address is the address of a listener in the form Dial takes.
func Address(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return "unix:" + l.Addr().String()
	}
	return l.Addr().String()
}

// advertised is where others reach a listener. advertise says so where the
// listener cannot know it (behind a wildcard address or a mapped port): HOST,
// with the listener's port, or HOST:PORT. Without it a wildcard address is
// reached by this machine's name.
func advertised(l net.Listener, advertise string) string {
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil || l.Addr().Network() == "unix" {
		return Address(l)
	}
	if advertise == "" {
		if ip := net.ParseIP(host); ip == nil || !ip.IsUnspecified() {
			return Address(l)
		}
		if advertise, err = os.Hostname(); err != nil {
			return Address(l)
		}
	}
	if _, _, err := net.SplitHostPort(advertise); err == nil {
		return advertise
	}
	return net.JoinHostPort(advertise, port)
}
