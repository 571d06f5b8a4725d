package rpc

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// TestOtherAnswers: an error says that what answers is no Millrace service, and is lost where that may be for now only.
func TestOtherAnswers(t *testing.T) {
	for code, class := range map[int]fault.Class{200: fault.User, 302: fault.User, 400: fault.User, 401: fault.User, 403: fault.User, 404: fault.User, 429: fault.Lost, 500: fault.Lost, 502: fault.Lost, 503: fault.Lost, 504: fault.Lost} {
		web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(code)
		}))
		web.Config.Protocols = new(http.Protocols)
		web.Config.Protocols.SetUnencryptedHTTP2(true)
		web.Start()
		at := web.Listener.Addr().String()
		conn, err := Dial(at, Security{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = pb.NewPlannerClient(conn).Status(t.Context(), &pb.StatusRequest{})
		data, open := pb.NewLoaderClient(conn).Fetch(t.Context(), &pb.FetchRequest{})
		if open == nil {
			_, open = data.Recv()
		}
		for _, err := range []error{FromStatus(err), FromStatus(open)} {
			if fault.ClassOf(err) != class || !strings.Contains(err.Error(), "what answers at "+at+" is not a Millrace service") || !strings.Contains(err.Error(), "HTTP ") && code != 200 {
				t.Errorf("HTTP %d: %v of class %v", code, err, fault.ClassOf(err))
			}
			if Unknown(err) || !OtherService(err) || fault.ClassOf(Lost(err)) != fault.Lost {
				t.Errorf("HTTP %d: unknown %v, other service %v", code, Unknown(err), OtherService(err))
			}
		}
		conn.Close()
		web.Close()
	}
}

// speaks is a server that says something to everyone who connects, and nothing more.
func speaks(t *testing.T, text string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := io.WriteString(c, text); err == nil {
					_, _ = io.Copy(io.Discard, c)
				}
			}()
		}
	}()
	return l.Addr().String()
}

// TestOtherTongues: so does the error of a server that speaks no HTTP/2.
func TestOtherTongues(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	settings := "\x00\x00\x00\x06\x00\x00\x00\x00\x00" // the head of a frame, of another kind
	for _, at := range []string{web.Listener.Addr().String(), speaks(t, "SSH-2.0-OpenSSH_9.6\r\n"), speaks(t, "220 mail ESMTP\r\n"), speaks(t, settings[:2]+"\x08"+settings[3:]+"pingping")} {
		conn, err := Dial(at, Security{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = pb.NewPlannerClient(conn).Status(t.Context(), &pb.StatusRequest{})
		err = FromStatus(err)
		if want := "what answers at " + at + " is not a Millrace service: check address and port"; fault.ClassOf(err) != fault.User || err.Error() != want {
			t.Errorf("%v of class %v, want %s", err, fault.ClassOf(err), want)
		}
		if Unknown(err) || !OtherService(err) || fault.ClassOf(Lost(err)) != fault.Lost {
			t.Errorf("%v: unknown %v, other service %v", err, Unknown(err), OtherService(err))
		}
		conn.Close()
	}
}

// TestWrongRole: who takes another role for the planner hears so, with a key or without, and which address to give.
func TestWrongRole(t *testing.T) {
	t.Setenv(envKeyDir, t.TempDir())
	t.Setenv(envKey, newKey())
	planner := serveAll(t, Security{})
	member := serveAll(t, Security{}.Of(planner))
	server, err := NewServer(Security{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(l)
	defer server.Stop()
	const advice = ", not the planner: give the address that `millrace planner` or `millrace serve` printed"
	for _, test := range []struct{ key, at, method, want string }{
		{os.Getenv(envKey), member, pb.Planner_Status_FullMethodName, " is a Millrace loader or constructor" + advice},
		{newKey(), member, pb.Planner_Join_FullMethodName, " is a Millrace loader or constructor" + advice},
		{os.Getenv(envKey), l.Addr().String(), pb.Planner_Status_FullMethodName, " is another role or service" + advice},
		{os.Getenv(envKey), l.Addr().String(), pb.Constructor_Ack_FullMethodName, " is another role or service, and no Millrace constructor"},
	} {
		t.Setenv(envKey, test.key)
		conn, err := Dial(test.at, Security{})
		if err != nil {
			t.Fatal(err)
		}
		err = FromStatus(call(t, conn, test.method))
		if fault.ClassOf(err) != fault.User || err.Error() != "what answers at "+test.at+test.want || !Unknown(err) || !OtherService(err) {
			t.Errorf("%s: %v", test.method, err)
		}
		conn.Close()
	}
}

// TestNoSuchHost: a name that nobody has is named as the cause, and one that nobody can have is refused.
func TestNoSuchHost(t *testing.T) {
	_, unknown := net.LookupHost("nosuch.invalid")
	if dns, ok := errors.AsType[*net.DNSError](unknown); !ok || !dns.IsNotFound {
		t.Skip("no DNS here knows that nobody has such a name: ", unknown)
	}
	conn, err := Dial("nosuch.invalid:7070", Security{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = pb.NewPlannerClient(conn).Status(ctx, &pb.StatusRequest{})
	if err = FromStatus(err); err.Error() != "there is no host nosuch.invalid (DNS): check the name" || fault.ClassOf(err) != fault.Lost {
		t.Errorf("%v of class %v", err, fault.ClassOf(err))
	}
	label := strings.Repeat("a", 63)
	for _, address := range []string{label + "." + label + "." + label + "." + label[:61] + ".:7070", label + ":1"} {
		if _, err := Dial(address, Security{}); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	for address, say := range map[string]string{label + "a.example:7070": "64", label + "." + label + "." + label + "." + label[:62] + ":7070": "254"} {
		if _, err := Dial(address, Security{}); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), say+" characters") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
