package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLogVerbs reads, checks, damages, repairs and exports a log with a mirror.
func TestLogVerbs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../checkpoint/testdata/v4")); err != nil {
		t.Fatal(err)
	}
	mirror := "file://" + filepath.Join(dir, "mirror")
	both := []string{"--log-dir", "log", "--log-mirror", mirror}
	verb := func(code int, word string, args ...string) string {
		t.Helper()
		r := millrace(t, dir, args...)
		r.expect(t, code)
		if !strings.Contains(r.stdout+r.stderr, word) {
			t.Errorf("%v does not say %q:\n%s%s", args, word, r.stdout, r.stderr)
		}
		return r.stdout
	}
	verb(0, "digest", append([]string{"run", "job.yaml", "--changes", "changes.jsonl", "--steps", "20"}, both...)...)
	verb(0, "is whole", append([]string{"log", "check"}, both...)...)
	verb(exitUser, "there is no mirror", "log", "check", "--log-mirror", "file://"+t.TempDir())
	verb(exitUsage, "--log-mirror", "log", "read")
	verb(exitUsage, "--log-mirror", append([]string{"log", "read"}, both...)...)

	for _, where := range [][]string{both[:2], both[2:]} {
		text := verb(0, "epoch      1", append([]string{"log", "read"}, where...)...)
		lines := verb(0, `"kind":"step"`, append([]string{"log", "read", "--json"}, where...)...)
		exported := verb(0, `"record":`, append([]string{"log", "export"}, where...)...)
		if strings.Count(lines, "\n") != strings.Count(text, "\n") || strings.Count(exported, "\n") != strings.Count(text, "\n") || strings.Count(text, " plan ") < 20 {
			t.Errorf("%v:\n%s%s", where, text, lines)
		}
		var e entry
		if err := json.Unmarshal([]byte(strings.SplitN(lines, "\n", 2)[0]), &e); err != nil || e.Kind == "" || e.Record != nil {
			t.Errorf("%+v, %v", e, err)
		}
	}

	// The folder from the mirror.
	if err := os.Truncate(newestWAL(t, filepath.Join(dir, "log")), 3); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "log", "HIGHWATER"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	verb(exitUser, "is damaged", append([]string{"log", "check"}, both...)...)
	verb(0, "has what the mirror has", append([]string{"log", "repair"}, both...)...)
	verb(0, "is whole", append([]string{"log", "check"}, both...)...)
	verb(0, "verified", "verify", "job.yaml", "--log-dir", "log")

	// The mirror from the folder.
	damage(t, filepath.Join(dir, "mirror", "segment", "0000000000000001"))
	verb(exitUser, "slot 1", append([]string{"log", "check"}, both...)...)
	verb(0, "has a key frame", append([]string{"log", "repair"}, both...)...)
	verb(exitUser, "does not need to go on", append([]string{"log", "check"}, both...)...)
	if err := os.RemoveAll(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	got := verb(0, "digest", append([]string{"run", "job.yaml", "--changes", "changes.jsonl", "--steps", "30"}, both...)...)
	want := verb(0, "digest", "run", "job.yaml", "--changes", "changes.jsonl", "--steps", "30")
	if got[strings.LastIndex(got, "digest"):] != want[strings.LastIndex(want, "digest"):] {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestLogCheckOlder: a mirror that was brought back from an older copy is whole, and not that of its folder.
func TestLogCheckOlder(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	mirror, older := filepath.Join(dir, "mirror"), filepath.Join(dir, "older")
	run := func(steps string) {
		t.Helper()
		millrace(t, dir, "run", "job.yaml", "--steps", steps, "--log-dir", "log", "--log-mirror", "file://"+mirror).expect(t, 0)
	}
	run("5")
	if err := os.CopyFS(older, os.DirFS(mirror)); err != nil {
		t.Fatal(err)
	}
	run("9")
	millrace(t, dir, "log", "check", "--log-dir", "log", "--log-mirror", "file://"+mirror).expect(t, 0)
	millrace(t, dir, "log", "check", "--log-dir", "log", "--log-mirror", "file://"+older).expect(t, exitUser, "it ends before slot")
	if err := os.RemoveAll(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	millrace(t, dir, "log", "repair", "--log-dir", "log", "--log-mirror", "file://"+older).expect(t, 0)
	r := millrace(t, dir, "log", "check", "--log-dir", "log", "--log-mirror", "file://"+mirror)
	if r.expect(t, 0); !strings.Contains(r.stdout, "is behind its mirror") {
		t.Errorf("it says\n%s", r.stdout)
	}
}

// damage flips a bit in the middle of a file.
func damage(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 4
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestVerifyAfterGoingBack: a run on the log of another one begins again and says so, and verify says that the other one's
// steps are not among those that it compared.
func TestVerifyAfterGoingBack(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	for _, steps := range []string{"6", "2"} {
		r := millrace(t, dir, "run", "job.yaml", "--steps", steps, "--log-dir", "log")
		r.expect(t, 0)
		if again := strings.Contains(r.stderr, "log had steps of this job, and this run began again at step 0"); again != (steps == "2") {
			t.Errorf("after %s steps: %s", steps, r.stderr)
		}
		r = millrace(t, dir, "verify", "job.yaml", "--log-dir", "log")
		r.expect(t, 0)
		if went := strings.Contains(r.stdout, "the job went back 1 time"); went != (steps == "2") {
			t.Errorf("after %s steps: %s", steps, r.stdout)
		}
	}
}

// TestMirrorInLog refuses a mirror that would go away with the log, before anything is made.
func TestMirrorInLog(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	for _, verb := range []string{"run", "serve", "planner"} {
		millrace(t, dir, verb, "job.yaml", "--log-dir", "log", "--log-mirror", "file://"+filepath.Join(dir, "log/mirror")).expect(t, exitUser, "would be put aside")
	}
	millrace(t, dir, "log", "repair", "--log-dir", "log", "--log-mirror", "file://"+filepath.Join(dir, "log.replaced")).expect(t, exitUser, "would be put aside")
	if left, err := filepath.Glob(filepath.Join(dir, "log*")); err != nil || len(left) > 0 {
		t.Errorf("they left %v, %v", left, err)
	}
}
