package rpc_test

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
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// TestLongSocket: who dials a path that no socket can have hears so, and does not wait for one there.
func TestLongSocket(t *testing.T) {
	_, err := rpc.Dial("unix:/"+strings.Repeat("x", 200), rpc.Security{})
	if err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "bytes at most") {
		t.Errorf("a path of 201 bytes: %v", err)
	}
}

func TestListen(t *testing.T) {
	for _, c := range []struct {
		address  string
		security rpc.Security
		refused  string // part of the error; "" = it listens
	}{
		{"127.0.0.1:0", rpc.Security{}, ""},
		{"localhost:0", rpc.Security{}, ""},
		{"0.0.0.0:0", rpc.Security{}, "without TLS"},
		{":0", rpc.Security{}, "without TLS"},
		{"[::]:0", rpc.Security{}, "without TLS"},
		{"0.0.0.0:0", rpc.Security{Insecure: true}, ""},
		{"example.org:0", rpc.Security{}, "without TLS"},
		{"127.0.0.1", rpc.Security{}, "use HOST:PORT or unix:PATH"},
		{"127.0.0.1:99999", rpc.Security{}, "choose another port"},
		{"192.0.2.1:0", rpc.Security{Insecure: true}, "this machine has no such address; name one of its own"}, // RFC 5737: nobody's
		{"127.0.0.1:nonsense", rpc.Security{}, "choose another port"},
		{"unix:/no/such/folder/s", rpc.Security{}, "there is no folder /no/such/folder; make it, or choose another path"},
		{"unix:/" + strings.Repeat("s", 120), rpc.Security{}, "too long for a socket"},
	} {
		l, err := rpc.Listen(c.address, c.security)
		if c.refused == "" {
			if err != nil {
				t.Errorf("%s: %v", c.address, err)
				continue
			}
			l.Close()
			continue
		}
		if err == nil {
			l.Close()
			t.Errorf("%s is listened on, want an error with %q", c.address, c.refused)
			continue
		}
		if fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: %v (%v), want a user error with %q", c.address, err, fault.ClassOf(err), c.refused)
		}
	}
}

