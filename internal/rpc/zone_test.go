package rpc

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// TestNamesWithMeaningInURLs: zones of IPv6 addresses and paths of sockets reach who listens there as they are.
func TestNamesWithMeaningInURLs(t *testing.T) {
	t.Setenv(envKeyDir, t.TempDir())
	addresses := []string{"unix:" + filepath.Join(t.TempDir(), "50%20off?#s")}
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		all, _ := i.Addrs() // one that is gone has none
		for _, a := range all {
			if n, ok := a.(*net.IPNet); ok && n.IP.To4() == nil && n.IP.IsLinkLocalUnicast() {
				addresses = append(addresses, "["+n.IP.String()+"%"+i.Name+"]:0")
			}
		}
	}
	for _, address := range addresses {
		l, err := Listen(address, Security{Insecure: true})
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		pb.RegisterPlannerServer(server, pb.UnimplementedPlannerServer{})
		go server.Serve(l)
		defer server.Stop()
		at := Address(l)
		if !strings.HasPrefix(at, strings.TrimSuffix(address, ":0")) {
			t.Errorf("what listens on %s says that it is at %s", address, at)
		}
		conn, err := Dial(at, Security{})
		if err != nil {
			t.Errorf("%s: %v", at, err)
			continue
		}
		defer conn.Close()
		if err := call(t, conn, pb.Planner_Status_FullMethodName); status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: %v", at, err)
		}
	}
}

// TestTargets: what other addresses are to gRPC stays as it was.
func TestTargets(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:7070": "127.0.0.1:7070", "[fe80::1]:7070": "[fe80::1]:7070", "[fe80::1%eth0]:7070": "dns:///[fe80::1%25eth0]:7070",
		"unix:s": "unix:s", "unix:/tmp/s": "unix:/tmp/s", "unix:/tmp/a%b": "unix:///tmp/a%25b",
	} {
		if got, _ := (Security{}).target(address); got != want {
			t.Errorf("%s is %s, want %s", address, got, want)
		}
	}
}
