package inference

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"html"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
)

// TestRedirected: a request is sent on only as it is. A redirect that would make another one of it is an error that says where to.
func TestRedirected(t *testing.T) {
	for code, follows := range map[int]bool{301: false, 302: false, 303: false, 307: true, 308: true} {
		var gets atomic.Int64
		m := newModel(t, nil)
		from := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				gets.Add(1)
				fmt.Fprint(w, `{"data": [{"score": 9, "text": "of nothing"}]}`)
				return
			}
			to := "/other?key=secret"
			if follows {
				to = m.URL
			}
			http.Redirect(w, r, to, code)
		}))
		defer from.Close()
		f := open(t, step(from.URL, t.TempDir(), 1))
		if follows {
			if got := answers(t, f, batch(0, 2)); !strings.Contains(got[0], "text 0") {
				t.Errorf("%d: the answer is %q", code, got)
			}
			continue
		}
		_, _, err := f.Caller.Call(t.Context(), batch(0, 2))
		if fault.ClassOf(err) != fault.User || !strings.Contains(fmt.Sprint(err), "on to "+from.URL+"/other,") || gets.Load() != 0 {
			t.Errorf("%d: %v, after %d requests without a body", code, err, gets.Load())
		}
	}
}

// TestCircle: a server that redirects a request to where it was says so, and one that redirects too often where to next.
func TestCircle(t *testing.T) {
	var n atomic.Int64
	for name, c := range map[string]struct {
		to   func() string
		code int
		want string
	}{
		"to itself":    {func() string { return "/score" }, 307, "in a circle, to "},
		"and by 302":   {func() string { return "/score" }, 302, "in a circle, to "},
		"between two":  {func() string { return []string{"/score", "/other"}[n.Add(1)%2] }, 308, "in a circle, to "},
		"on and on":    {func() string { return fmt.Sprint("/", n.Add(1)) }, 307, "and 5 redirects were followed, which is the most"},
		"to elsewhere": {func() string { return "/other" }, 302, "which would get nothing of what they say"},
	} {
		n.Store(0)
		from := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, c.to(), c.code) }))
		defer from.Close()
		_, _, err := open(t, step(from.URL+"/score", t.TempDir(), 1)).Caller.Call(t.Context(), batch(0, 2))
		if fault.ClassOf(err) != fault.User || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// TestCutOff: an answer whose end is that of the connection is asked for again if it ends within its JSON. One whose end is
// marked is what the server meant.
func TestCutOff(t *testing.T) {
	const whole = `{"data": [{"score": 1, "text": "é"}]}`
	for name, c := range map[string]struct {
		head, body string
		requests   int64
		want       string // of the error
	}{
		"HTTP/1.0":           {"HTTP/1.0 200 OK\r\n\r\n", whole[:20], 2, ""},
		"connection: close":  {"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", whole[:20], 2, ""},
		"nothing":            {"HTTP/1.0 200 OK\r\n\r\n", "", 2, ""},
		"half a character":   {"HTTP/1.0 200 OK\r\n\r\n", whole[:strings.Index(whole, "é")+1], 2, ""},
		"whole":              {"HTTP/1.0 200 OK\r\n\r\n", whole, 1, ""},
		"no JSON":            {"HTTP/1.0 200 OK\r\n\r\n", "<html>", 1, "the answer is not JSON"},
		"less than its size": {"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n", whole[:20], 2, ""},
		"its size":           {"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n", whole[:20], 1, "the answer is not JSON"},
		"a whole chunk":      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n14\r\n", whole[:20] + "\r\n0\r\n\r\n", 1, "the answer is not JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int64
			m := newModel(t, func(w http.ResponseWriter, _ []string) {
				if n.Add(1) > 1 {
					fmt.Fprint(w, whole)
					return
				}
				conn, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				fmt.Fprint(conn, c.head, c.body)
				_ = conn.Close()
			})
			_, _, err := open(t, step(m.URL, t.TempDir(), 1)).Caller.Call(t.Context(), batch(0, 1))
			if n.Load() != c.requests || (c.want == "") != (err == nil) || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("%v after %d requests, want %q after %d", err, n.Load(), c.want, c.requests)
			}
		})
	}
}

