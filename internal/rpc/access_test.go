package rpc

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// methods are all calls of the wire, as the descriptors have them: none that is added is
// forgotten here.
func methods() (all []string) {
	services := pb.File_proto_millrace_proto.Services()
	for i := range services.Len() {
		of := services.Get(i).Methods()
		for k := range of.Len() {
			all = append(all, methodName(of.Get(k)))
		}
	}
	return all
}

func methodName(m protoreflect.MethodDescriptor) string {
	return "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
}

// TestCallersAreNamed: every call has roles that may make it, and no other call has.
func TestCallersAreNamed(t *testing.T) {
	all := methods()
	if len(all) < 9 {
		t.Fatalf("the wire has the calls %v only", all)
	}
	for _, method := range all {
		if len(callers[method]) == 0 {
			t.Errorf("no role may call %s: say which ones in callers", method)
		}
	}
	for method := range callers {
		if !slices.Contains(all, method) {
			t.Errorf("callers has %s, and the wire does not", method)
		}
	}
}

// serveAll serves all services of the wire, none of whose calls does anything, with an access
// key if sec has one, until the test ends.
func serveAll(t *testing.T, sec Security) (address string) {
	t.Helper()
	register := func(s grpc.ServiceRegistrar) {
		pb.RegisterPlannerServer(s, pb.UnimplementedPlannerServer{})
		pb.RegisterLoaderServer(s, pb.UnimplementedLoaderServer{})
		pb.RegisterConstructorServer(s, pb.UnimplementedConstructorServer{})
	}
	ctx, cancel := context.WithCancel(context.Background())
	at, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- Run(ctx, "127.0.0.1:0", "", sec, MaxControl, register, func(ctx context.Context, address string) error {
			at <- address
			<-ctx.Done()
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case address = <-at:
	case err := <-ended:
		ended <- err
		t.Fatal(err)
	}
	return address
}

// call makes a call with an empty message and returns how it ends. Of one that is let in,
// this is codes.Unimplemented.
func call(t *testing.T, conn Conn, method string, header ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), header...), time.Minute)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	stream.SendMsg(&emptypb.Empty{}) // how it ends, RecvMsg says
	stream.CloseSend()
	return stream.RecvMsg(&emptypb.Empty{})
}

// TestEveryCallWantsTheKey plays another user of the machine, who has not the key: no call of
// any service is answered, and who has it is let in.
func TestEveryCallWantsTheKey(t *testing.T) {
	t.Setenv(envKeyDir, t.TempDir())
	address := serveAll(t, Security{})
	other, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	own, err := Dial(address, Security{})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	key, err := readKey(filepath.Join(os.Getenv(envKeyDir), keyName(address)))
	if err != nil {
		t.Fatal(err)
	}
	for _, method := range append(methods(), "/millrace.v1.Planner/NoSuchCall", "/grpc.health.v1.Health/Check") {
		for what, header := range map[string][]string{
			"no key": nil, "an empty key": {authorization, bearer}, "another key": {authorization, bearer + newKey()},
			"no scheme": {authorization, key}, "a part of the key": {authorization, bearer + key[:60]}, "more than the key": {authorization, bearer + key + "0"},
			"another header": {"key", bearer + key},
		} {
			err := call(t, other, method, header...)
			if status.Code(err) != codes.Unauthenticated || fault.ClassOf(FromStatus(err)) != fault.User || !strings.Contains(err.Error(), "--access-key-file") {
				t.Errorf("%s with %s: %v", method, what, err)
			}
			if strings.Contains(err.Error(), key[:8]) {
				t.Errorf("%s with %s tells the key: %v", method, what, err)
			}
		}
		for _, conn := range []Conn{own, other} {
			header := []string{authorization, bearer + key}
			if conn == own {
				header = nil
			}
			if err := call(t, conn, method, header...); status.Code(err) != codes.Unimplemented {
				t.Errorf("%s with the key: %v", method, err)
			}
		}
	}
}

