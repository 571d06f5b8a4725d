package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/object/objecttest"
)

// killed serves a job with a log, has ranks take steps and a change made, and kills the
// service. It returns the job's folder, whose log is in "log".
func killed(t testing.TB, steps int) string {
	t.Helper()
	dir := folder(t)
	s := serve(t, dir, "--log-dir", "log")
	take(t, bothRanks(t, s), steps)
	s.verb(t, dir, "mix set", "words=0.5", "notes=0.5", "--step", fmt.Sprint(steps+20)).expect(t, 0)
	s.cmd.Process.Kill()
	<-s.exited
	return dir
}

// bothRanks joins both ranks of the good job, at once: where a log says that the job was
// further, ranks without a token wait for each other.
func bothRanks(t testing.TB, s *server) []*client.Client {
	t.Helper()
	ranks, errs := make([]*client.Client, 2), make([]error, 2)
	var joined sync.WaitGroup
	for dp := range ranks {
		joined.Go(func() { ranks[dp], errs[dp] = open(t, s, client.Options{Rank: client.Rank{DP: dp}}) })
	}
	joined.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return ranks
}

func take(t testing.TB, ranks []*client.Client, steps int) {
	t.Helper()
	for range steps {
		for _, c := range ranks {
			if _, err := c.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// newestWAL is the file of a log folder that was written last.
func newestWAL(t testing.TB, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	return slices.Max(names)
}

// TestCutLog damages the log of a service that was killed, at its end: neither verify nor
// another service takes it for whole, and with the file back all goes on.
func TestCutLog(t *testing.T) {
	t.Parallel()
	dir := killed(t, 12)
	verify := func() result { return millrace(t, dir, "verify", "job.yaml", "--log-dir", "log") }
	verify().expect(t, 0)
	wal := newestWAL(t, filepath.Join(dir, "log"))
	data, err := os.ReadFile(wal)
	if err != nil {
		t.Fatal(err)
	}
	cut := func(what string, words ...string) {
		t.Helper()
		r := verify()
		if r.code != exitUser {
			t.Errorf("%s: verify has exit code %d:\n%s%s", what, r.code, r.stdout, r.stderr)
			return
		}
		r.expect(t, exitUser, append(words, "the log in "+filepath.Join(dir, "log")+" is damaged", "bring the folder back from a copy", "resume it from a token")...)
	}
	for i := range 8 {
		at := len(data) - 1 - i*len(data)/8
		flipped := slices.Clone(data)
		flipped[at] ^= 4
		put(t, dir, "log/"+filepath.Base(wal), flipped)
		cut(fmt.Sprintf("byte %d of %d is another", at, len(data)))
		put(t, dir, "log/"+filepath.Base(wal), data[:at])
		cut(fmt.Sprintf("cut to %d of %d bytes", at, len(data)))
	}
	if err := os.Remove(wal); err != nil {
		t.Fatal(err)
	}
	cut("its newest file is deleted", "steps 0 to ", "the last 1 of 1 changes are missing")
	s := serve(t, dir, "--log-dir", "log")
	_, err = open(t, s, client.Options{})
	refused(t, err, "is damaged", "the last 1 of 1 changes are missing")
	s.stop(t)

	put(t, dir, "log/"+filepath.Base(wal), data)
	mark := filepath.Join(dir, "log", "HIGHWATER")
	if err := os.Rename(mark, mark+".away"); err != nil {
		t.Fatal(err)
	}
	cut("its mark is deleted", "HIGHWATER")
	if err := os.Rename(mark+".away", mark); err != nil {
		t.Fatal(err)
	}
	verify().expect(t, 0)
	s = serve(t, dir, "--log-dir", "log")
	take(t, bothRanks(t, s), 15)
	if got := s.verb(t, dir, "changes").stdout; !strings.Contains(got, `"step":32`) {
		t.Errorf("the changes are\n%s", got)
	}
	s.stop(t)
	verify().expect(t, 0)
}

// TestLogFolderDeleted takes the log's folder away from a service, while its ranks take
// steps and while they do not: ranks hear why, and the service ends.
func TestLogFolderDeleted(t *testing.T) {
	t.Parallel()
	for name, idle := range map[string]bool{"in use": false, "idle": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t)
			s := serve(t, dir, "--log-dir", "log")
			ranks := bothRanks(t, s)
			take(t, ranks, 3)
			if err := os.RemoveAll(filepath.Join(dir, "log")); err != nil {
				t.Fatal(err)
			}
			if !idle {
				wantGone(t, ranks)
			}
			select {
			case <-s.exited:
			case <-time.After(hangs):
				t.Fatal("the service goes on without its log")
			}
			if code, said := s.cmd.ProcessState.ExitCode(), s.stderr.String(); code != exitLost || !strings.Contains(said, "was deleted or replaced") {
				t.Errorf("exit code %d, want %d:\n%s", code, exitLost, said)
			}
			if _, err := os.Stat(filepath.Join(dir, "log")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the folder is there again: %v", err)
			}
		})
	}
}

