package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/fault"
)

// open joins a served job as a rank.
func open(t testing.TB, s *server, opts client.Options) (*client.Client, error) {
	t.Helper()
	if opts.Deadline == 0 {
		opts.Deadline = hangs
	}
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	c, err := client.Open(ctx, s.address, opts)
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// refused checks that err is the user's, and says every one of words.
func refused(t testing.TB, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", words)
	}
	if fault.ClassOf(err) != fault.User {
		t.Errorf("class %v, want user: %v", fault.ClassOf(err), err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

// TestJoin has trainers that do not fit a served job.
func TestJoin(t *testing.T) {
	t.Parallel()
	s := serve(t, folder(t))
	other := folder(t, "seed: 7", "seed: 8")
	millrace(t, other, "run", "job.yaml", "--steps", "2", "--save-token", "token.json").digest(t)
	foreign, err := readToken(filepath.Join(other, "token.json"))
	if err != nil {
		t.Fatal(err)
	}
	job, err := load(extensions{}, filepath.Join(other, "job.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	spec := job.Identity()
	for name, c := range map[string]struct {
		opts client.Options
		want []string
	}{
		"rank outside": {client.Options{Rank: client.Rank{DP: 2}}, []string{"dp=2", "outside the topology", "0 to 1"}},
		"tensor rank":  {client.Options{Rank: client.Rank{TP: 1}}, []string{"tp=1", "outside the topology", "0 to 0"}},
		"other sizes":  {client.Options{Mesh: client.Mesh{DP: 4}}, []string{"dp size 4", "has 2", "topology.dp"}},
		"other spec":   {client.Options{Identity: spec[:]}, []string{"spec", "tiny", "start the service with the trainer's spec"}},
		"other job":    {client.Options{Job: "large"}, []string{`"large"`, `"tiny"`, "right address"}},
		"other token":  {client.Options{Token: foreign}, []string{"resume token is of job", "must be the same"}},
		"other start":  {client.Options{Start: "begining"}, []string{`start is "begining"`, `valid is "beginning"`}},
		"two starts":   {client.Options{Start: client.Beginning, Token: foreign}, []string{"with a resume token", "begins at the first step", "leave one"}},
		"no token":     {client.Options{Token: []byte("nonsense")}, []string{"resume token", "damaged"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := open(t, s, c.opts)
			refused(t, err, c.want...)
		})
	}
	if _, err := open(t, s, client.Options{Rank: client.Rank{DP: 1}}); err != nil {
		t.Errorf("after all these a good rank cannot join: %v", err)
	}
}

// TestMovedBy has a rank that begins again at the first step: the other one hears which.
func TestMovedBy(t *testing.T) {
	t.Parallel()
	s := serve(t, folder(t))
	var ranks [2]*client.Client
	for dp := range ranks {
		var err error
		if ranks[dp], err = open(t, s, client.Options{Rank: client.Rank{DP: dp}}); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		for _, c := range ranks {
			if _, err := c.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	again, err := open(t, s, client.Options{Rank: client.Rank{DP: 1}, Start: client.Beginning})
	if err != nil {
		t.Fatal(err)
	}
	if again.Step() != 0 {
		t.Fatalf("a rank that begins again does so at step %d", again.Step())
	}
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	for err == nil { // it may have read ahead
		_, err = ranks[0].Next(ctx)
	}
	refused(t, err, "moved to step 0", "by rank dp=1 cp=0 pp=0 tp=0, which joined without a resume token", "restart all ranks from the same checkpoint")
}

// TestAbsentRank has a rank whose peer does not come: the status, the service's log and
// the rank's say which it is.
func TestAbsentRank(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	s := serve(t, dir)
	var log lockedBuffer
	c, err := open(t, s, client.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	absent := "1 of 2 ranks have not asked for a batch yet: rank dp=1 cp=0 pp=0 tp=0"
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	var watch sync.WaitGroup
	watch.Go(func() { // until both logs say so, after some ten seconds
		for ctx.Err() == nil && !(strings.Contains(log.String(), absent) && strings.Contains(s.stderr.String(), absent)) {
			time.Sleep(50 * time.Millisecond)
		}
		cancel()
	})
	for err == nil {
		_, err = c.Next(ctx)
	}
	watch.Wait()
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for who, text := range map[string]string{
		"the status": millrace(t, dir, "status", s.address).stdout, "the service's log": s.stderr.String(), "the rank's log": log.String(),
	} {
		if strings.Count(text, absent) != 1 {
			t.Errorf("%s does not say %q once:\n%s", who, absent, text)
		}
	}
}

// TestChangedFile rewrites a file of a served job under way: the ranks, the status
// and a restarted job learn which one.
func TestChangedFile(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--processes"}} {
		t.Run(strings.Join(args, ""), func(t *testing.T) {
			t.Parallel()
			// Small buffers, so that the service has to read again and again.
			dir := folder(t, "topology: {dp: 2}", "topology: {dp: 1}\nresources: {window: 4, prefetch: 2, loader_buffer: 4KiB}")
			s := serve(t, dir, args...)
			c, err := open(t, s, client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
			for f := range 2 {
				put(t, dir, []string{"words/0.jsonl", "words/1.jsonl"}[f], lines(120))
			}
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			for err == nil {
				_, err = c.Next(ctx)
			}
			refused(t, err, `source "words"`, filepath.Join(dir, "words"), "changed", "restore it")
			r := millrace(t, dir, "status", s.address)
			r.expect(t, 0)
			for _, want := range []string{"job tiny: failed", "error (user)", filepath.Join(dir, "words")} {
				if !strings.Contains(r.stdout, want) {
					t.Errorf("the status does not say %q:\n%s", want, r.stdout)
				}
			}
		})
	}
}

func TestListen(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() }) // after the parallel subtests
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"port in use":              {[]string{"--listen", taken.Addr().String()}, []string{taken.Addr().String(), "address already in use", "--listen", "0 for a free one"}},
		"port in use by processes": {[]string{"--processes", "--listen", taken.Addr().String()}, []string{taken.Addr().String(), "address already in use", "--listen"}},
		"no port":                  {[]string{"--listen", "localhost"}, []string{"localhost", "HOST:PORT or unix:PATH"}},
		"off loopback":             {[]string{"--listen", "0.0.0.0:0"}, []string{"0.0.0.0:0 without TLS", "--tls-cert", "127.0.0.1", "--insecure"}},
		"half of TLS":              {[]string{"--listen", "127.0.0.1:0", "--tls-cert", "a.pem"}, []string{"--tls-cert, --tls-key and --tls-ca"}},
		"no certificate":           {[]string{"--listen", "127.0.0.1:0", "--tls-cert", "a.pem", "--tls-key", "a.key", "--tls-ca", "ca.pem"}, []string{"a.pem", "no such file"}},
		"many constructors":        {[]string{"--listen", "127.0.0.1:0", "--constructors", "3"}, []string{"3 constructors for 2 data-parallel ranks", "--constructors 2"}},
		"log in a file":            {[]string{"--listen", "127.0.0.1:0", "--log-dir", "job.yaml"}, []string{"job.yaml", "not a directory", "give the job a folder"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			millrace(t, dir, append([]string{"serve", "job.yaml"}, c.args...)...).expect(t, exitUser, c.want...)
		})
	}
}

// TestProxy reaches a service of a network whose proxy does not know it.
func TestProxy(t *testing.T) {
	t.Parallel()
	dir, host := folder(t), ""
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() { // those of loopback never take a proxy
			host = n.IP.String()
		}
	}
	if host == "" {
		t.Skip("this machine has a loopback address only")
	}
	s := start(t, command(context.WithoutCancel(t.Context()), dir, "serve", "job.yaml", "--listen", host+":0", "--insecure"))
	cmd := command(t.Context(), dir, "status", s.address, "--insecure")
	cmd.Env = append(os.Environ(), "HTTPS_PROXY=http://127.0.0.1:1", "NO_PROXY=")
	runCommand(t, cmd).expect(t, 0)
}

// TestLogInUse has two services with one log.
func TestLogInUse(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	s := serve(t, dir, "--log-dir", "log")
	if _, err := open(t, s, client.Options{}); err != nil { // the log is open
		t.Fatal(err)
	}
	millrace(t, dir, "run", "job.yaml", "--log-dir", "log").expect(t, exitUser, "log", "is open already", "folder of its own")
	for _, verb := range []string{"verify job.yaml", "log read", "explain job.yaml --step 0"} {
		millrace(t, dir, append(strings.Fields(verb), "--log-dir", "log")...).expect(t, exitUser, "log", "is open already", "read it when that one has ended; before, its mirror")
	}
}

// TestFullFromTheStart has a full disk for the log: that is found before anything is read.
func TestFullFromTheStart(t *testing.T) {
	t.Parallel()
	disk := fullDisk(t)
	dir := folder(t)
	for _, args := range [][]string{{"run"}, {"serve"}, {"serve", "--processes"}, {"planner"}} { // the last has no loader
		args = append(args, "job.yaml", "--log-dir", filepath.Join(disk, "log"))
		if args[0] != "run" {
			args = append(args, "--listen", "127.0.0.1:0")
		}
		r := millrace(t, dir, args...)
		r.expect(t, exitLost, filepath.Join(disk, "log"), "no space left", "free or replace the disk")
		if r.stdout != "" {
			t.Errorf("%v began: %s", args, r.stdout)
		}
	}
}

// TestFullDisk gives the log less room than it needs.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	r := runCommand(t, cramped(t.Context(), dir, "run", "job.yaml", "--steps", "1000000", "--log-dir", "log"))
	r.expect(t, exitLost, "log", "file too large", "free or replace the disk", "something was lost")
	m := digestLast.FindStringSubmatch(r.stdout)
	if m == nil {
		t.Fatalf("a run that is cut short does not say how far it got:\n%s", r.stdout)
	}
	millrace(t, dir, "verify", "job.yaml", "--steps", m[1], "--digest", m[2]).expect(t, 0)
	millrace(t, dir, "verify", "job.yaml", "--log-dir", "log").expect(t, 0)
}

// cramped is a command whose files can have 64 blocks of 512 or 1024 bytes: what a
// shell takes for one differs.
func cramped(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `ulimit -f 64 && exec "$0" "$@"`, program}, args...)...)
	cmd.Dir = dir
	return cmd
}