// TestForGood: what another attempt does not mend ends the call, and says what does.
func TestForGood(t *testing.T) {
	quiet := func(s *httptest.Server) *httptest.Server {
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		return s
	}
	trusted := quiet(httptest.NewUnstartedServer(http.NotFoundHandler()))
	trusted.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	trusted.StartTLS()
	defer trusted.Close()
	plain := quiet(httptest.NewServer(http.NotFoundHandler()))
	defer plain.Close()
	for name, c := range map[string]struct{ url, token, want string }{
		"a certificate that nobody trusts": {trusted.URL, "t", "SSL_CERT_FILE"},
		"no TLS":                           {strings.Replace(plain.URL, "http:", "https:", 1), "t", "begins with http://"},
		"a token of two lines":             {plain.URL, "sk-12345\n", "TOKEN_OF_TEST has a line break"},
	} {
		t.Setenv("TOKEN_OF_TEST", c.token)
		s := step(c.url, t.TempDir(), 1)
		s.TokenEnv = "TOKEN_OF_TEST"
		_, _, err := open(t, s).Caller.Call(t.Context(), batch(0, 1))
		if fault.ClassOf(err) != fault.User || !strings.Contains(fmt.Sprint(err), c.want) || strings.Contains(fmt.Sprint(err), "sk-12345") {
			t.Errorf("%s: class %v: %v, want %s", name, fault.ClassOf(err), err, c.want)
		}
	}
}

// TestHidden: a token or a query of the URL that a server repeats, in whatever it says, is in no error, no log and no ledger.
func TestHidden(t *testing.T) {
	const token = "sk-" + "a/b&c" + "0123456789"
	t.Setenv("TOKEN_OF_TEST", token)
	for name, say := range map[string]func(w http.ResponseWriter, said string){
		"unauthorized": func(w http.ResponseWriter, said string) {
			http.Error(w, strings.Repeat("x", 190)+said, http.StatusUnauthorized)
		},
		"refused": func(w http.ResponseWriter, said string) { http.Error(w, said, 400) },
		"as JSON": func(w http.ResponseWriter, said string) {
			http.Error(w, strings.ReplaceAll(said, "/", `\/`), http.StatusUnprocessableEntity)
		},
		"elsewhere":  func(w http.ResponseWriter, said string) { w.Header().Set("Location", "/"+said); w.WriteHeader(302) },
		"no JSON":    func(w http.ResponseWriter, said string) { fmt.Fprint(w, said) },
		"two values": func(w http.ResponseWriter, said string) { fmt.Fprintf(w, `{"said": %q} {}`, said) },
		"no field":   func(w http.ResponseWriter, said string) { fmt.Fprintf(w, `{"said": %q}`, said) },
		"another type": func(w http.ResponseWriter, said string) {
			fmt.Fprintf(w, `{"data": [{"score": %q, "text": "x"}]}`, strings.Repeat("x", 40)+said)
		},
		"busy": func(w http.ResponseWriter, said string) { http.Error(w, said, http.StatusServiceUnavailable) },
	} {
		for what, repeat := range map[string]func(r *http.Request) string{
			"token":   func(r *http.Request) string { return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") },
			"value":   func(r *http.Request) string { return r.URL.Query().Get("key") },
			"escaped": func(r *http.Request) string { return url.QueryEscape(r.URL.Query().Get("key")) },
			"query":   func(r *http.Request) string { return r.URL.RequestURI() },
			"as HTML": func(r *http.Request) string { return html.EscapeString(r.URL.RequestURI()) },
		} {
			t.Run(name+"/"+what, func(t *testing.T) { hidden(t, say, repeat, name != "elsewhere") })
		}
	}
}

// hidden has a server repeat something secret.
func hidden(t *testing.T, say func(w http.ResponseWriter, said string), repeat func(r *http.Request) string, seen bool) {
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if n.Add(1) > 1 {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		say(w, repeat(r))
	}))
	defer server.Close()
	s := step(server.URL+"/score?v=1&pin=1234&key="+url.QueryEscape("sk-q/u&e<9876543210>"), t.TempDir(), 1)
	s.TokenEnv = "TOKEN_OF_TEST"
	var said bytes.Buffer
	f, err := Open(s, pagesOf, slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := f.Caller.Call(format.WithFile(t.Context(), 3), batch(0, 1))
	fmt.Fprintln(&said, err)
	if err == nil {
		var rec format.Record
		out.Record(0, &rec)
		fmt.Fprintln(&said, rec.Err)
	}
	_ = filepath.WalkDir(s.Answers, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			data, _ := os.ReadFile(path)
			said.Write(data)
		}
		return nil
	})
	if seen && !strings.Contains(said.String(), "**") || strings.Contains(said.String(), "sk-") || strings.Contains(said.String(), "1234&") {
		t.Error(said.String())
	}
}

