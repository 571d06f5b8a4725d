package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace-data/millrace/internal/fault"
)

// withModule adds a module to an environment's, in a folder of its own.
func withModule(t *testing.T, opt *Options, name, code string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name+".py"), []byte(code), 0o644); err != nil {
		t.Fatal(err)
	}
	opt.Path = append(opt.Path, dir)
	return dir
}

// until waits for something that comes soon.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// late is a module whose import begins with a file and ends with another one.
const late = `
import os, time
import millrace

open(os.path.join(os.path.dirname(__file__), "begun"), "w").close()
while not os.path.exists(os.path.join(os.path.dirname(__file__), "end")):
    time.sleep(0.01)

@millrace.transform
def f(text: str) -> str:
    return text
`

func exists(parts ...string) func() bool {
	return func() bool { _, err := os.Stat(filepath.Join(parts...)); return err == nil }
}

// TestImportEndsServer: an import that ends the fork server is the user's error, which nobody tries again; one during which
// something else ends it is lost. A server that ends at its restart says nothing of the functions, which it had.
func TestImportEndsServer(t *testing.T) {
	opt := options(t)
	withModule(t, &opt, "crashes", "import os\nprint('so long', flush=True)\nos._exit(7)\n")
	dir := withModule(t, &opt, "late", late)
	e := open(t, opt)
	_, err := e.Describe(t.Context(), "crashes:f")
	want := "importing crashes:f: the fork server ended (exit status 7); it last printed: so long: an import may not end its process; `"
	if fault.ClassOf(err) != fault.User || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v (%v), want %s", err, fault.ClassOf(err), want)
	}
	described := make(chan error, 1)
	go func() {
		_, err := e.Describe(t.Context(), "late:f")
		for errors.Is(err, ErrRestarting) {
			time.Sleep(10 * time.Millisecond)
			_, err = e.Describe(t.Context(), "late:f")
		}
		described <- err
	}()
	until(t, "the import does not begin", exists(dir, "begun"))
	_ = unix.Kill(e.pids()[0], unix.SIGKILL)
	if err := <-described; fault.ClassOf(err) != fault.Lost || errors.Is(err, ErrRestarting) {
		t.Errorf("%v (%v) of an import whose process was killed", err, fault.ClassOf(err))
	}
	expect(t, called(t, function(t, e, "upper"), texts("a")), `0:0 "A"`)
	if n := e.Status().Restarts; n != 2 {
		t.Errorf("%d restarts", n)
	}
	s := &server{gone: make(chan struct{}), ended: errors.New("ended")}
	close(s.gone)
	s.answered.Store(true)
	if err := e.fatal(s, []string{"steps:upper"}, fault.As(fault.Lost, s.ended)); fault.ClassOf(err) != fault.Lost {
		t.Errorf("%v (%v) at a restart", err, fault.ClassOf(err))
	}
}

// TestFirstImport: an import that ends the first fork server is the user's error, too; an interpreter that ends before it
// says anything may be the machine's fault.
func TestFirstImport(t *testing.T) {
	opt := options(t)
	opt.Functions = []string{"crashes:f"}
	dir := withModule(t, &opt, "crashes", "import os\nos._exit(7)\n")
	if _, err := Open(t.Context(), opt); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "importing crashes:f: the fork server ended (exit status 7)") {
		t.Errorf("%v (%v)", err, fault.ClassOf(err))
	}
	opt.Python = filepath.Join(dir, "python")
	if err := os.WriteFile(opt.Python, []byte("#!/bin/sh\necho no such library >&2\nexit 127\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), opt); fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), "no such library") {
		t.Errorf("%v (%v)", err, fault.ClassOf(err))
	}
}

// TestUnfit: an interpreter that is none, or that cannot import our package, is the user's error, which says what is wrong.
func TestUnfit(t *testing.T) {
	for _, c := range []struct{ python, module, want string }{
		{"/bin/ls", "", "/bin/ls: cannot access"},
		{"/bin/ls", "", "this is no Python interpreter: name one of"},
		{"", "json", "json.py hides a module of the same name"},
		{"", "numpy", "numpy.py hides a module of the same name"},
		{"", "millrace", "millrace.py hides a module of the same name"},
	} {
		opt := options(t)
		opt.Functions = nil
		if c.python != "" {
			opt.Python = c.python
		}
		if c.module != "" {
			withModule(t, &opt, c.module, "")
			opt.Path = []string{opt.Path[2], opt.Path[0]}
		}
		if e, err := Open(t.Context(), opt); fault.ClassOf(err) != fault.User || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%v (%v), want %s", err, fault.ClassOf(err), c.want)
			if err == nil {
				e.Close()
			}
		}
	}
	opt := options(t)
	opt.Path = opt.Path[1:]
	opt.Python = filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(opt.Python, []byte("#!/bin/sh\nexec "+python()+" -S \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", "")
	if _, err := Open(t.Context(), opt); fault.ClassOf(err) != fault.User || !strings.Contains(fmt.Sprint(err), "this interpreter has no package millrace: install it there") {
		t.Errorf("%v (%v)", err, fault.ClassOf(err))
	}
}

