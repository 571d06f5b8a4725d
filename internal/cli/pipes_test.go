package cli

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestPipes: a named pipe in the place of a file is an error that names it and says what is wrong, where opening it would wait
// for a writer for ever.
func TestPipes(t *testing.T) {
	run := []string{"run", "job.yaml", "--steps", "2", "--log-dir", "log"}
	begun := func(t *testing.T) string {
		dir := folder(t)
		millrace(t, dir, run...).digest(t)
		return dir
	}
	plain := func(t *testing.T) string { return folder(t) }
	tokenizer := func(t *testing.T) string {
		return folder(t, words("words/*.jsonl", "transforms: [{tokenize: {file: tokenizer.json}}]")...)
	}
	for name, c := range map[string]struct {
		dir  func(t *testing.T) string
		pipe string // or a pattern of the files whose place it takes
		args []string
	}{
		"mark of the log":     {begun, "log/HIGHWATER", run},
		"manifest of the log": {begun, "log/MANIFEST-*", run},
		"log that is read":    {begun, "log/MANIFEST-*", []string{"log", "check", "--log-dir", "log"}},
		"job spec":            {plain, "job.yaml", []string{"lint", "job.yaml"}},
		"changes":             {plain, "changes", []string{"plan", "job.yaml", "--changes", "changes"}},
		"resume token":        {plain, "token", []string{"run", "job.yaml", "--resume", "token"}},
		"data file":           {plain, "words/0.jsonl", []string{"run", "job.yaml", "--steps", "2"}},
		"tokenizer":           {tokenizer, "tokenizer.json", []string{"lint", "job.yaml"}},
		"certificate":         {plain, "cert.pem", []string{"serve", "job.yaml", "--listen", "127.0.0.1:0", "--tls-cert", "cert.pem", "--tls-key", "cert.pem", "--tls-ca", "cert.pem"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := c.dir(t)
			path := filepath.Join(dir, c.pipe)
			if there, err := filepath.Glob(path); err != nil || strings.Contains(c.pipe, "*") && len(there) == 0 {
				t.Fatalf("there is no file %s: %v", c.pipe, err)
			} else if len(there) > 0 {
				path = there[0]
				_ = syscall.Unlink(path)
			}
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
			millrace(t, dir, c.args...).expect(t, exitUser, filepath.Base(path), "pipe")
		})
	}
}
