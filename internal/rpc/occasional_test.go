package rpc

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace-data/millrace/internal/faultproxy"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// TestOccasional: a connection without calls is closed after a while, and the next call opens another one; with TLS it
// stays.
func TestOccasional(t *testing.T) {
	t.Setenv(envKeyDir, t.TempDir())
	all := []*struct {
		name  string
		sec   Security
		want  int // connections for two calls
		proxy *faultproxy.Proxy
		conn  Conn
	}{
		{name: "plain", want: 2},
		{name: "TLS", sec: newSigner(t).with(t, roleService, roleTrainer), want: 1},
	}
	for _, x := range all {
		address := serveAll(t, x.sec)
		var err error
		if x.proxy, err = faultproxy.Start(); err != nil {
			t.Fatal(err)
		}
		defer x.proxy.Close()
		x.proxy.Forward(address)
		if x.conn, err = Dial(x.proxy.Address(), x.sec.Of(address), Occasional(x.sec)); err != nil {
			t.Fatal(err)
		}
		defer x.conn.Close()
	}
	for n := range 2 {
		for _, x := range all {
			if err := call(t, x.conn, pb.Planner_Status_FullMethodName); status.Code(err) != codes.Unimplemented {
				t.Errorf("%s, call %d: %v", x.name, n, err)
			}
		}
		if n == 0 {
			time.Sleep(2*idleTime + time.Second) // a timer looks each idleTime whether there was a call since
		}
	}
	for _, x := range all {
		if n := x.proxy.Made(); n != x.want {
			t.Errorf("%s: %d connections, want %d", x.name, n, x.want)
		}
	}
}