// signer is an authority that signs certificates for 127.0.0.1.
type signer struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newSigner(t *testing.T) *signer {
	s := &signer{dir: t.TempDir(), cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	s.issue(t, "authority", s.cert)
	return s
}

// issue writes NAME.pem and NAME.key.
func (s *signer) issue(t *testing.T, name string, cert *x509.Certificate) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if s.key == nil {
		s.key = key
	}
	signed, err := x509.CreateCertificate(rand.Reader, cert, s.cert, &key.PublicKey, s.key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: signed}, name + ".key": {Type: "EC PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(filepath.Join(s.dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// with is the security of one who has a certificate with some roles.
func (s *signer) with(t *testing.T, roles ...string) Security {
	name := "cert-" + strings.Join(roles, "-")
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	for _, role := range roles {
		u, err := url.Parse(rolePrefix + role)
		if err != nil {
			t.Fatal(err)
		}
		cert.URIs = append(cert.URIs, u)
	}
	s.issue(t, name, cert)
	path := func(file string) string { return filepath.Join(s.dir, file) }
	return Security{CertFile: path(name + ".pem"), KeyFile: path(name + ".key"), CAFile: path("authority.pem")}
}

// TestRolesOfCertificates: under TLS a certificate speaks as what it says it is, and as
// nothing else.
func TestRolesOfCertificates(t *testing.T) {
	t.Setenv(envKeyDir, t.TempDir())
	authority := newSigner(t)
	address := serveAll(t, authority.with(t, roleService, roleWorkers))
	const join, state, report = "Planner/Join", "Planner/State", "Planner/Report"
	const load, construct, change, ask, why = "Planner/Load", "Planner/Construct", "Planner/Change", "Planner/Status", "Planner/Why"
	const fetch, deliver, batch, ack, locate, peek, share = "Loader/Fetch", "Constructor/Deliver", "Constructor/Batch", "Constructor/Ack", "Planner/Locate", "Constructor/Peek", "Constructor/Share"
	const open, run = "Workers/Serve", "Workers/Run"
	for _, c := range []struct{ roles, may []string }{
		{nil, nil},
		{[]string{"admin"}, nil},
		{[]string{roleTrainer}, []string{join, state, report, ask, why, deliver, share, batch, ack, locate, peek}},
		{[]string{roleLoader}, []string{load, ask, open, run}},
		{[]string{roleConstructor}, []string{construct, ask, fetch}},
		{[]string{roleOperator}, []string{change, state, ask, why, locate, peek, open, run}},
		{[]string{roleWorkers}, nil},
		{[]string{rolePlanner}, []string{ask}},
		{[]string{roleService}, []string{load, construct, ask, fetch, open, run}},
		{[]string{roleTrainer, roleOperator}, []string{join, state, report, ask, why, deliver, share, batch, ack, locate, peek, change, open, run}},
	} {
		conn, err := Dial(address, authority.with(t, c.roles...))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for _, method := range methods() {
			err := call(t, conn, method)
			switch may := slices.Contains(c.may, strings.TrimPrefix(method, "/millrace.v1.")); {
			case may && status.Code(err) != codes.Unimplemented:
				t.Errorf("a certificate of %v may not call %s: %v", c.roles, method, err)
			case !may && status.Code(err) != codes.PermissionDenied:
				t.Errorf("a certificate of %v calls %s: %v", c.roles, method, err)
			case !may && (fault.ClassOf(FromStatus(err)) != fault.User || !strings.Contains(err.Error(), "URI:"+rolePrefix+callers[method][0])):
				t.Errorf("a certificate of %v that calls %s is not told what it needs: %v", c.roles, method, err)
			}
		}
	}
}

// TestImpostor: a trainer's certificate serves nothing, though the authority has signed it.
func TestImpostor(t *testing.T) {
	t.Setenv(envKeyDir, t.TempDir())
	authority := newSigner(t)
	address := serveAll(t, authority.with(t, roleTrainer))
	conn, err := Dial(address, authority.with(t, roleTrainer, roleConstructor, roleLoader, roleOperator))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, method := range methods() {
		if err := call(t, conn, method); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "to answer") {
			t.Errorf("%s is asked of a trainer: %v", method, err)
		}
	}
}

// TestKeyBesideCertificates: a key that is given counts under TLS, too, so that jobs which
// share an authority are apart.
func TestKeyBesideCertificates(t *testing.T) {
	t.Setenv(envKeyDir, t.TempDir())
	authority := newSigner(t)
	file := filepath.Join(t.TempDir(), "job.key")
	sec, trainer := authority.with(t, roleService), authority.with(t, roleTrainer)
	sec.AccessKeyFile = file // it is made
	address := serveAll(t, sec)
	for _, c := range []struct {
		file string
		code codes.Code
	}{{"", codes.Unauthenticated}, {file, codes.Unimplemented}, {file + ".none", codes.Unauthenticated}} {
		trainer.AccessKeyFile = c.file
		conn, err := Dial(address, trainer)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := call(t, conn, pb.Planner_Join_FullMethodName); status.Code(err) != c.code {
			t.Errorf("with the key file %q: %v", c.file, err)
		}
	}
}
