package cli

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/rpc"
)

// standing is a service that has an access key in a file and a mirror of its log, with planners that stand by for it.
type standing struct {
	dir    string
	first  *server
	second string // address of who stands by
	ranks  []*client.Client
}

// planner is a command of a planner of the service.
func (s *standing) planner(t *testing.T, spec, log, key string, more ...string) *exec.Cmd {
	args := []string{"planner", spec, "--log-dir", log, "--log-mirror", "file://" + filepath.Join(s.dir, "mirror"), "--access-key-file", key}
	return command(context.WithoutCancel(t.Context()), s.dir, append(args, more...)...)
}

// standby is a planner that stands by.
func (s *standing) standby(t *testing.T, spec, log, key string, more ...string) *exec.Cmd {
	return s.planner(t, spec, log, key, append([]string{"--standby", "--listen", s.second}, more...)...)
}

// startStanding starts the planner.
func startStanding(t *testing.T) *standing {
	s := &standing{dir: folder(t), second: freeAddress(t)}
	put(t, s.dir, "other.yaml", strings.Replace(good, "seed: 7", "seed: 8", 1))
	s.first = start(t, s.planner(t, "job.yaml", "log1", "key", "--listen", freeAddress(t)))
	return s
}

// join starts the other roles and the ranks.
func (s *standing) join(t *testing.T) {
	t.Helper()
	both := s.first.address + "," + s.second
	for _, role := range []string{"loader", "constructor"} {
		launch(t, command(context.WithoutCancel(t.Context()), s.dir, role, "--planner", both, "--access-key-file", "key"))
	}
	for dp := range 2 {
		c, err := open(t, &server{address: both}, client.Options{Rank: client.Rank{DP: dp}, Security: rpc.Security{AccessKeyFile: filepath.Join(s.dir, "key")}})
		if err != nil {
			t.Fatal(err)
		}
		s.ranks = append(s.ranks, c)
	}
}

// step has the ranks take steps.
func (s *standing) step(t *testing.T, n int) {
	t.Helper()
	for range n {
		if failed := takeStep(t, s.ranks); failed != nil {
			t.Fatal(failed)
		}
	}
}

// await waits until a process says something.
func await(t *testing.T, said *lockedBuffer, words string) {
	t.Helper()
	for end := time.Now().Add(hangs); !strings.Contains(said.String(), words); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("nobody says %q:\n%s", words, said.String())
		}
	}
}

// TestStandbyChecked: a planner that could not serve, or has another job, is refused when it starts to stand by, and makes no
// access key. So is one that does not stand by, before it has anything of the log.
func TestStandbyChecked(t *testing.T) {
	t.Parallel()
	s := startStanding(t)
	s.join(t)
	s.step(t, 4)
	put(t, s.dir, "open.key", strings.Repeat("k", 64))
	if err := os.Chmod(filepath.Join(s.dir, "open.key"), 0o644); err != nil { // whatever the umask is
		t.Fatal(err)
	}
	ours := newAuthority(t, s.dir, "ours")
	ours.issueUntil(t, time.Now().Add(-time.Minute), s.dir, "ended", "planner", "127.0.0.1")
	ours.issue(t, s.dir, "trainer", "trainer", "127.0.0.1")
	for name, c := range map[string]struct {
		cmd  *exec.Cmd
		says []string
	}{
		"no key":          {s.standby(t, "job.yaml", "log2", "absent.key"), []string{"there is no access key in", "absent.key", "a planner that stands by makes none", "--access-key-file"}},
		"open key":        {s.standby(t, "job.yaml", "log2", "open.key"), []string{"may be read by everyone", "chmod 600"}},
		"certificate":     {s.standby(t, "job.yaml", "log2", "key", tlsArgs("ended", "ours")...), []string{"ended.pem", "valid from", "renew it"}},
		"role":            {s.standby(t, "job.yaml", "log2", "key", tlsArgs("trainer", "ours")...), []string{"trainer.pem", "URI:millrace://role/planner", "its roles are trainer"}},
		"role of a first": {command(t.Context(), s.dir, slices.Concat([]string{"planner", "job.yaml", "--listen", "127.0.0.1:0"}, tlsArgs("trainer", "ours"))...), []string{"URI:millrace://role/planner"}},
		"network":         {s.standby(t, "job.yaml", "log2", "key", "--listen", "0.0.0.0:0"), []string{"without TLS would show"}},
		"port":            {s.standby(t, "job.yaml", "log2", "key", "--listen", s.first.address), []string{"listening on " + s.first.address, "address already in use"}},
		"address":         {s.standby(t, "job.yaml", "log2", "key", "--listen", "192.0.2.7:7070", "--insecure"), []string{"listening on 192.0.2.7:7070", "this machine has no such address"}},
		"socket":          {s.standby(t, "job.yaml", "log2", "key", "--listen", "unix:absent/socket"), []string{"there is no folder absent"}},
		"job":             {s.standby(t, "other.yaml", "log2", "key"), []string{"the mirror file://", "belongs to another job, with spec", "millrace lint", "undo the change of the job spec"}},
	} {
		t.Run(name, func(t *testing.T) { runCommand(t, c.cmd).expect(t, exitUser, c.says...) })
	}
	if _, err := os.Stat(filepath.Join(s.dir, "absent.key")); err == nil {
		t.Error("a planner that stands by has made an access key")
	}
	s.step(t, 4)
	s.first.cmd.Process.Kill()
	<-s.first.exited
	for _, verb := range []string{"planner", "serve"} {
		runCommand(t, command(t.Context(), s.dir, verb, "other.yaml", "--log-dir", "log1", "--listen", "127.0.0.1:0")).expect(t, exitUser, "the log in", "log1 belongs to another job, with spec")
	}
	standby := command(t.Context(), s.dir, "planner", "other.yaml", "--standby", "--log-dir", "log1", "--listen", "127.0.0.1:0")
	runCommand(t, standby).expect(t, exitUser, "log1 belongs to another job, with spec")
	runCommand(t, s.planner(t, "other.yaml", "log3", "key", "--listen", "127.0.0.1:0")).expect(t, exitUser, "the mirror file://", "belongs to another job, with spec")
	if files, _ := os.ReadDir(filepath.Join(s.dir, "log3")); len(files) > 0 {
		t.Errorf("a planner of another job has filled its folder: %v", files)
	}
	start(t, s.planner(t, "job.yaml", "log1", "key", "--listen", s.first.address))
	s.step(t, 8)
	checkReference(t, s.dir, s.ranks[0])
}

