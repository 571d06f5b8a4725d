package rpc

import (
	"net"
	"os"
	"testing"
)

func TestAdvertised(t *testing.T) {
	l, err := Listen("127.0.0.1:0", Security{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	wild, err := Listen("0.0.0.0:0", Security{Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	defer wild.Close()
	port := func(l net.Listener) string {
		_, port, _ := net.SplitHostPort(l.Addr().String())
		return port
	}
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		l               net.Listener
		advertise, want string
	}{
		{l, "", Address(l)},
		{l, "data7", "data7:" + port(l)},
		{l, "data7:99", "data7:99"},
		{wild, "", net.JoinHostPort(name, port(wild))},
		{wild, "10.1.2.3", "10.1.2.3:" + port(wild)},
	} {
		if got := advertised(tc.l, tc.advertise); got != tc.want {
			t.Errorf("listening on %s, advertise %q: %s, want %s", tc.l.Addr(), tc.advertise, got, tc.want)
		}
	}
}
