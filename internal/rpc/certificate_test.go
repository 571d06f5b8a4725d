package rpc_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// issuer signs certificates.
type issuer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	a := &issuer{key: newKey(t)}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue writes a certificate that is valid for some time from now on, and began an hour ago, into a folder.
func (a *issuer) issue(t *testing.T, dir string, left time.Duration) rpc.Security {
	t.Helper()
	key := newKey(t)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(left),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, URIs: []*url.URL{{Scheme: "millrace", Host: "role", Path: "/service"}},
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(c *x509.Certificate, of *ecdsa.PrivateKey) []byte {
		signed, err := x509.CreateCertificate(rand.Reader, c, a.cert, &of.PublicKey, a.key)
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	return rpc.Security{
		CAFile:   putPEM(t, dir, "ca.pem", "CERTIFICATE", sign(a.cert, a.key)),
		CertFile: putPEM(t, dir, "own.pem", "CERTIFICATE", sign(leaf, key)),
		KeyFile:  putPEM(t, dir, "own.key", "EC PRIVATE KEY", der),
	}
}

// putPEM replaces a file, as who renews certificates does.
func putPEM(t *testing.T, dir, name, kind string, data []byte) string {
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path+".new", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// lines are those of a log that several goroutines write.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// take returns what was written since the last time.
func (l *lines) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

// logged has what is said of certificates written there until the test ends.
func logged(t *testing.T) *lines {
	l := &lines{}
	rpc.LogCertificates(slog.New(slog.NewTextHandler(l, nil)))
	t.Cleanup(func() { rpc.LogCertificates(nil) })
	return l
}

// soon is what is left of certificates that a test lets end.
const soon = 4 * time.Second

func end() { time.Sleep(soon + 100*time.Millisecond) }

// TestRenewed: a service and a client that live longer than their certificates take those that are renewed on disk, for
// connections that they make from then on.
func TestRenewed(t *testing.T) {
	a, dir := newIssuer(t), t.TempDir()
	sec := a.issue(t, dir, soon)
	address := start(t, "127.0.0.1:0", sec)
	pages, err := rpc.ListenPages("0.0.0.0:0", sec, "--telemetry")
	if err != nil {
		t.Fatal(err)
	}
	defer pages.Close()
	go func() {
		for c, err := pages.Accept(); err == nil; c, err = pages.Accept() {
			c.(*tls.Conn).Handshake()
			c.Close()
		}
	}()
	conn, err := rpc.Dial(address, sec)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ask := func() error {
		_, err := pb.NewPlannerClient(conn).Status(t.Context(), &pb.StatusRequest{})
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	end()
	if err := ask(); err != nil {
		t.Errorf("a connection did not outlive its certificate: %v", err)
	}
	if err := askStatus(t, address, sec); status.Code(err) != codes.Unavailable || fault.ClassOf(rpc.FromStatus(err)) != fault.Lost {
		t.Errorf("with certificates that have ended: %v", err)
	}
	renewed := a.issue(t, dir, time.Hour)
	if err := askStatus(t, address, sec); err != nil {
		t.Errorf("with renewed certificates: %v", err)
	}
	pair, err := tls.LoadX509KeyPair(renewed.CertFile, renewed.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.Dial("tcp", pages.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	if shown := c.ConnectionState().PeerCertificates[0]; !shown.Equal(pair.Leaf) {
		t.Errorf("pages show a certificate that ends at %v, want the renewed one", shown.NotAfter)
	}
	c.Close()
}

// TestRenewedAuthority: one that signs with another key from now on takes the place of the one before.
func TestRenewedAuthority(t *testing.T) {
	dir := t.TempDir()
	sec := newIssuer(t).issue(t, dir, time.Hour)
	address := start(t, "127.0.0.1:0", sec)
	if err := askStatus(t, address, sec); err != nil {
		t.Fatal(err)
	}
	other := newIssuer(t)
	other.issue(t, dir, time.Hour)
	if err := askStatus(t, address, other.issue(t, t.TempDir(), time.Hour)); err != nil {
		t.Errorf("a client of the new authority: %v", err)
	}
}

// TestHalfRenewed: while files do not fit together, what they held before counts, and that is said once.
func TestHalfRenewed(t *testing.T) {
	a, dir, log := newIssuer(t), t.TempDir(), logged(t)
	sec := a.issue(t, dir, time.Hour)
	address := start(t, "127.0.0.1:0", sec)
	other := a.issue(t, t.TempDir(), time.Hour)
	whole, err := os.ReadFile(sec.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(other.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	for name, half := range map[string][]byte{"a key of another certificate": key, "half of a key": whole[:40]} {
		if err := os.WriteFile(sec.KeyFile, half, 0o600); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := askStatus(t, address, sec); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		said := log.take()
		if n := strings.Count(said, "are not used"); n != 1 || !strings.Contains(said, sec.KeyFile) {
			t.Errorf("%s: %d warnings\n%s", name, n, said)
		}
		if strings.Contains(said, "PRIVATE") || strings.Contains(said, string(whole[60:80])) {
			t.Errorf("%s: the log shows the key\n%s", name, said)
		}
	}
	if err := os.Remove(sec.KeyFile); err != nil {
		t.Fatal(err)
	}
	if err := askStatus(t, address, sec); err != nil {
		t.Errorf("without the key's file: %v", err)
	}
	log.take()
	a.issue(t, dir, 2*time.Hour)
	if err := askStatus(t, address, sec); err != nil {
		t.Errorf("whole again: %v", err)
	}
	if said := log.take(); !strings.Contains(said, "read again") {
		t.Errorf("whole again:\n%s", said)
	}
}

// TestEndedRenewal: of files that were renewed by what has ended already, however often they are looked at, the log says so once.
func TestEndedRenewal(t *testing.T) {
	a, dir, log := newIssuer(t), t.TempDir(), logged(t)
	sec := a.issue(t, dir, time.Hour)
	address := start(t, "127.0.0.1:0", sec)
	a.issue(t, dir, -time.Minute)
	for begin := time.Now().Unix(); time.Now().Unix() < begin+2; { // the message has the time, in seconds
		if err := askStatus(t, address, sec); err != nil {
			t.Fatal(err)
		}
	}
	if said := log.take(); strings.Count(said, "are not used") != 1 || !strings.Contains(said, "is valid from") {
		t.Errorf("want one line:\n%s", said)
	}
}

// TestEndIsSaid: the log warns before a certificate ends, once, and says once that it has.
func TestEndIsSaid(t *testing.T) {
	a, dir, log := newIssuer(t), t.TempDir(), logged(t)
	sec := a.issue(t, dir, time.Hour)
	address := start(t, "127.0.0.1:0", sec)
	_ = askStatus(t, address, sec)
	if said := log.take(); said != "" {
		t.Errorf("half of its life before the end:\n%s", said)
	}
	if ends, _ := rpc.CertificateEnds(); ends.IsZero() || time.Until(ends) > time.Hour {
		t.Errorf("the first certificate ends at %v", ends)
	}
	a.issue(t, dir, soon)
	for range 3 {
		_ = askStatus(t, address, sec)
	}
	if _, soon := rpc.CertificateEnds(); !soon {
		t.Error("it does not end soon")
	}
	if said := log.take(); strings.Count(said, "ends soon") != 1 || !strings.Contains(said, sec.CertFile) {
		t.Errorf("before the end, want one warning:\n%s", said)
	}
	end()
	for range 3 {
		_ = askStatus(t, address, sec)
	}
	if said := log.take(); strings.Count(said, "has ended") != 1 {
		t.Errorf("after the end, want one line:\n%s", said)
	}
}

// TestOwnCertificateIsChecked: one that nobody would accept is refused before anybody is asked.
func TestOwnCertificateIsChecked(t *testing.T) {
	a := newIssuer(t)
	ended := a.issue(t, t.TempDir(), -time.Minute)
	_, served := rpc.NewServer(ended)
	_, dialed := rpc.Dial("127.0.0.1:1", ended)
	for _, err := range []error{served, dialed} {
		if err == nil || fault.ClassOf(err) != fault.User {
			t.Fatal(err)
		}
		for _, word := range []string{ended.CertFile, "is valid from", time.Now().UTC().Format("2006-01-02"), "renew it"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%v does not say %q", err, word)
			}
		}
	}
}

// TestTwoAuthorities: a side may have its certificate from another authority than the other side's. Where it is the same one, a
// certificate that is not is one of files that are half renewed.
func TestTwoAuthorities(t *testing.T) {
	one, other, log := newIssuer(t), newIssuer(t), logged(t)
	service, client := one.issue(t, t.TempDir(), time.Hour), other.issue(t, t.TempDir(), time.Hour)
	service.CAFile, client.CAFile = client.CAFile, service.CAFile
	if err := askStatus(t, start(t, "127.0.0.1:0", service), client); err != nil {
		t.Errorf("each trusts the other one's authority: %v", err)
	}
	same := one.issue(t, t.TempDir(), time.Hour)
	address := start(t, "127.0.0.1:0", same)
	foreign := other.issue(t, t.TempDir(), time.Hour)
	for from, to := range map[string]string{foreign.CertFile: same.CertFile, foreign.KeyFile: same.KeyFile} {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := askStatus(t, address, same); err != nil {
		t.Errorf("a certificate without its authority: %v", err)
	}
	if said := log.take(); !strings.Contains(said, "not signed by the authority in "+same.CAFile) {
		t.Errorf("want why it is not used:\n%s", said)
	}
}

// TestTrustIsTheUsers: who was never accepted hears that its certificates are at fault; who was, that the connection is lost.
func TestTrustIsTheUsers(t *testing.T) {
	a := newIssuer(t)
	ours := a.issue(t, t.TempDir(), time.Hour)
	address := start(t, "127.0.0.1:0", ours)
	theirs := newIssuer(t).issue(t, t.TempDir(), time.Hour)
	plain := start(t, "127.0.0.1:0", rpc.Security{})
	for name, c := range map[string]struct {
		address string
		sec     rpc.Security
		word    string
	}{
		"foreign":      {address, theirs, "x509: certificate signed by unknown authority"},
		"none":         {address, rpc.Security{}, "takes TLS only"},
		"to plain":     {plain, a.issue(t, t.TempDir(), time.Hour), "first record does not look like a TLS handshake"},
		"another name": {strings.Replace(address, "127.0.0.1", "localhost", 1), a.issue(t, t.TempDir(), time.Hour), "must name the host"},
	} {
		err := rpc.FromStatus(askStatus(t, c.address, c.sec))
		if err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), c.word) || !strings.Contains(err.Error(), c.sec.CertFile) {
			t.Errorf("%s: %v (%v)", name, err, fault.ClassOf(err))
		}
	}
	if err := askStatus(t, address, ours); err != nil {
		t.Fatal(err)
	}
	if err := rpc.FromStatus(askStatus(t, plain, ours)); fault.ClassOf(err) != fault.Lost {
		t.Errorf("who was accepted before: %v (%v)", err, fault.ClassOf(err))
	}
	if err := rpc.Lost(rpc.FromStatus(askStatus(t, address, rpc.Security{}))); fault.ClassOf(err) != fault.Lost {
		t.Errorf("where a service was found before: %v (%v)", err, fault.ClassOf(err))
	}
	if err := rpc.FromStatus(askStatus(t, "127.0.0.1:1", theirs)); fault.ClassOf(err) != fault.Lost {
		t.Errorf("where nobody listens: %v (%v)", err, fault.ClassOf(err))
	}
}
