package lint

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tics are phrases that a plainer word replaces: n or "that many" for "so many",
// "again" for "anew", "learns" or "hears" for "is told", a noun for "that there is",
// "available" for "at hand".
var tics = regexp.MustCompile(`\b([Ss]o many|anew|(is|are|was|were) told|that there (is|are)|[Aa]t hand|has it that|by its word)\b`)

// notPlain are the files that may have them: what is generated, what is past, and the list.
var notPlain = []string{"CHANGELOG.md", "internal/lint/plain_test.go", "internal/proto"}

// TestPlainWords forbids the phrases in code, comments, messages and documents.
func TestPlainWords(t *testing.T) {
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		where, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		switch where = filepath.ToSlash(where); {
		case d.IsDir() && (where == "build" || where == "bin" || where != "." && strings.HasPrefix(d.Name(), ".")), d.IsDir() && slices.Contains(notPlain, where):
			return fs.SkipDir
		case d.IsDir() || slices.Contains(notPlain, where) || !slices.Contains([]string{".go", ".md", ".py", ".yaml", ".proto"}, path.Ext(where)):
			return nil
		}
		text, err := os.ReadFile(name)
		for i, line := range strings.Split(string(text), "\n") {
			if tic := tics.FindString(line); tic != "" {
				t.Errorf("%s:%d: %q: use a plainer word", where, i+1, tic)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
