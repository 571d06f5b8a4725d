package pool

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/faultproxy"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/worker"
)

// hangs is the time after which a test is taken to hang.
const hangs = time.Minute

// code is the module of the tests.
const code = `import os
import time

import numpy as np

import millrace


@millrace.transform
def upper(text: str) -> str:
    return text.upper()


@millrace.transform("flat_map")
def words(text: str) -> list[str]:
    return text.split()


@millrace.transform
def drawn(text: str, rng: np.random.Generator) -> str:
    return f"{text} {rng.integers(1 << 30)}"


@millrace.transform
def fails(text: str) -> str:
    if "bad" in text:
        raise ValueError(f"{text} is not good")
    if "exit" in text:
        os._exit(3)
    return text


@millrace.transform("map_batches")
def fewer(text: list[str]) -> list[str]:
    return text[1:]


@millrace.transform
def chance(text: str) -> str:
    return os.urandom(8).hex()


@millrace.transform
def slow(text: str) -> str:
    open(os.path.join(os.path.dirname(__file__), "begun-" + text), "w").close()
    while not os.path.exists(os.path.join(os.path.dirname(__file__), "end-" + text)):
        time.sleep(0.01)
    return text


@millrace.transform(needs={"gpu": 0.5})
def owns(text: str) -> str:
    return os.environ.get("CUDA_VISIBLE_DEVICES", "none")


class Model:
    def __init__(self) -> None:
        raise RuntimeError("no such model")

    def __call__(self, text: str) -> str:
        return text


model = millrace.transform(Model)
`

// python returns an interpreter with NumPy, or skips the test.
func python(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("MILLRACE_PYTHON"), "../../.venv/bin/python"} {
		if path, err := filepath.Abs(name); name != "" && err == nil && exec.Command(path, "-c", "import numpy").Run() == nil {
			return path
		}
	}
	t.Skip("no Python with NumPy: run make .venv/tested, or set MILLRACE_PYTHON")
	return ""
}

