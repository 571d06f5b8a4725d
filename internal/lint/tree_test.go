package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// module is the path that all packages of this repository begin with.
const module = "github.com/millrace-data/millrace"

// pkg is one folder with Go files. Files of all platforms count.
type pkg struct {
	dir   string // below the repository, with slashes
	name  string
	files []*file
}

// file is one parsed Go file.
type file struct {
	path      string // below the repository
	test      bool
	generated bool
	lines     int
	ast       *ast.File
	imports   []string
}

// tree is the parsed repository.
type tree struct {
	fset *token.FileSet
	pkgs map[string]*pkg // by dir
}

var generatedLine = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// theTree parses the repository once for all tests.
var theTree = sync.OnceValues(func() (*tree, error) {
	root := filepath.Join("..", "..")
	t := &tree{fset: token.NewFileSet(), pkgs: map[string]*pkg{}}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() {
			hidden := name != root && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_"))
			if hidden || base == "testdata" && name != filepath.Join(root, "internal", "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") || strings.HasPrefix(base, ".") {
			return nil
		}
		return t.add(root, name)
	})
	return t, err
})

func load(t *testing.T) *tree {
	t.Helper()
	tree, err := theTree()
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func (t *tree) add(root, name string) error {
	src, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	parsed, err := parser.ParseFile(t.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(root, name)
	if err != nil {
		return err
	}
	f := &file{
		path:      filepath.ToSlash(rel),
		test:      strings.HasSuffix(name, "_test.go"),
		generated: generatedLine.Match(src),
		lines:     strings.Count(string(src), "\n"),
		ast:       parsed,
	}
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		f.imports = append(f.imports, shorten(imported))
	}
	dir := path.Dir(f.path)
	p := t.pkgs[dir]
	if p == nil {
		p = &pkg{dir: dir}
		t.pkgs[dir] = p
	}
	if !f.test {
		p.name = parsed.Name.Name
	}
	p.files = append(p.files, f)
	return nil
}

// shorten takes the module's path off an import path. Packages of the module
// then have no dot in their first part, like those of the standard library;
// inModule tells them apart.
func shorten(imported string) string {
	if imported == module {
		return ours + "."
	}
	if rest, ok := strings.CutPrefix(imported, module+"/"); ok {
		return ours + rest
	}
	return imported
}

// ours begins the import paths of this module's packages.
const ours = "./"

func (t *tree) dirs() []string {
	var dirs []string
	for dir := range t.pkgs {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	return dirs
}

// graph returns what the packages import, each once and sorted, by dir. Test
// files count only if tests is set, and then only they do.
func (t *tree) graph(tests bool) map[string][]string {
	g := map[string][]string{}
	for dir, p := range t.pkgs {
		var all []string
		for _, f := range p.files {
			if f.test == tests {
				all = append(all, f.imports...)
			}
		}
		slices.Sort(all)
		g[dir] = slices.Compact(all)
	}
	return g
}

// code calls f for each file that people wrote and that is no test.
func (t *tree) code(f func(*pkg, *file)) {
	for _, dir := range t.dirs() {
		for _, file := range t.pkgs[dir].files {
			if !file.test && !file.generated {
				f(t.pkgs[dir], file)
			}
		}
	}
}
