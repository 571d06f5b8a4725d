package cli

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/rpc"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB, dir, name string) *authority {
	a := &authority{key: newKey(t)}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.write(t, filepath.Join(dir, name+".pem"), a.cert, a.key)
	return a
}

// issue writes NAME.pem and NAME.key for a process that is reached by hosts and has some
// roles: words with a space between them.
func (a *authority) issue(t testing.TB, dir, name, roles string, hosts ...string) {
	a.issueUntil(t, time.Now().Add(time.Hour), dir, name, roles, hosts...)
}

// issueUntil is issue of a certificate that ends at a time.
func (a *authority) issueUntil(t testing.TB, ends time.Time, dir, name, roles string, hosts ...string) {
	key := newKey(t)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: ends,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for role := range strings.FieldsSeq(roles) {
		cert.URIs = append(cert.URIs, &url.URL{Scheme: "millrace", Host: "role", Path: "/" + role})
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			cert.IPAddresses = append(cert.IPAddresses, ip)
		} else {
			cert.DNSNames = append(cert.DNSNames, h)
		}
	}
	a.write(t, filepath.Join(dir, name+".pem"), cert, key)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	putPEM(t, filepath.Join(dir, name+".key"), "EC PRIVATE KEY", der)
}

func (a *authority) write(t testing.TB, path string, cert *x509.Certificate, key *ecdsa.PrivateKey) {
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	putPEM(t, path, "CERTIFICATE", der)
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func putPEM(t testing.TB, path, kind string, der []byte) {
	var b bytes.Buffer
	if err := pem.Encode(&b, &pem.Block{Type: kind, Bytes: der}); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Dir(path), filepath.Base(path), b.Bytes())
}

func tlsArgs(cert, ca string) []string {
	return []string{"--tls-cert", cert + ".pem", "--tls-key", cert + ".key", "--tls-ca", ca + ".pem"}
}

// TestTLS serves a job with certificates of its own authority, to those who have
// one of the same.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	ours, theirs := newAuthority(t, dir, "ours"), newAuthority(t, dir, "theirs")
	ours.issue(t, dir, "service", "service trainer", "127.0.0.1", "localhost")
	ours.issue(t, dir, "trainer", "trainer", "localhost")
	ours.issue(t, dir, "operator", "operator", "localhost")
	ours.issue(t, dir, "legacy", "", "127.0.0.1")
	ours.issue(t, dir, "elsewhere", "service", "elsewhere.example")
	theirs.issue(t, dir, "stranger", "service trainer", "127.0.0.1", "localhost")
	want := millrace(t, dir, "reference", "job.yaml", "--steps", "5").digest(t)
	for _, args := range [][]string{nil, {"--processes"}} {
		t.Run("run"+strings.Join(args, ""), func(t *testing.T) {
			t.Parallel()
			args := append(append([]string{"run", "job.yaml", "--steps", "5"}, tlsArgs("service", "ours")...), args...)
			if got := millrace(t, dir, args...).digest(t); got != want {
				t.Errorf("run with TLS ends with %s, want %s", got, want)
			}
		})
	}
	s := serve(t, dir, tlsArgs("service", "ours")...)
	security := func(cert, ca string) rpc.Security {
		return rpc.Security{CertFile: filepath.Join(dir, cert+".pem"), KeyFile: filepath.Join(dir, cert+".key"), CAFile: filepath.Join(dir, ca+".pem")}
	}
	c, err := open(t, s, client.Options{Security: security("trainer", "ours")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Next(t.Context()); err != nil {
		t.Errorf("a trainer with a certificate of ours: %v", err)
	}
	r := millrace(t, dir, append([]string{"status", s.address}, tlsArgs("trainer", "ours")...)...)
	r.expect(t, 0)
	if !strings.Contains(r.stdout, "job tiny: running") {
		t.Errorf("the status over TLS is\n%s", r.stdout)
	}
	for name, args := range map[string][]string{
		"no certificate":       nil,
		"foreign authority":    tlsArgs("stranger", "theirs"),
		"foreign certificate":  tlsArgs("stranger", "ours"),
		"service not believed": tlsArgs("trainer", "theirs"),
	} {
		t.Run(name, func(t *testing.T) {
			r := millrace(t, dir, append([]string{"status", s.address}, args...)...)
			if args == nil {
				r.expect(t, exitUser, s.address, "takes TLS only", "--tls-cert")
				return
			}
			r.expect(t, exitUser, args[1], args[5], "do not trust each other", "tls: ")
			opts := client.Options{Deadline: time.Second, Security: security(strings.TrimSuffix(args[1], ".pem"), strings.TrimSuffix(args[5], ".pem"))}
			if _, err := open(t, s, opts); err == nil {
				t.Error("a trainer that is not to be trusted has joined")
			}
		})
	}
	t.Run("role of another", func(t *testing.T) {
		pause := []string{"source", "pause", s.address, "words"}
		millrace(t, dir, append(pause, tlsArgs("trainer", "ours")...)...).expect(t, exitUser, "Planner/Change", "URI:millrace://role/operator")
		millrace(t, dir, append(pause, tlsArgs("operator", "ours")...)...).expect(t, 0)
		for _, role := range []string{"loader", "constructor"} {
			args := append([]string{role, "--planner", s.address}, tlsArgs("trainer", "ours")...)
			millrace(t, dir, args...).expect(t, exitUser, "URI:millrace://role/"+role)
		}
		millrace(t, dir, append([]string{"run", "job.yaml"}, tlsArgs("legacy", "ours")...)...).expect(t, exitUser, "CN=legacy", "URI:millrace://role/")
		_, err := open(t, s, client.Options{Security: security("operator", "ours")})
		refused(t, err, "Planner/Join", "URI:millrace://role/trainer")
	})
	t.Run("name of another", func(t *testing.T) {
		for _, args := range [][]string{{"run", "job.yaml"}, {"serve", "job.yaml", "--listen", "127.0.0.1:0"}, {"serve", "job.yaml", "--listen", "127.0.0.1:0", "--processes"}} {
			r := millrace(t, dir, append(args, tlsArgs("elsewhere", "ours")...)...)
			r.expect(t, exitUser, "127.0.0.1:", "elsewhere.pem", "must name the host", "ours.pem")
			if r.stdout != "" {
				t.Errorf("a service that cannot be reached prints %s", r.stdout)
			}
		}
	})
	t.Run("key of another", func(t *testing.T) {
		millrace(t, dir, "run", "job.yaml", "--tls-cert", "service.pem", "--tls-key", "trainer.key", "--tls-ca", "ours.pem").
			expect(t, exitUser, "service.pem", "trainer.key", "private key does not match")
		millrace(t, dir, "run", "job.yaml", "--tls-cert", "service.pem", "--tls-key", "service.key", "--tls-ca", "job.yaml").
			expect(t, exitUser, "job.yaml holds no PEM certificate")
	})
}
