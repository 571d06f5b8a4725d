package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// older are programs of the version before this one, built from the commit that
// testdata/older names: the next release replaces it.
type older struct {
	millrace, trainer string
	missing           string // why there are none
}

var olderBuilt struct {
	once sync.Once
	older
	err error
}

// theOlder builds the programs of the version before, once for all tests that need them.
func theOlder(t testing.TB) older {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the version before this one")
	}
	b := &olderBuilt
	b.once.Do(func() { b.older, b.err = buildOlder(filepath.Join(filepath.Dir(program), "older")) })
	if b.err != nil {
		t.Fatal(b.err)
	}
	if b.missing != "" {
		t.Skip(b.missing)
	}
	return b.older
}

func buildOlder(dir string) (o older, err error) {
	const root = "../.."
	commit, err := os.ReadFile(filepath.Join(root, "testdata", "older"))
	if err != nil {
		return o, err
	}
	name := strings.TrimSpace(string(commit))
	archive := filepath.Join(dir, "source.tar")
	tree := filepath.Join(dir, "source", "cmd", "trainer")
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return o, err
	}
	if out, err := exec.Command("git", "-C", root, "archive", "-o", archive, name).CombinedOutput(); err != nil {
		o.missing = "there is no history with the version before this one (" + name + "): " + strings.TrimSpace(string(out))
		return o, nil
	}
	if err := shell(dir, "tar", "-xf", archive, "-C", "source"); err != nil {
		return o, err
	}
	source, err := os.ReadFile("testdata/trainer/main.go")
	if err == nil {
		err = os.WriteFile(filepath.Join(tree, "main.go"), source, 0o644)
	}
	if err == nil {
		err = shell(filepath.Join(dir, "source"), "go", "build", "-ldflags=-w", "-o", dir, "./cmd/millrace", "./cmd/trainer")
	}
	return older{millrace: filepath.Join(dir, "millrace"), trainer: filepath.Join(dir, "trainer")}, err
}

// shell runs a command in a folder; an error has what it said.
func shell(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", cmd.Args, err, out)
	}
	return nil
}

// mixed starts a planner, and a loader and two constructors for it, each from a program of its
// own.
func mixed(t testing.TB, dir, planner, loader, constructor string) *server {
	t.Helper()
	with := func(program string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, args...)
		cmd.Dir = dir
		return cmd
	}
	s := start(t, with(planner, "planner", "job.yaml", "--listen", freeAddress(t), "--log-dir", "log", "--constructors", "2"))
	for _, role := range [][2]string{{loader, "loader"}, {constructor, "constructor"}, {constructor, "constructor"}} {
		cmd := with(role[0], role[1], "--planner", s.address)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { cmd.Wait(); close(ended) }()
		t.Cleanup(func() { cmd.Process.Kill(); <-ended })
	}
	return s
}

// TestOlderPeers: every role of this version serves a job together with those of the version
// before, and trainers of either version get what the reference says.
func TestOlderPeers(t *testing.T) {
	t.Parallel()
	old := theOlder(t)
	trainer := filepath.Join(t.TempDir(), "trainer")
	if err := shell(".", "go", "build", "-ldflags=-w", "-o", trainer, "./testdata/trainer"); err != nil {
		t.Fatal(err)
	}
	want := millrace(t, folder(t), "reference", "job.yaml", "--steps", "8").digest(t)
	for name, c := range map[string]struct{ planner, loader, constructor, trainer string }{
		"old ranks":               {program, program, program, old.trainer},
		"old service":             {old.millrace, old.millrace, old.millrace, trainer},
		"old loader":              {program, old.millrace, program, trainer},
		"old constructors":        {program, program, old.millrace, trainer},
		"old planner":             {old.millrace, program, program, trainer},
		"old planner and ranks":   {old.millrace, program, program, old.trainer},
		"only the planner is new": {program, old.millrace, old.millrace, old.trainer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := mixed(t, folder(t), c.planner, c.loader, c.constructor)
			r := runCommand(t, exec.CommandContext(t.Context(), c.trainer, "-address", s.address, "-ranks", "2", "-steps", "8"))
			if got := r.digest(t); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// TestUpgradeInPlace stops a service of the version before in the middle of a job, and starts
// this one in its place, with its log: the ranks, which have saved their state, go on.
func TestUpgradeInPlace(t *testing.T) {
	t.Parallel()
	old := theOlder(t)
	dir := folder(t)
	s := mixed(t, dir, old.millrace, old.millrace, old.millrace)
	ranks := openRanks(t, s, -1, nil)
	for step := range 8 {
		if step == 4 {
			for _, c := range ranks {
				if _, _, err := c.State(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			s.cmd.Process.Kill()
			<-s.exited
			startRoles(t, dir, s.address)
		}
		if failed := takeStep(t, ranks); failed != nil {
			t.Fatal(failed)
		}
	}
	_, digest, err := ranks[0].State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	printDigest(&got, ranks[0].Step(), digest)
	if want := millrace(t, dir, "reference", "job.yaml", "--steps", "8").digest(t); strings.TrimSpace(got.String()) != want {
		t.Errorf("got %s, want %s", got.String(), want)
	}
}
