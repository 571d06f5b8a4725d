package cli

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/rpc"
)

// TestCertificateNames: a loader or constructor whose certificate does not name the host that it advertises is refused when it joins.
// Those that are named serve, at an address that is advertised and at a socket.
func TestCertificateNames(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	ours := newAuthority(t, dir, "ours")
	ours.issue(t, dir, "here", "service trainer", "127.0.0.1")
	ours.issue(t, dir, "local", "service", "localhost")
	ours.issue(t, dir, "elsewhere", "service", "10.9.9.9")
	s := start(t, command(context.WithoutCancel(t.Context()), dir, slices.Concat([]string{"planner", "job.yaml", "--listen", "127.0.0.1:0"}, tlsArgs("here", "ours"))...))
	socket := "unix:" + filepath.Join(t.TempDir(), "s")
	role := func(role, cert string, more ...string) []string {
		return slices.Concat([]string{role, "--planner", s.address}, tlsArgs(cert, "ours"), more)
	}
	for _, kind := range []string{"loader", "constructor"} {
		for name, c := range map[string]struct {
			cert, names, host string
			more              []string
		}{
			"address":    {"elsewhere", "10.9.9.9", "127.0.0.1", nil},
			"advertised": {"here", "127.0.0.1", "gpu7.example", []string{"--advertise", "gpu7.example"}},
			"socket":     {"here", "127.0.0.1", "localhost", []string{"--listen", socket}},
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				millrace(t, dir, role(kind, c.cert, c.more...)...).expect(t, exitUser, kind+" ", "others reach it at", "CN="+c.cert, "a certificate that names "+c.host, "--advertise")
			})
		}
	}
	launch(t, command(context.WithoutCancel(t.Context()), dir, role("loader", "local", "--listen", socket)...))
	launch(t, command(context.WithoutCancel(t.Context()), dir, role("constructor", "local", "--advertise", "localhost")...))
	trainer := rpc.Security{CertFile: filepath.Join(dir, "here.pem"), KeyFile: filepath.Join(dir, "here.key"), CAFile: filepath.Join(dir, "ours.pem")}
	var ranks []*client.Client
	for dp := range 2 {
		c, err := open(t, s, client.Options{Rank: client.Rank{DP: dp}, Security: trainer})
		if err != nil {
			t.Fatal(err)
		}
		ranks = append(ranks, c)
	}
	if failed := takeStep(t, ranks); failed != nil {
		t.Error(failed)
	}
}