// TestFullDiskEnds has services whose log fails: its ranks hear why, and it ends by
// itself, with the exit code of what was lost. To stop it before does not hide that.
func TestFullDiskEnds(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"serve":             {"serve"},
		"serve stopped":     {"serve"},
		"processes":         {"serve", "--processes"},
		"processes stopped": {"serve", "--processes"},
		"planner":           {"planner"},
		"planner stopped":   {"planner"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stopped := strings.HasSuffix(name, " stopped")
			dir := folder(t, "dp: 2", "dp: 1")
			args = append(args, "job.yaml", "--listen", "127.0.0.1:0", "--log-dir", "log")
			s := start(t, cramped(context.WithoutCancel(t.Context()), dir, args...))
			if args[0] == "planner" {
				for _, role := range []string{"loader", "constructor"} {
					r := command(context.WithoutCancel(t.Context()), dir, role, "--planner", s.address)
					if err := r.Start(); err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { r.Process.Kill(); r.Wait() })
				}
			}
			c, err := open(t, s, client.Options{})
			for err == nil {
				_, err = c.Next(t.Context())
			}
			refused(t, err, "the job has failed, start the service again", "the log in", "file too large", "free or replace the disk")
			if stopped { // while it tells its ranks why
				s.cmd.Process.Signal(syscall.SIGTERM)
			}
			select {
			case <-s.exited:
			case <-time.After(hangs):
				t.Fatal("it stays up without its log")
			}
			code, text := s.cmd.ProcessState.ExitCode(), s.stderr.String()
			lines := strings.Split(strings.TrimSpace(text), "\n")
			if last := lines[len(lines)-1]; code != exitLost || !strings.Contains(last, "file too large") || strings.Contains(last, "ended by itself") {
				t.Errorf("exit code %d: %s", code, text)
			}
			millrace(t, dir, "verify", "job.yaml", "--log-dir", "log").expect(t, 0)
		})
	}
}