func TestListenTwice(t *testing.T) {
	l, err := rpc.Listen("127.0.0.1:0", rpc.Security{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if again, err := rpc.Listen(rpc.Address(l), rpc.Security{}); fault.ClassOf(err) != fault.User || err == nil {
		t.Errorf("a port was given out twice: %v, %v", again, err)
	}
}

// TestSocketLeftBehind takes the place of a socket that nobody listens on, and of nothing else.
func TestSocketLeftBehind(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	if l, err := rpc.Listen("unix:"+path, rpc.Security{}); err == nil {
		l.Close()
		t.Fatal("a socket that is listened on was taken")
	}
	left.SetUnlinkOnClose(false) // as of a process that is killed
	left.Close()
	l, err := rpc.Listen("unix:"+path, rpc.Security{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := rpc.Listen("unix:"+file, rpc.Security{}); err == nil {
		l.Close()
		t.Error("a file was taken for a socket")
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "data" {
		t.Errorf("the file holds %q, %v", data, err)
	}
}

func TestUnixSocketIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := rpc.Listen("unix:"+path, rpc.Security{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode().Perm())
	}
	if rpc.Address(l) != "unix:"+path {
		t.Errorf("address %s", rpc.Address(l))
	}
	if _, err := rpc.Listen("unix:"+path, rpc.Security{}); fault.ClassOf(err) != fault.User || err == nil {
		t.Errorf("a path was given out twice: %v", err)
	}
}

// certificates writes an authority and a certificate it signed for 127.0.0.1, which has
// some roles.
func certificates(t *testing.T, roles ...string) rpc.Security {
	t.Helper()
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	for _, role := range roles {
		template.URIs = append(template.URIs, &url.URL{Scheme: "millrace", Host: "role", Path: "/" + role})
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	certFile := write("cert.pem", "CERTIFICATE", cert)
	return rpc.Security{CertFile: certFile, KeyFile: write("key.pem", "EC PRIVATE KEY", der), CAFile: certFile}
}

type states struct{ pb.UnimplementedPlannerServer }

func (states) Status(context.Context, *pb.StatusRequest) (*pb.StatusReply, error) {
	return &pb.StatusReply{Text: "fine"}, nil
}

// start serves a planner that only knows Status.
func start(t *testing.T, address string, sec rpc.Security) string {
	t.Helper()
	l, err := rpc.Listen(address, sec)
	if err != nil {
		t.Fatal(err)
	}
	server, err := rpc.NewServer(sec)
	if err != nil {
		t.Fatal(err)
	}
	pb.RegisterPlannerServer(server, states{})
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- rpc.Serve(ctx, server, l) }()
	t.Cleanup(func() { cancel(); <-served })
	return rpc.Address(l)
}

func askStatus(t *testing.T, address string, sec rpc.Security) error {
	t.Helper()
	conn, err := rpc.Dial(address, sec)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = pb.NewPlannerClient(conn).Status(ctx, &pb.StatusRequest{}, grpc.WaitForReady(false))
	return err
}

// TestTLS checks that each side must show a certificate of the authority.
func TestTLS(t *testing.T) {
	ours, theirs := certificates(t, "service"), certificates(t, "service")
	address := start(t, "127.0.0.1:0", ours)
	if err := askStatus(t, address, ours); err != nil {
		t.Errorf("with the right certificate: %v", err)
	}
	if err := askStatus(t, address, theirs); err == nil {
		t.Error("a stranger's certificate was accepted")
	}
	if err := askStatus(t, address, rpc.Security{}); err == nil {
		t.Error("plain text was accepted")
	}
	l, err := rpc.Listen("0.0.0.0:0", ours)
	if err != nil {
		t.Fatalf("listening off loopback with TLS: %v", err)
	}
	l.Close()
}

func TestSecurityIsWhole(t *testing.T) {
	whole := certificates(t)
	noKey, noCA, noFile, noPEM := whole, whole, whole, whole
	noKey.KeyFile = ""
	noCA.CAFile = ""
	noFile.CertFile = filepath.Join(t.TempDir(), "none")
	noPEM.CAFile = whole.KeyFile
	for name, sec := range map[string]rpc.Security{"no key": noKey, "no authority": noCA, "no file": noFile, "no certificate": noPEM} {
		if _, err := rpc.NewServer(sec); err == nil || fault.ClassOf(err) != fault.User {
			t.Errorf("%s: server %v", name, err)
		}
		if _, err := rpc.Dial("127.0.0.1:1", sec); err == nil || fault.ClassOf(err) != fault.User {
			t.Errorf("%s: client %v", name, err)
		}
	}
}

// TestDialRefuses: an address that is none is refused before anything waits for it.
func TestDialRefuses(t *testing.T) {
	for _, address := range []string{"", "localhost", "127.0.0.1:", ":7070", "127.0.0.1:0", "127.0.0.1:http", "127.0.0.1:70000", "http://127.0.0.1:7070", "::1:7070", "unix:", "a b:1"} {
		if _, err := rpc.Dial(address, rpc.Security{}); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "HOST:PORT") {
			t.Errorf("%q: %v", address, err)
		}
	}
	for _, address := range []string{"127.0.0.1:7070", "[::1]:7070", "planner-0.job.svc:1", "unix:/s"} {
		conn, err := rpc.Dial(address, rpc.Security{})
		if err != nil {
			t.Fatalf("%q: %v", address, err)
		}
		conn.Close()
	}
}

// TestOnlyHere: a role on loopback cannot be reached by those that a planner elsewhere sends.
func TestOnlyHere(t *testing.T) {
	for _, c := range []struct {
		address, planner string
		want             bool
	}{
		{"127.0.0.1:1", "10.0.0.1:2", true},
		{"localhost:1", "planner:2", true},
		{"127.0.0.1:1", "127.0.0.1:2", false},
		{"10.0.0.2:1", "10.0.0.1:2", false},
		{"unix:/s", "10.0.0.1:2", false},
		{"127.0.0.1:1", "unix:/s", false},
	} {
		if got := rpc.OnlyHere(c.address, c.planner); got != c.want {
			t.Errorf("%v: %v", c, got)
		}
	}
}
