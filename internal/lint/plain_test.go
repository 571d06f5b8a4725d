package lint

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// tics are phrases that a plainer word replaces: n or "at most" for "so many",
// "again" for "anew", "receives" or "learns" for "is told", a noun for "that there
// is", "available" for "at hand", "is not one" for "is none".
var tics = regexp.MustCompile(`\b([Ss]o many|anew|(is|are|was|were) told|that there (is|are)|[Aa]t hand|is none|has it that|by its word)\b`)

// plain are the files and folders, with all below them, that do without the phrases.
// Add what has been reworded; nothing leaves the list but with its folder.
var plain = []string{
	"CONTRIBUTING.md", "README.md", "docs/architecture.md", "docs/benchmarks.md", "docs/decisions.md",
	"docs/failures.md", "docs/file-formats.md",
	"balance", "bench", "cmd", "examples", "millrace.go",
	"internal/batch", "internal/didyoumean", "internal/fault", "internal/fieldpath", "internal/formats",
	"internal/handover", "internal/imaging", "internal/reference", "internal/samples", "internal/testdata", "internal/trainer",
	"internal/sourceloader/order", "internal/sourceloader/spill", "internal/sourceloader/store",
	"internal/sourceloader/tokenize", "internal/sourceloader/transform",
	"planner/dgraph", "planner/feedback", "planner/mesh",
}

// TestPlainWords forbids the phrases in code, comments, messages and documents.
func TestPlainWords(t *testing.T) {
	for _, where := range plain {
		err := filepath.WalkDir(filepath.Join("..", "..", filepath.FromSlash(where)), func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			switch path.Ext(d.Name()) {
			case ".go", ".md", ".py", ".yaml":
			default:
				return nil
			}
			if d.IsDir() {
				return nil
			}
			text, err := os.ReadFile(name)
			for i, line := range strings.Split(string(text), "\n") {
				if tic := tics.FindString(line); tic != "" {
					t.Errorf("%s:%d: %q: use a plainer word", filepath.ToSlash(name), i+1, tic)
				}
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