// TestMemoryDuringImport: a worker that holds too much memory ends also while the fork server imports, and reads nothing.
func TestMemoryDuringImport(t *testing.T) {
	if !canLimit {
		t.Skip("memory is not known on this system")
	}
	opt := options(t)
	opt.Memory, opt.Workers, opt.Functions = 256<<20, 1, []string{"holds:f"}
	dir := withModule(t, &opt, "late", late)
	withModule(t, &opt, "holds", `
import os, time
import millrace

@millrace.transform
def f(text: str) -> str:
    hog = b"x" * (400 << 20)
    time.sleep(1000)
    return text
`)
	e := open(t, opt)
	until(t, "there is no worker", func() bool { return len(e.pids()) == 2 })
	pid := e.pids()[1]
	described := make(chan error, 1)
	go func() {
		_, err := e.Describe(t.Context(), "late:f")
		described <- err
	}()
	until(t, "the import does not begin", exists(dir, "begun"))
	f, err := e.Function(t.Context(), Use{Name: "holds:f"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	call := make(chan error, 1)
	go func() {
		_, _, err := f.Call(ctx, texts("a"))
		call <- err
	}()
	began := time.Now()
	for alive(pid) && time.Since(began) < time.Minute {
		time.Sleep(10 * time.Millisecond)
	}
	if alive(pid) {
		t.Errorf("after %v of an import a worker is there that holds too much memory", time.Since(began))
	}
	cancel()
	<-call
	if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := <-described; err != nil {
		t.Error(err)
	}
}

// TestClosedAtOnce: an environment that is closed before its workers are there leaves nothing.
func TestClosedAtOnce(t *testing.T) {
	for range 3 {
		e, err := Open(t.Context(), options(t))
		if err != nil {
			t.Fatal(err)
		}
		pid := e.pids()[0]
		e.Close()
		if alive(pid) {
			t.Fatalf("fork server %d of a closed environment is there", pid)
		}
	}
}

// TestFarAnswers: what a worker says of its answer, and what is none, is its bad answer, and harms no pool.
func TestFarAnswers(t *testing.T) {
	opt := options(t)
	opt.Workers, opt.Functions = 1, []string{"lies:f"}
	withModule(t, &opt, "lies", `
import millrace
import millrace._worker as worker

@millrace.transform
def f(text: str) -> str:
    worker.answer = lambda *given: {"bytes": int(text)}
    return text
`)
	e := open(t, opt)
	f, err := e.Function(t.Context(), Use{Name: "lies:f"})
	if err != nil {
		t.Fatal(err)
	}
	for bytes, want := range map[int]string{
		-1: "a batch of -1 bytes", MaxBatch + 1: fmt.Sprintf("a batch of %d bytes", MaxBatch+1), MaxBatch: "bytes of shared memory, which has",
	} {
		in := texts(fmt.Sprint(bytes))
		attempt := Attempt{Use: Use{Name: "lies:f"}, Batch: make([]byte, sizeOf(in.Columns(), f.in, 0, 1, false))}
		encode(attempt.Batch, in.Columns(), f.in, 0, 1, nil)
		until(t, "the answer is taken", func() bool { // the first call of a worker changes what it answers from then on
			o, err := e.Run(t.Context(), attempt)
			if err != nil {
				t.Fatal(err)
			}
			return strings.Contains(o.Reply.Broken, "its worker wrote garbage: ") && strings.Contains(o.Reply.Broken, want)
		})
	}
}

// TestChangedUnderWorker: a worker that is older than the import of a function, whose file is another one by now, runs none of
// that: the next worker runs what was imported.
func TestChangedUnderWorker(t *testing.T) {
	opt := options(t)
	opt.Workers = 1
	const code = `
import millrace

@millrace.transform
def f(text: str) -> str:
    return text + "1"

@millrace.transform
class C:
    def __call__(self, text: str) -> str:
        return text + "1"
`
	dir := withModule(t, &opt, "edited", code)
	for _, name := range []string{"edited:f", "edited:C"} {
		write := func(code string) {
			if err := os.WriteFile(filepath.Join(dir, "edited.py"), []byte(code), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		write(code)
		e := open(t, opt)
		expect(t, called(t, function(t, e, "upper"), texts("a")), `0:0 "A"`) // its worker is there
		f, err := e.Function(t.Context(), Use{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		write(strings.ReplaceAll(code, `"1"`, `"2"`))
		expect(t, called(t, f, texts("a")), `0:0 "a1"`)
	}
}
