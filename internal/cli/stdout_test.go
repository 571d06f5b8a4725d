package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// into runs the program with its standard output in a file.
func into(t *testing.T, dir, file string, args ...string) result {
	t.Helper()
	out, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer out.Close()
	var stderr bytes.Buffer
	cmd := command(t.Context(), dir, args...)
	cmd.Stdout, cmd.Stderr = out, &stderr
	cmd.Run()
	return result{code: cmd.ProcessState.ExitCode(), stderr: stderr.String()}
}

// TestFullOutput: whatever verb cannot print says so.
func TestFullOutput(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	put(t, dir, "changes.jsonl", `{"step":1,"pause":"notes"}`+"\n")
	millrace(t, dir, "run", "job.yaml", "--steps", "3", "--log-dir", "log", "--changes", "changes.jsonl").expect(t, 0)
	for _, verb := range []string{
		"run job.yaml --steps 2", "run job.yaml --steps 2 --json", "serve job.yaml --listen 127.0.0.1:0",
		"lint job.yaml", "lint job.yaml --print", "schema", "version", "--version", "--help", "plan --help",
		"plan job.yaml --steps 2", "plan job.yaml --steps 2 --json", "plan job.yaml --steps 1000000 --every --json", "plan job.yaml --steps 2 --every",
		"plan job.yaml --sizing --yaml", "plan job.yaml --operators", "profile job.yaml --records 5 --json", "prepare job.yaml --out prepared --json",
		"explain job.yaml --step 0", "explain job.yaml --step 0 --json", "preview job.yaml --step 0", "changes --log-dir log",
		"log read --log-dir log", "log export --log-dir log", "log check --log-dir log", "reference job.yaml --steps 2", "verify job.yaml --log-dir log",
	} {
		t.Run(verb, func(t *testing.T) {
			r := into(t, dir, "/dev/full", strings.Fields(verb)...)
			r.expect(t, exitLost, "millrace: writing to standard output: no space left on device", "make room")
			if n := strings.Count(r.stderr, "no space left"); n != 1 {
				t.Errorf("it says so %d times:\n%s", n, r.stderr)
			}
		})
	}
}

// TestClosedOutput: a reader that has enough ends the program, without a word.
func TestClosedOutput(t *testing.T) {
	t.Parallel()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	read.Close()
	defer write.Close()
	cmd := exec.CommandContext(t.Context(), program, "schema")
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = write, &stderr
	cmd.Run()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGPIPE || stderr.Len() > 0 {
		t.Errorf("it ends with %v and says %q", cmd.ProcessState, stderr.String())
	}
}

// TestOneOutput: what is printed goes through the writer whose errors are reported.
func TestOneOutput(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	direct := regexp.MustCompile(`\bfmt\.Print(f|ln)?\(|os\.Stdout\b`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") || file == "stdout.go" {
			continue
		}
		for _, found := range direct.FindAllString(strings.ReplaceAll(string(text), "terminalWidth(os.Stdout)", ""), -1) {
			t.Errorf("%s has %s: print to stdout, which sees errors", file, found)
		}
	}
}

// TestExportToFullDisk: an export that does not fit is a disk's fault, and leaves nothing.
func TestExportToFullDisk(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	millrace(t, dir, "run", "job.yaml", "--steps", "3", "--log-dir", "log").expect(t, 0)
	millrace(t, dir, "log", "export", "--log-dir", "log", "--out", "/nope/x").expect(t, exitUser, "writing the export to /nope/x: no such file or directory", "--out")
	disk := fullDisk(t)
	millrace(t, dir, "log", "export", "--log-dir", "log", "--out", filepath.Join(disk, "x")).expect(t, exitLost, "writing the export to "+disk, "no space left", "--out")
	if left, err := os.ReadDir(disk); err != nil || len(left) != 1 {
		t.Errorf("the disk has %v (%v)", left, err)
	}
	into(t, dir, os.DevNull, "log", "export", "--log-dir", "log", "--out", "/dev/full").expect(t, exitLost, "/dev/full", "no space left")
}