// TestStandbyLeaves: a planner that stands by learns later that the log is another job's, or cannot serve when it is to take over: it
// says so, goes on standing by and leaves the log alone. When it can serve it takes over.
func TestStandbyLeaves(t *testing.T) {
	t.Parallel()
	s := startStanding(t)
	var said, other lockedBuffer
	foreign := s.standby(t, "other.yaml", "log3", "key") // there is no mirror yet
	foreign.Stderr = &other
	over := launch(t, foreign)
	put(t, s.dir, "copy.key", "")
	key, err := os.ReadFile(filepath.Join(s.dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	restore := func() {
		if err := os.WriteFile(filepath.Join(s.dir, "new.key"), key, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(s.dir, "new.key"), filepath.Join(s.dir, "copy.key")); err != nil {
			t.Fatal(err)
		}
	}
	restore()
	cmd := s.standby(t, "job.yaml", "log2", "copy.key", "--log-level", "info")
	cmd.Stderr = &said
	launch(t, cmd)
	await(t, &said, "standing by")
	s.join(t)
	s.step(t, 4)
	await(t, &other, "does not take over another job")
	if err := os.Remove(filepath.Join(s.dir, "copy.key")); err != nil {
		t.Fatal(err)
	}
	s.first.cmd.Process.Kill()
	await(t, &said, "this planner cannot take over now")
	if text := said.String(); !strings.Contains(text, "it could not serve: there is no access key in") {
		t.Errorf("a planner without its key says:\n%s", text)
	}
	restore()
	s.step(t, 12)
	checkReference(t, s.dir, s.ranks[0])
	select {
	case <-over:
		t.Errorf("the planner of another job ended:\n%s", other.String())
	default:
	}
	if _, err := os.Stat(filepath.Join(s.dir, "log3", "HIGHWATER")); err == nil {
		t.Error("the planner of another job has a log")
	}
}

// TestStandbyPort: a planner that stands by cannot listen when it is to take over, as the other one is stopped for a while. It goes
// on standing by, and the other one goes on serving. When it can listen, and the other one is gone, it takes over.
func TestStandbyPort(t *testing.T) {
	t.Parallel()
	s := startStanding(t)
	key, err := os.ReadFile(filepath.Join(s.dir, "key"))
	if err == nil {
		err = os.WriteFile(filepath.Join(s.dir, "copy.key"), key, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	var said lockedBuffer
	cmd := s.standby(t, "job.yaml", "log2", "copy.key", "--log-level", "info")
	cmd.Stderr = &said
	launch(t, cmd)
	await(t, &said, "standing by")
	s.join(t)
	s.step(t, 4)
	taken, err := net.Listen("tcp", s.second)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if err := s.first.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	await(t, &said, "this planner cannot take over now")
	if text := said.String(); !strings.Contains(text, "it could not serve: listening on "+s.second) {
		t.Errorf("a planner whose port is taken says:\n%s", text)
	}
	if err := s.first.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.step(t, 8)
	select {
	case <-s.first.exited:
		t.Fatalf("the planner that was stopped for a while has ended:\n%s", s.first.stderr.String())
	default:
	}
	taken.Close()
	s.first.cmd.Process.Kill()
	s.step(t, 8)
	checkReference(t, s.dir, s.ranks[0])
}