// TestRetryAfter: a server says how long to wait in seconds or as a date, and is believed within bounds.
func TestRetryAfter(t *testing.T) {
	date := func(after time.Duration) string { return time.Now().Add(after).UTC().Format(http.TimeFormat) }
	for _, c := range []struct {
		header    string
		low, high time.Duration
	}{
		{"", 0, 0}, {"soon", 0, 0}, {"-3", 0, 0}, {"7", 7 * time.Second, 7 * time.Second}, {"86400", patience / 2, patience / 2}, {"99999999999999999999", 0, 0},
		{date(40 * time.Second), 30 * time.Second, 40 * time.Second}, {date(-time.Hour), 0, 0}, {date(24 * time.Hour), patience / 2, patience / 2},
	} {
		if got := retryAfter(&http.Response{Header: http.Header{"Retry-After": {c.header}}}); got < c.low || got > c.high {
			t.Errorf("%q: %v, want %v to %v", c.header, got, c.low, c.high)
		}
	}
}

// TestHiddenShort: a token that may be part of any word is taken out where it stands alone.
func TestHiddenShort(t *testing.T) {
	s := &server{tokenEnv: "TOKEN_OF_TEST"}
	for token, want := range map[string]string{
		"EMPTY": `no *** here, "***", NOTEMPTY, EMPTYING`, "-y/": `no EMPTY here, "EMPTY", NOTEMPTY, EMPTYING`, "no": `*** EMPTY here, "EMPTY", NOTEMPTY, EMPTYING`,
	} {
		t.Setenv("TOKEN_OF_TEST", token)
		if got := s.hide(`no EMPTY here, "EMPTY", NOTEMPTY, EMPTYING`); got != want {
			t.Errorf("%s: %s, want %s", token, got, want)
		}
	}
}

// TestUnheard: a command waits for seconds for a server that never answered, and for one that did as long as a job.
func TestUnheard(t *testing.T) {
	m := newModel(t, nil)
	f := open(t, step(m.URL, t.TempDir(), 1))
	c := f.Caller.(*Caller)
	if c.server.patience() != patience {
		t.Errorf("a job waits for %v", c.server.patience())
	}
	if c.ForCommand(); c.server.patience() != unheardTime {
		t.Errorf("a command waits for %v", c.server.patience())
	}
	answers(t, f, batch(0, 2))
	if c.server.patience() != patience {
		t.Errorf("a command waits for a server that answered for %v", c.server.patience())
	}
	m.Close()
	gone := open(t, step(m.URL, t.TempDir(), 1))
	gone.Caller.(*Caller).server.unheard = 1
	if _, _, err := gone.Caller.Call(t.Context(), batch(0, 2)); fault.ClassOf(err) != fault.Lost {
		t.Errorf("class %v: %v", fault.ClassOf(err), err)
	}
	gone.Caller.(*Caller).ForRun()
	if _, _, err := gone.Caller.Call(t.Context(), batch(0, 2)); fault.ClassOf(err) != fault.User || !strings.Contains(fmt.Sprint(err), "has not answered once in ") {
		t.Errorf("in a run: class %v: %v", fault.ClassOf(err), err)
	}
}

// TestAwaits: as long as a server is away or busy, its caller says so, without what may be secret.
func TestAwaits(t *testing.T) {
	const busy, serves, refuses = http.StatusServiceUnavailable, http.StatusOK, http.StatusBadRequest
	var code atomic.Int64
	m := newModel(t, func(w http.ResponseWriter, _ []string) { w.WriteHeader(int(code.Load())) })
	f := open(t, step(m.URL+"/score?key=of-somebody", t.TempDir(), 1))
	s := f.Caller.(*Caller).server
	for _, answer := range []int64{busy, serves, busy, refuses} {
		code.Store(answer)
		_, _, err := s.once(t.Context(), []byte(`{"inputs": []}`))
		if answer == busy {
			s.tell(err)
		} else {
			_, _ = s.post(t.Context(), []byte(`{"inputs": []}`))
		}
		want := ""
		if answer == busy {
			want = m.URL + `/score answers 503 Service Unavailable: "", for `
		}
		if got := f.Caller.(transform.Awaiting).Awaits(); strings.TrimRight(got, "0123456789 s") != strings.TrimRight(want, " ") {
			t.Errorf("of a server that answers %d: %q, want %q", answer, got, want)
		}
	}
	m.Close()
	s.unheard = 1
	s.answered.Store(false)
	_, err := s.post(t.Context(), nil)
	if got := s.awaits(); err == nil || !strings.HasPrefix(got, "asking "+m.URL+"/score: ") || !strings.HasSuffix(strings.TrimRight(got, "0123456789 s"), ", for") {
		t.Errorf("of a server that is away: %q, %v", got, err)
	}
}
