package millrace_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const spec = `
name: outside
sources: [{name: words, files: words.txt, long: {max: 64}}]
mix: {feedback: still}
batch: {sequence_length: 256, sequences: 4}
topology: {dp: 1}
strategy: squares
`

// TestOutside builds testdata/outside as a module of its own, which can import public
// packages only, and runs it.
func TestOutside(t *testing.T) {
	dir := t.TempDir()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	mod := read(t, "go.mod")
	mod = strings.Replace(mod, "module github.com/millrace-data/millrace", "module example.com/outside", 1)
	mod = regexp.MustCompile(`(?ms)^(tool|ignore) (\(.*?^\)|\S+)`).ReplaceAllString(mod, "")
	mod += "\nrequire github.com/millrace-data/millrace v0.0.0\nreplace github.com/millrace-data/millrace => " + root + "\n"
	for name, text := range map[string]string{
		"go.mod": mod, "go.sum": read(t, "go.sum"), "main.go": read(t, "testdata/outside/main.go"),
		"words.txt": strings.Repeat("the quick brown fox jumps over the lazy dog\n", 100), "job.yaml": spec,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(program string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -mod=mod"), "GOWORK=off", "MILLRACE_KEY_DIR="+filepath.Join(dir, "keys"))
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s%s", program, strings.Join(args, " "), err, out, &stderr)
		}
		return string(out)
	}
	run("go", "build", "-o", "outside", ".")
	outside := filepath.Join(dir, "outside")
	digest := run(outside, "reference", "job.yaml", "--steps", "3")
	if !strings.HasPrefix(digest, "digest step=3 ") {
		t.Fatalf("the reference says %s", digest)
	}
	if out := run(outside, "run", "job.yaml", "--steps", "3", "--processes"); !strings.HasSuffix(out, digest) {
		t.Errorf("run ends with\n%s, want %s", out, digest)
	}
	want := "no such rank: user\nanother job: user\nstep 0\nstep 1\nstep 2\n" + digest +
		"the service is gone: lost\nwithout the registry: user\nloaded without it: user\n"
	if got := run(outside, "embed", "job.yaml"); got != want {
		t.Errorf("embedded:\n%s\nwant:\n%s", got, want)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
