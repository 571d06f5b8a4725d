package rpc

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// The roles that a certificate may have: URIs among its subject alternative names, such as
// millrace://role/trainer.
const (
	rolePrefix      = "millrace://role/"
	rolePlanner     = "planner"
	roleLoader      = "loader"
	roleConstructor = "constructor"
	roleTrainer     = "trainer"
	roleOperator    = "operator" // who changes a job that runs
	roleWorkers     = "workers"  // a pool, which may belong to no job
	roleService     = "service"  // planner, loader and constructor, as `millrace serve` is
)

// callers are the roles that may make each call. A call that is not here, nobody may make.
var callers = map[string][]string{
	pb.Planner_Load_FullMethodName:        {roleLoader},
	pb.Planner_Construct_FullMethodName:   {roleConstructor},
	pb.Planner_Join_FullMethodName:        {roleTrainer},
	pb.Planner_State_FullMethodName:       {roleTrainer, roleOperator},
	pb.Planner_Locate_FullMethodName:      {roleTrainer, roleOperator},
	pb.Planner_Report_FullMethodName:      {roleTrainer},
	pb.Planner_Change_FullMethodName:      {roleOperator},
	pb.Planner_Status_FullMethodName:      {roleOperator, roleTrainer, rolePlanner, roleLoader, roleConstructor},
	pb.Planner_Why_FullMethodName:         {roleTrainer, roleOperator},
	pb.Loader_Fetch_FullMethodName:        {roleConstructor},
	pb.Constructor_Deliver_FullMethodName: {roleTrainer},
	pb.Constructor_Share_FullMethodName:   {roleTrainer},
	pb.Constructor_Batch_FullMethodName:   {roleTrainer},
	pb.Constructor_Ack_FullMethodName:     {roleTrainer},
	pb.Constructor_Peek_FullMethodName:    {roleTrainer, roleOperator},
	pb.Workers_Serve_FullMethodName:       {roleLoader, roleOperator},
	pb.Workers_Run_FullMethodName:         {roleLoader, roleOperator},
}

// authorization is the header that carries the access key.
const authorization, bearer = "authorization", "Bearer "

// guard lets requests in. It sees them before anything of their messages is read, so that
// who is refused takes no memory.
type guard struct {
	keys    *keys // nil: none is asked for
	tls     bool  // callers have certificates, whose roles count
	planner bool  // this may be the planner
}

func (g *guard) admit(ctx context.Context, call *tap.Info) (context.Context, error) {
	if !g.planner && strings.HasPrefix(call.FullMethodName, "/millrace.v1.Planner/") {
		return ctx, status.Error(codes.Unimplemented, notPlanner)
	}
	if g.tls {
		if err := checkCaller(ctx, call.FullMethodName); err != nil {
			return ctx, err
		}
	}
	if g.keys != nil {
		if err := g.checkKey(call.Header); err != nil {
			return ctx, err
		}
	}
	return ctx, nil
}

// checkKey refuses a request without the access key of the job.
func (g *guard) checkKey(header metadata.MD) error {
	what := "this request has none"
	for _, value := range header.Get(authorization) {
		got, isKey := strings.CutPrefix(value, bearer)
		ok, err := g.keys.opens(got)
		if err != nil {
			return keyStatus(err)
		}
		if isKey && ok {
			return nil
		}
		what = "this request has another one"
	}
	return status.Error(codes.Unauthenticated, "the service answers who has its access key only, and "+what+
		": connect from its machine as the user who started it, at the address that it printed, or give its key with --access-key-file (Python: access_key_file=), "+envKeyFile+" or "+envKey)
}

// checkCaller refuses a certificate without a role that may make a call.
func checkCaller(ctx context.Context, method string) error {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return status.Error(codes.PermissionDenied, "the caller is not known")
	}
	return checkRole(p.AuthInfo, callers[method], "to call "+strings.TrimPrefix(method, "/millrace.v1."))
}

// checkRole refuses a peer whose certificate has none of some roles.
func checkRole(auth credentials.AuthInfo, want []string, purpose string) error {
	info, ok := auth.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return status.Error(codes.PermissionDenied, "the other side has shown no certificate")
	}
	cert := info.State.PeerCertificates[0]
	has := rolesOf(cert)
	if slices.ContainsFunc(want, func(role string) bool { return slices.Contains(has, role) }) {
		return nil
	}
	if len(want) == 0 {
		return status.Errorf(codes.PermissionDenied, "nobody may be asked %s", purpose)
	}
	return status.Errorf(codes.PermissionDenied, "the certificate of %q has no role %s: among its subject alternative names must be URI:%s, and its roles are %s; see docs/cli.md",
		cert.Subject, purpose, rolePrefix+strings.Join(want, " or URI:"+rolePrefix), nameAll(has))
}

// CheckReached refuses who says that others reach it at address, and has a certificate which does not name that host, so that
// nobody would believe it there. The error is of class fault.User.
func CheckReached(ctx context.Context, address, who string) error {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return nil
	}
	host := "localhost" // as gRPC calls the other end of a socket
	if !strings.HasPrefix(address, "unix:") {
		var err error
		if host, _, err = net.SplitHostPort(address); err != nil {
			return fault.Userf("%s says that others reach it at %q, which is no address: give --listen HOST:PORT, or --advertise", who, address)
		}
		host, _, _ = strings.Cut(host, "%") // the zone is that of a machine, and in no certificate
	}
	cert := info.State.PeerCertificates[0]
	if err := cert.VerifyHostname(host); err != nil {
		return fault.Userf("%s says that others reach it at %s, and they would not believe it there, by its certificate (%s): %w: give it a certificate that names %s, or a host that this one names with --listen or --advertise",
			who, address, cert.Subject, err, host)
	}
	return nil
}

func nameAll(roles []string) string {
	if len(roles) == 0 {
		return "none"
	}
	return strings.Join(roles, ", ")
}

// rolesOf are the roles that a certificate has.
func rolesOf(cert *x509.Certificate) (roles []string) {
	for _, uri := range cert.URIs {
		role, ok := strings.CutPrefix(uri.String(), rolePrefix)
		if ok && role == roleService {
			roles = append(roles, rolePlanner, roleLoader, roleConstructor)
		} else if ok {
			roles = append(roles, role)
		}
	}
	return roles
}

// caller is the client's side of guard: it adds the access key to each request, and sees
// that the certificate of who answers has the role of the service that is called.
type caller struct {
	keys *keys     // nil: none is given
	own  *identity // nil: plain text
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (c *caller) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	if c.own != nil {
		c.own.met.Store(true)
		info, _ := credentials.RequestInfoFromContext(ctx)
		if err := checkRole(info.AuthInfo, []string{serverOf(info.Method)}, fmt.Sprintf("to answer %s", strings.TrimPrefix(info.Method, "/millrace.v1."))); err != nil {
			return nil, err
		}
	}
	if c.keys == nil {
		return nil, nil
	}
	key, err := c.keys.first()
	if err != nil {
		return nil, keyStatus(err)
	}
	if key == "" { // the service says what it wants
		return nil, nil
	}
	return map[string]string{authorization: bearer + key}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. Listen decides where
// plain text may go.
func (c *caller) RequireTransportSecurity() bool { return false }

// serverOf is the role that serves a method: /millrace.v1.Planner/Join is the planner's.
func serverOf(method string) string {
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/millrace.v1."), "/")
	return strings.ToLower(service)
}
