package pool

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/worker"
)

// open is the request of a loader with other limits.
func open(l *loader, f *worker.Function, memory int64, network bool) *pb.OpenFunction {
	d, o := f.Description(), l.Options()
	return &pb.OpenFunction{
		Function: d.Name, Digest: d.Digest[:], Runtime: d.Runtime(), TimeoutMs: uint64(o.Timeout.Milliseconds()), StartMs: uint64(o.Start.Milliseconds()),
		Memory: memory, Network: network,
	}
}

// TestRefused: a pool serves no function whose module is another file, and none that wants what the pool does not give; and it
// serves one whose file has become the right one meanwhile.
func TestRefused(t *testing.T) {
	dir, other := modules(t, code), modules(t, code+"\n# another\n")
	p := serve(t, Options{Path: []string{other}, Memory: 3 << 30})
	l := load(t, dir, 1, p.address)
	f := l.function(t, "upper")
	problem := func() string { return l.client.Usage(l.Environment)[0].Problem }
	until(t, "another file is not refused", func() bool { return strings.Contains(problem(), "another file") })
	want := "function steps:upper: test (" + python(t) + "): its module of function steps:upper is another file, or says another version (digest "
	if !strings.HasPrefix(problem(), want) {
		t.Errorf("%s\nwant %s", problem(), want)
	}
	if got := said(t.Context(), f, "a"); got != "0:0: A" || l.client.Usage(l.Environment)[0].Batches != 0 {
		t.Errorf("%s, %+v", got, l.client.Usage(l.Environment))
	}
	if err := os.WriteFile(filepath.Join(other, "steps.py"), []byte(code), 0o644); err != nil {
		t.Fatal(err)
	}
	again := load(t, dir, -1, p.address)
	if got := said(t.Context(), again.function(t, "upper"), "a"); got != "0:0: A" {
		t.Error(got)
	}
	s := &Server{opt: Options{Memory: 1 << 30}}
	for what, o := range map[string]struct {
		memory  int64
		network bool
	}{"no network": {0, true}, "at most 1024 MiB": {2 << 30, false}} {
		_, err := s.find(t.Context(), open(l, f, o.memory, o.network))
		if fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %s", err, what)
		}
	}
	old := open(l, f, 0, false)
	old.Runtime = "Python 2.7.18, NumPy 1.16.6"
	server := &Server{opt: Options{Interpreters: []Interpreter{{"test", python(t)}}, Path: []string{dir}, Workers: 1}, life: t.Context()}
	server.leases.open = server.environment
	life, end := context.WithCancel(t.Context())
	swept := make(chan struct{})
	go func() { server.leases.run(life); close(swept) }()
	defer func() { end(); <-swept }()
	if _, err := server.find(t.Context(), old); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), ", and the loader Python 2.7.18, NumPy 1.16.6, which may compute something else") {
		t.Error(err)
	}
}

// TestAccess: who has not the pool's key is not served, and the pool says how to get it.
func TestAccess(t *testing.T) {
	dir := modules(t, code)
	p := serve(t, Options{Path: []string{dir}})
	t.Setenv("MILLRACE_ACCESS_KEY", "another-key-than-the-pools")
	l := load(t, dir, 1, p.address)
	f := l.function(t, "upper")
	until(t, "a wrong key is taken", func() bool {
		return strings.Contains(l.client.Usage(l.Environment)[0].Problem, "answers who has its access key only")
	})
	if got := said(t.Context(), f, "a"); got != "0:0: A" {
		t.Error(got)
	}
	if _, err := NewClient([]string{"nowhere"}, rpc.Security{}, slog.Default()); fault.ClassOf(err) != fault.User {
		t.Errorf("an address that is none: %v", err)
	}
}

// TestJoined: what is no batch is refused before memory is taken for it.
func TestJoined(t *testing.T) {
	next := func(sizes ...int) func() ([]byte, error) {
		return func() ([]byte, error) {
			if len(sizes) == 0 {
				return nil, io.EOF
			}
			piece := make([]byte, sizes[0])
			sizes = sizes[1:]
			return piece, nil
		}
	}
	for _, c := range []struct {
		size   int
		pieces []int
		want   string
	}{{0, nil, ""}, {5, []int{2, 3}, ""}, {5, []int{2, 4}, "a piece of 4 bytes after 2 of 5"}, {5, []int{2}, "2 of 5 bytes of a batch came"}, {1 << 30, []int{0}, "a piece of 0 bytes after 0 of 1073741824"}} {
		b, err := joined(c.size, next(c.pieces...))
		if c.want == "" && (err != nil || len(b) != c.size) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %d bytes, %v", c, len(b), err)
		}
	}
}
