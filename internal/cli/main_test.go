package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// program is the millrace that the tests run: the real one.
var program string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "millrace-test-*")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "millrace")
		if out, err := exec.Command("go", "build", "-ldflags=-w", "-o", program, "../../cmd/millrace").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building millrace: %v\n%s", err, out)
			return 1
		}
		os.Setenv("MILLRACE_KEY_DIR", filepath.Join(dir, "keys")) // of services that are killed, keys stay
		return m.Run()
	}())
}

// hangs is the time after which a command is taken to hang: far longer than any takes
// on a machine that is busy with other tests.
const hangs = time.Minute

// fullDisk is a folder on a file system without room, where the tests may mount one.
func fullDisk(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("mounting a small tmpfs: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("unmounting %s: %v: %s", dir, err, out)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "full"), make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling a disk of 64 KiB: %v", err)
	}
	return dir
}

// result is what became of a command.
type result struct {
	code           int
	stdout, stderr string
}

// millrace runs the program in a folder to its end. A command that hangs or
// panics fails the test, whatever it is about.
func millrace(t testing.TB, dir string, args ...string) result {
	t.Helper()
	return runCommand(t, command(t.Context(), dir, args...))
}

func command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	return cmd
}

// runCommand runs a command to its end. A Stdout that it has sees its output, too.
func runCommand(t testing.TB, cmd *exec.Cmd) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = io.Discard
	}
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&stdout, cmd.Stdout), &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(hangs, func() { cmd.Process.Signal(syscall.SIGQUIT) })
	err := cmd.Wait()
	if !hung.Stop() {
		t.Fatalf("%v hangs:\n%s%s", cmd.Args[1:], stdout.String(), stderr.String())
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatalf("%v: %v %v", cmd.Args[1:], err, exit)
	}
	r := result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	noPanic(t, r.stdout+r.stderr)
	return r
}

// noPanic fails the test if a program's output looks like a crash of Go.
func noPanic(t testing.TB, output string) {
	t.Helper()
	for _, word := range []string{"panic:", "goroutine ", "runtime error", "runtime."} {
		if strings.Contains(output, word) {
			t.Fatalf("the output has %q in it:\n%s", word, output)
		}
	}
}

// expect checks the exit code, and that standard error has every one of words.
func (r result) expect(t testing.TB, code int, words ...string) {
	t.Helper()
	if r.code != code {
		t.Fatalf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.stdout, r.stderr)
	}
	for _, w := range words {
		if !strings.Contains(r.stderr, w) {
			t.Errorf("standard error does not say %q:\n%s", w, r.stderr)
		}
	}
	if code == exitUser && strings.Contains(r.stderr, "bug") {
		t.Errorf("a fault of the user is called a bug:\n%s", r.stderr)
	}
}

var digestLast = regexp.MustCompile(`(?:^|\n)digest step=(\d+) ([0-9a-f]{64})\n$`)

// digest is the last line of a run or reference that went well.
func (r result) digest(t testing.TB) string {
	t.Helper()
	r.expect(t, 0)
	m := digestLast.FindString(r.stdout)
	if m == "" {
		t.Fatalf("the output does not end with a digest line:\n%s", r.stdout)
	}
	return strings.TrimSpace(m)
}

// good is a job that works; tests edit it. Its data is that of writeGood.
const good = `name: tiny
seed: 7
sources:
  - name: words
    files: words/*.jsonl
  - name: notes
    files: notes/*.txt
mix:
  weights: {words: 0.75, notes: 0.25}
batch: {sequence_length: 128, sequences: 4}
topology: {dp: 2}
`

// folder makes a folder with the good job, edited by pairs of old and new text,
// and its data.
func folder(t testing.TB, edits ...string) string {
	t.Helper()
	dir := t.TempDir()
	for f := range 2 {
		put(t, dir, fmt.Sprintf("words/%d.jsonl", f), lines(150))
	}
	for f := range 30 {
		put(t, dir, fmt.Sprintf("notes/%02d.txt", f), strings.Repeat("note ", f+1))
	}
	spec := good
	for i := 0; i+1 < len(edits); i += 2 {
		if !strings.Contains(spec, edits[i]) {
			t.Fatalf("the spec has no %q", edits[i])
		}
		spec = strings.Replace(spec, edits[i], edits[i+1], 1)
	}
	put(t, dir, "job.yaml", spec)
	return dir
}

// lines are n lines of JSON with texts of several lengths.
func lines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"id": %d, "text": %q}`+"\n", i, strings.Repeat(fmt.Sprintf("w%d ", i), i%17+1))
	}
	return b.String()
}

func put[T string | []byte](t testing.TB, dir, name string, data T) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

// server is a running `millrace serve`.
type server struct {
	cmd     *exec.Cmd
	name    string // of the job
	address string
	stderr  lockedBuffer
	exited  chan struct{}
}

// lockedBuffer is written by a process and read by the test.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

var servingLine = regexp.MustCompile(`^(?:serving |planning |)(.+) on (\S+)\n$`)

// serve serves the job of a folder until the test ends.
func serve(t testing.TB, dir string, args ...string) *server {
	t.Helper()
	return start(t, command(context.WithoutCancel(t.Context()), dir, append([]string{"serve", "job.yaml", "--listen", "127.0.0.1:0"}, args...)...))
}

// start starts serve, planner or workers, and stops it when the test ends.
func start(t testing.TB, cmd *exec.Cmd) *server {
	t.Helper()
	s := &server{cmd: cmd, exited: make(chan struct{})}
	s.cmd.Stderr = &s.stderr
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop(t) })
	hung := time.AfterFunc(hangs, func() { s.cmd.Process.Kill() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	hung.Stop()
	go func() {
		io.Copy(io.Discard, stdout)
		s.cmd.Wait()
		close(s.exited)
	}()
	m := servingLine.FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("serve's first line is %q (%v), not `serving NAME on ADDRESS`:\n%s", line, err, s.stderr.String())
	}
	s.name, s.address = m[1], m[2]
	return s
}

// stop asks a server to stop, and checks that it does so, and well.
func (s *server) stop(t testing.TB) {
	t.Helper()
	select {
	case <-s.exited:
		return
	default:
	}
	s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-time.After(hangs):
		s.cmd.Process.Signal(syscall.SIGQUIT)
		<-s.exited
		t.Errorf("serve does not stop:\n%s", s.stderr.String())
	}
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("serve ended with exit code %d after SIGTERM:\n%s", code, s.stderr.String())
	}
	noPanic(t, s.stderr.String())
}

func decode(t testing.TB, line string, into any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%v in %s", err, line)
	}
}