// wantGone has ranks take steps until they hear that the log is gone.
func wantGone(t *testing.T, ranks []*client.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	var err error
	for n := 0; err == nil; n++ {
		_, err = ranks[n%len(ranks)].Next(ctx)
	}
	if !strings.Contains(err.Error(), "was deleted or replaced") {
		t.Errorf("the ranks hear %v", err)
	}
}

// TestPrivateLog: nobody else can read a log.
func TestPrivateLog(t *testing.T) {
	t.Parallel()
	dir := killed(t, 2)
	if info, err := os.Stat(filepath.Join(dir, "log")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the log folder has mode %v, %v", info.Mode(), err)
	}
	names, err := os.ReadDir(filepath.Join(dir, "log"))
	if err != nil || len(names) < 4 {
		t.Fatal(names, err)
	}
	for _, entry := range names {
		if info, err := entry.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", entry.Name(), info.Mode(), err)
		}
	}
}

// TestOlderLog goes on in a log that the version before wrote.
func TestOlderLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../checkpoint/testdata/v4")); err != nil {
		t.Fatal(err)
	}
	verify := []string{"verify", "job.yaml", "--log-dir", "log"}
	millrace(t, dir, verify...).expect(t, 0)
	run := func(more ...string) string {
		r := millrace(t, dir, append([]string{"run", "job.yaml", "--changes", "changes.jsonl", "--steps"}, more...)...)
		r.expect(t, 0)
		lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
		return lines[len(lines)-1]
	}
	if got := run("12", "--log-dir", "log"); got != "digest step=12 7efcdac0ac8876930c19afc8d19ef8edde2bdd4fa60c4014395549613bad4b4a" {
		t.Errorf("the steps that the log has end with %s", got)
	}
	if got, want := run("30", "--log-dir", "log"), run("30"); got != want {
		t.Errorf("with the older log the job ends with %s, without one with %s", got, want)
	}
	millrace(t, dir, verify...).expect(t, 0)
}

// TestLogMirror loses the folder of a log: the job goes on from its mirror, in a folder and
// in a bucket, and what is written there is what the reference has.
func TestLogMirror(t *testing.T) {
	for name, where := range map[string]func(t *testing.T) string{
		"folder": func(t *testing.T) string { return "file://" + t.TempDir() + "/mirror" },
		"bucket": func(t *testing.T) string {
			return strings.Replace(objecttest.Server(t), "s3://bucket", "s3://bucket/job", 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			mirror, dir := where(t), t.TempDir()
			if err := os.CopyFS(dir, os.DirFS("../checkpoint/testdata/v4")); err != nil {
				t.Fatal(err)
			}
			log := filepath.Join(dir, "log")
			run := func(more ...string) string {
				t.Helper()
				r := millrace(t, dir, append([]string{"run", "job.yaml", "--changes", "changes.jsonl", "--steps"}, more...)...)
				r.expect(t, 0)
				lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
				return lines[len(lines)-1]
			}
			run("12", "--log-dir", "log", "--log-mirror", mirror) // of a log that was there before its mirror
			for steps := range 3 {
				if err := os.RemoveAll(log); err != nil {
					t.Fatal(err)
				}
				n := fmt.Sprint(20 + 10*steps)
				if got, want := run(n, "--log-dir", "log", "--log-mirror", mirror), run(n); got != want {
					t.Errorf("from the mirror the job ends with %s, without one with %s", got, want)
				}
			}
			millrace(t, dir, "verify", "job.yaml", "--log-dir", "log").expect(t, 0)
			millrace(t, dir, "run", "job.yaml", "--log-mirror", mirror).expect(t, exitUsage, "--log-dir")
		})
	}
}

// TestBranchWithoutSteps: a branch that nothing was written to has no last step.
func TestBranchWithoutSteps(t *testing.T) {
	t.Parallel()
	number, step := uint64(0), int64(0)
	if got, want := (entry{Kind: "branch", Number: &number, Step: &step, Next: &step}).String(), "branch     0 step 0, none yet"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