// modules returns a folder with the tests' module, or one with other contents.
func modules(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "steps.py"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// running is a pool of a test.
type running struct {
	address string
	stop    func() // returns when it has ended
}

// serve runs a pool until the test ends, or stop is called.
func serve(t *testing.T, opt Options) *running {
	t.Helper()
	client, err := filepath.Abs("../../client/python/src")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", client)
	ctx, cancel := context.WithCancel(context.Background())
	address := make(chan string, 1)
	ended := make(chan error, 1)
	opt.Interpreters = append(opt.Interpreters, Interpreter{"test", python(t)})
	opt.Workers, opt.Log = max(opt.Workers, 2), slog.New(slog.DiscardHandler)
	opt.Serving = func(at string) { address <- at }
	if opt.Address == "" {
		opt.Address = "127.0.0.1:0"
	}
	go func() { ended <- Run(ctx, opt) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	select {
	case at := <-address:
		return &running{at, stop}
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	return nil
}

// loader is an environment whose functions pools serve; n of its workers are here, -1: none.
type loader struct {
	*worker.Environment
	client *Client
	log    *bytes.Buffer
}

func load(t *testing.T, dir string, n int, pools ...string) *loader {
	t.Helper()
	l := &loader{log: &bytes.Buffer{}}
	log := slog.New(slog.NewTextHandler(&locked{to: l.log}, nil))
	client, err := NewClient(pools, rpc.Security{}, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	l.client = client
	l.Environment, err = worker.Open(t.Context(), worker.Options{Python: python(t), Path: []string{dir}, Functions: []string{"steps:upper"}, Workers: n, Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// locked is a buffer for several goroutines.
type locked struct {
	mu sync.Mutex
	to *bytes.Buffer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(b)
}

// function opens one of the module's, for pools too.
func (l *loader) function(t *testing.T, name string) *worker.Function {
	t.Helper()
	f, err := l.Function(t.Context(), worker.Use{Name: "steps:" + name, Seed: 7, Source: "web", Step: "transforms[1]"})
	if err != nil {
		t.Fatal(err)
	}
	l.client.Use(l.Environment, f.Description())
	return f
}

// until waits for something that pools bring about.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(hangs); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

func texts(lines ...string) *format.Batch {
	b := &format.Batch{}
	for i, line := range lines {
		b.Add(&format.Record{Row: int64(10 * i), Values: []format.Value{{Kind: format.String, Bytes: []byte(line)}}})
	}
	return b
}

// said is what a function makes of texts: values and errors of rows, or its own error.
func said(ctx context.Context, f *worker.Function, lines ...string) string {
	out, from, err := f.Call(format.WithFile(ctx, 1), texts(lines...))
	if err != nil {
		return fault.ClassOf(err).String() + ": " + err.Error()
	}
	var all []string
	var rec format.Record
	for i := range out.Len() {
		out.Record(i, &rec)
		if rec.Err != nil {
			all = append(all, fmt.Sprintf("%d: %s: %v", from[i], fault.ClassOf(rec.Err), rec.Err))
			continue
		}
		all = append(all, fmt.Sprintf("%d:%d: %s", from[i], rec.Row, rec.Values[0].Bytes))
	}
	return strings.Join(all, "\n")
}

// TestSame: what a pool makes of rows is what workers here make of them, whatever happens to those.
func TestSame(t *testing.T) {
	dir := modules(t, code)
	p := serve(t, Options{Path: []string{modules(t, code)}})
	here, there := load(t, dir, 2), load(t, dir, -1, p.address)
	for _, name := range []string{"upper", "words", "drawn", "fails"} {
		lines := []string{"a b", "bad", "", "exit", "c"}
		for i := range 300 {
			lines = append(lines, fmt.Sprint("row ", i))
		}
		want, got := said(t.Context(), here.function(t, name), lines...), said(t.Context(), there.function(t, name), lines...)
		if want != got || strings.HasPrefix(want, "user:") {
			t.Errorf("%s: here\n%.500s\nin the pool\n%.500s", name, want, got)
		}
	}
	for name, more := range map[string]string{"fewer": " (on worker pool " + p.address + ")", "model": " (on worker pool " + p.address + ")"} {
		want, got := said(t.Context(), here.function(t, name), "a", "b"), said(t.Context(), there.function(t, name), "a", "b")
		if want+more != got || !strings.HasPrefix(want, "user: ") {
			t.Errorf("%s: here %q, in the pool %q", name, want, got)
		}
	}
	twice := worker.Use{Name: "steps:chance", Source: "web", Step: "transforms[1]", Twice: true}
	there.function(t, "chance") // so that the pool serves it
	f, err := there.Function(t.Context(), twice)
	if err != nil {
		t.Fatal(err)
	}
	want := "user: function steps:chance gives something else when it runs again (first on worker pool " + p.address + ", then on worker pool " + p.address + "): column \"text\" of row 0"
	if got := said(t.Context(), f, "a"); !strings.HasPrefix(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
	if got := said(t.Context(), there.function(t, "upper"), strings.Repeat("x", 5<<20)); got != "0:0: "+strings.Repeat("X", 5<<20) {
		t.Errorf("a row of 5 MiB gives %.100s", got)
	}
	u := there.client.Usage(there.Environment)
	if len(u) != 1 || !u[0].Connected || u[0].Workers != 2 || u[0].Batches < 6 || u[0].Losses != 0 || u[0].OnTheWay != 0 || u[0].Problem != "" {
		t.Errorf("%+v", u)
	}
}

// TestPoolsGoAndCome: what is on the way to a pool that is reset, or cut off without a word, runs elsewhere, and when it is there
// again it gets batches again.
func TestPoolsGoAndCome(t *testing.T) {
	t.Setenv("MILLRACE_ACCESS_KEY", "of-all-pools-of-the-test") // that of the proxy's address nobody leaves
	dir := modules(t, code)
	steady, shaky := serve(t, Options{Path: []string{dir}}), serve(t, Options{Path: []string{dir}})
	proxy, err := faultproxy.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	proxy.Forward(shaky.address)
	l := load(t, dir, -1, steady.address, proxy.Address())
	f := l.function(t, "upper")
	state := func() (all [2]Usage) { return [2]Usage(l.client.Usage(l.Environment)) }
	until(t, "no pool serves", func() bool { return state()[0].Workers == 2 && state()[1].Workers == 2 })
	if f.Seats() != 8 || f.OwnSeats() != 0 {
		t.Errorf("%d seats, %d of them here", f.Seats(), f.OwnSeats())
	}
	ctx, stop := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	defer calls.Wait()
	defer stop()
	for i := range 6 {
		calls.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				lower := fmt.Sprintf("call %d of %d", n, i)
				if got := said(ctx, f, lower); got != "0:0: "+strings.ToUpper(lower) && ctx.Err() == nil {
					t.Error(got)
					return
				}
			}
		})
	}
	works := func(what string, at int) {
		t.Helper()
		before := state()[at].Batches
		until(t, what, func() bool { return state()[at].Batches >= before+20 })
	}
	works("the proxied pool does nothing", 1)
	for _, failure := range []string{"reset", "cut off", "reset"} {
		if failure == "reset" {
			proxy.Forward("127.0.0.1:1") // where nobody is
			proxy.Reset()
		} else {
			proxy.Set(faultproxy.Stall)
		}
		until(t, "a pool that was "+failure+" is taken for connected", func() bool { return !state()[1].Connected })
		if u := state()[1]; u.Workers != 0 || u.Problem == "" {
			t.Errorf("%s: %+v", failure, u)
		}
		works("the other pool does nothing while one is "+failure, 0)
		proxy.Set(faultproxy.Carry)
		proxy.Forward(shaky.address)
		works("the pool that came back does nothing", 1)
	}
	if u := state()[1]; u.Losses == 0 {
		t.Errorf("%+v, though it was lost three times in its work", u)
	}
}

// TestJoins: a call that nobody serves is served by the pool that comes.
func TestJoins(t *testing.T) {
	dir := modules(t, code)
	at := "unix:" + filepath.Join(t.TempDir(), "pool")
	l := load(t, dir, -1, at)
	f := l.function(t, "upper")
	got := make(chan string)
	go func() { got <- said(t.Context(), f, "late") }()
	until(t, "the call does not wait", func() bool { return l.Status().Waiting == 1 })
	serve(t, Options{Address: at, Path: []string{dir}})
	if got := <-got; got != "0:0: LATE" {
		t.Error(got)
	}
}

// TestGPUs: a function that needs a GPU runs in the pool that has one, in as many workers as it has room for; one without refuses it.
func TestGPUs(t *testing.T) {
	dir := modules(t, code)
	gpus := worker.NewGPUs([]worker.GPU{{ID: "GPU-1", Memory: 1 << 30}})
	with, without := serve(t, Options{Path: []string{dir}, GPUs: func() *worker.GPUs { return gpus }}), serve(t, Options{Path: []string{dir}})
	l := load(t, dir, 1, with.address, without.address)
	f := l.function(t, "owns")
	if f.Slots() != 0 {
		t.Errorf("%d workers have a GPU that is not there", f.Slots())
	}
	if got := said(t.Context(), f, "a", "b"); got != "0:0: GPU-1\n1:10: GPU-1" {
		t.Error(got)
	}
	until(t, "a pool without a GPU takes the function", func() bool {
		return strings.Contains(l.client.Usage(l.Environment)[1].Problem, "function steps:owns needs a GPU, and it has none")
	})
	if u := l.client.Usage(l.Environment)[0]; u.Workers != 2 {
		t.Errorf("%+v, with room for two halves", u)
	}
	if got := said(t.Context(), l.function(t, "upper"), "a"); got != "0:0: A" {
		t.Error(got)
	}
}

// TestLeaves: a pool that stops finishes what it has, and gets nothing more.
func TestLeaves(t *testing.T) {
	dir := modules(t, code)
	leaving, staying := serve(t, Options{Path: []string{dir}, Drain: hangs}), serve(t, Options{Path: []string{dir}})
	l := load(t, dir, -1, leaving.address)
	f := l.function(t, "slow")
	got := make(chan string)
	go func() { got <- said(t.Context(), f, "one") }()
	begun := filepath.Join(dir, "begun-one")
	until(t, "the call does not begin", func() bool { _, err := os.Stat(begun); return err == nil })
	stopped := make(chan struct{})
	go func() { leaving.stop(); close(stopped) }()
	until(t, "the pool that leaves still serves", func() bool { return len(l.Status().Far) == 0 })
	other := load(t, dir, -1, staying.address)
	if got := said(t.Context(), other.function(t, "upper"), "a"); got != "0:0: A" {
		t.Error(got)
	}
	if err := os.WriteFile(filepath.Join(dir, "end-one"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := <-got; got != "0:0: one" {
		t.Error(got)
	}
	<-stopped
	if u := l.client.Usage(l.Environment)[0]; u.Batches != 1 || u.Losses != 0 {
		t.Errorf("%+v", u)
	}
}