// TestStop sees that a service leaves nothing behind.
func TestStop(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"one process": nil,
		"processes":   {"--processes", "--loaders", "2", "--constructors", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, folder(t), args...)
			if failed := takeStep(t, openRanks(t, s, 0, nil)); failed != nil { // the log warns of ranks that do not come
				t.Fatal(failed)
			}
			children := childrenOf(t, s.cmd.Process.Pid)
			if want := map[bool]int{false: 0, true: 5}[args != nil]; len(children) != want {
				t.Errorf("%d child processes, want %d", len(children), want)
			}
			s.stop(t)
			for _, pid := range children {
				if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
					t.Errorf("process %d is left behind (%v)", pid, err)
				}
			}
			if err := s.stderr.String(); strings.Contains(err, "level=ERROR") || strings.Contains(err, "level=WARN") {
				t.Errorf("stopping logs errors:\n%s", err)
			}
		})
	}
}

// childrenOf lists the processes that a process started, where /proc tells.
func childrenOf(t testing.TB, pid int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		t.Skip("there is no /proc here")
	}
	var children []int
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // it is gone
		}
		// "pid (name) state parent ...", where the name may hold anything.
		fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			children = append(children, child)
		}
	}
	return children
}

// TestKilledRole kills the planner's process: the service ends, and whichever role
// notices first names the planner.
func TestKilledRole(t *testing.T) {
	t.Parallel()
	s := serve(t, folder(t), "--processes")
	if _, err := open(t, s, client.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, pid := range childrenOf(t, s.cmd.Process.Pid) {
		if raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline")); err == nil && strings.Contains(string(raw), "\x00planner\x00") {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	select {
	case <-s.exited:
	case <-time.After(hangs):
		t.Fatal("serve goes on without its planner")
	}
	code, text := s.cmd.ProcessState.ExitCode(), s.stderr.String()
	if code != exitLost || !strings.Contains(text, " ended: ") || !strings.Contains(text, "planner") || strings.Count(text, lostAdvice+lostAdvice) > 0 {
		t.Errorf("exit code %d: %s", code, text)
	}
}

// TestServed delivers what the reference reader says, over a served job.
func TestServed(t *testing.T) {
	t.Parallel()
	dir := folder(t, "dp: 2", "dp: 1", "notes: 0.25}", "notes: 0.25}\n  epochs: 1")
	want := millrace(t, dir, "reference", "job.yaml", "--steps", "0").digest(t)
	s := serve(t, dir, "--processes")
	c, err := open(t, s, client.Options{Job: "tiny", Mesh: client.Mesh{DP: 1}})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = c.Next(t.Context())
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	_, digest, err := c.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	printDigest(&got, c.Step(), digest)
	if got.String() != want+"\n" {
		t.Errorf("the served job ends with %s, want %s", got.String(), want)
	}
	r := millrace(t, dir, "status", s.address)
	r.expect(t, 0)
	if !strings.Contains(r.stdout, want) {
		t.Errorf("the status does not show %s:\n%s", want, r.stdout)
	}
}
