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

// ticsLeft are folders with phrases from before the rule, and how many at most.
// Numbers only fall: lower one with each folder that is reworded.
var ticsLeft = map[string]int{
	"client":                                  4,
	"client/python":                           1,
	"client/python/src/millrace":              16,
	"client/python/tests":                     4,
	"docs":                                    8,
	"internal/checkpoint":                     11,
	"internal/cli":                            22,
	"internal/constructor":                    1,
	"internal/constructor/assemble":           2,
	"internal/constructor/deliver":            10,
	"internal/planner":                        4,
	"internal/planner/change":                 1,
	"internal/planner/control":                13,
	"internal/planner/plan":                   23,
	"internal/planner/token":                  5,
	"internal/preview":                        8,
	"internal/preview/page":                   3,
	"internal/rpc":                            9,
	"internal/service":                        4,
	"internal/sim":                            1,
	"internal/sourceloader":                   18,
	"internal/sourceloader/format/arrow":      1,
	"internal/sourceloader/format/compress":   1,
	"internal/sourceloader/format/decoders":   1,
	"internal/sourceloader/format/json":       1,
	"internal/sourceloader/format/jsonobject": 1,
	"jobspec":                                 12,
	"planner/cost":                            1,
	"planner/strategy":                        2,
	"proto":                                   3,
}

// TestPlainWords forbids the phrases in code, comments, messages and documents.
func TestPlainWords(t *testing.T) {
	root, found := filepath.Join("..", ".."), map[string]int{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		base := d.Name()
		if err != nil || d.IsDir() {
			if err == nil && name != root && (strings.HasPrefix(base, ".") || base == "build" || base == "testdata") {
				return fs.SkipDir
			}
			return err
		}
		switch path.Ext(base) {
		case ".go", ".md", ".proto", ".py", ".yaml":
		default:
			return nil
		}
		if base == "CHANGELOG.md" || base == "plain_test.go" || strings.HasSuffix(base, ".pb.go") {
			return nil
		}
		text, err := os.ReadFile(name)
		rel, _ := filepath.Rel(root, name)
		dir := path.Dir(filepath.ToSlash(rel))
		for i, line := range strings.Split(string(text), "\n") {
			for _, tic := range tics.FindAllString(line, -1) {
				if found[dir]++; found[dir] > ticsLeft[dir] {
					t.Errorf("%s:%d: %q: use a plainer word", filepath.ToSlash(rel), i+1, tic)
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
