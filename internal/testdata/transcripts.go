package testdata

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Transcripts plays testdata/*.txt, each beside a core of its own that begin makes: paragraphs of
// commands, one a line, and below "----" what the core does. Lines that begin with # are comments.
// With rewrite the files are written, else they have to be what comes out.
func Transcripts(t *testing.T, rewrite bool, begin func(*testing.T) (do func(command string) string)) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal("no transcripts:", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			out := play(string(text), begin(t))
			if rewrite {
				err = os.WriteFile(path, []byte(out), 0o644)
			} else if out != string(text) {
				t.Errorf("the core did otherwise; compare after `go test -run Transcripts -rewrite`:\n%s", out)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func play(text string, do func(command string) string) string {
	var out strings.Builder
	for _, part := range strings.Split(strings.TrimSpace(text), "\n\n") {
		commands, _, _ := strings.Cut(part, "\n----")
		if out.Len() > 0 {
			out.WriteString("\n")
		}
		out.WriteString(commands + "\n----\n")
		for _, c := range strings.Split(commands, "\n") {
			if !strings.HasPrefix(c, "#") {
				out.WriteString(do(c))
			}
		}
	}
	return out.String()
}
