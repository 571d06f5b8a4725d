package lint

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

// TestPackageComments checks that each package says what it is, in one file.
func TestPackageComments(t *testing.T) {
	tree := load(t)
	for _, dir := range tree.dirs() {
		p := tree.pkgs[dir]
		var said []string
		for _, f := range p.files {
			if f.test || f.ast.Doc == nil {
				continue
			}
			said = append(said, f.path)
			want := "Package " + p.name + " "
			if p.name == "main" {
				want = "Command "
			}
			if !f.generated && !strings.HasPrefix(f.ast.Doc.Text(), want) {
				t.Errorf("%s: its package comment does not begin with %q", f.path, want)
			}
		}
		if len(said) != 1 && p.name != "" && !allGenerated(p) {
			t.Errorf("package %s has %d package comments %v, want one", dir, len(said), said)
		}
	}
}

func allGenerated(p *pkg) bool {
	for _, f := range p.files {
		if !f.generated && !f.test {
			return false
		}
	}
	return true
}

// withoutExample are the packages that have no example that runs, and why.
var withoutExample = map[string]string{
	"bench":                                   "a command; docs/benchmarks.md shows it",
	"cmd/millrace":                            "a command; the README shows it",
	"internal/lint":                           "tests only",
	"internal/testdata":                       "a helper of tests",
	"internal/faultproxy":                     "a helper of tests",
	"internal/proto":                          "generated",
	"internal/proto/state":                    "generated",
	"internal/checkpoint/logtest":             "a conformance suite; each log's test is an example",
	"internal/object/objecttest":              "a conformance suite; each store's test is an example",
	"bench/killmatrix":                        "a command; docs/failures.md shows it",
	"bench/streaming":                         "a command; docs/engine.md shows it",
	"bench/stalls":                            "a command; docs/failures.md shows it",
	"internal/sourceloader/format/formattest": "a conformance suite; each format's test is an example",
	"internal/sourceloader/store/storetest":   "a conformance suite; each store's test is an example",
}

func TestExamples(t *testing.T) {
	tree := load(t)
	for _, dir := range tree.dirs() {
		checked := 0
		for _, f := range tree.pkgs[dir].files {
			if f.test {
				checked += examples(t, f)
			}
		}
		why, listed := withoutExample[dir]
		switch {
		case checked == 0 && !listed:
			t.Errorf("package %s has no example that runs; write one of about ten lines in example_test.go", dir)
		case checked > 0 && listed:
			t.Errorf("package %s has an example: take it out of the list (%s)", dir, why)
		}
	}
	for dir := range withoutExample {
		if tree.pkgs[dir] == nil {
			t.Errorf("package %s is gone: take it out of the list", dir)
		}
	}
}

// examples counts the examples of a file whose output is checked.
func examples(t *testing.T, f *file) int {
	n := 0
	for _, decl := range f.ast.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Example") {
			continue
		}
		runs := false
		for _, c := range f.ast.Comments {
			if c.Pos() > fn.Body.Lbrace && c.End() < fn.Body.Rbrace {
				text := strings.ToLower(c.Text())
				runs = runs || strings.HasPrefix(text, "output:") || strings.HasPrefix(text, "unordered output:")
			}
		}
		if !runs {
			t.Errorf("%s: %s has no output to check, so it never runs", f.path, fn.Name.Name)
			continue
		}
		n++
	}
	return n
}

var unfinished = regexp.MustCompile(`\b(TODO|FIXME|XXX)\b`)

// TestNothingUnfinished forbids notes to oneself: what is missing is an issue,
// and what is there works.
func TestNothingUnfinished(t *testing.T) {
	tree := load(t)
	for _, dir := range tree.dirs() {
		for _, f := range tree.pkgs[dir].files {
			if f.generated {
				continue
			}
			for _, group := range f.ast.Comments {
				if found := unfinished.FindString(group.Text()); found != "" {
					t.Errorf("%s:%d: a comment says %s", f.path, tree.fset.Position(group.Pos()).Line, found)
				}
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok && unfinished.MatchString(sel.Sel.Name) {
					t.Errorf("%s:%d: calls %s", f.path, tree.fset.Position(n.Pos()).Line, sel.Sel.Name)
				}
				return true
			})
		}
	}
}

var failedTo = regexp.MustCompile(`(?i)\b(failed|unable|could not|cannot) to\b`)

// TestErrorsSayWhatWasDone forbids the words that say nothing: an error names
// the operation in progress.
func TestErrorsSayWhatWasDone(t *testing.T) {
	makers := map[string]bool{"Errorf": true, "Userf": true, "Lostf": true, "New": true}
	tree := load(t)
	tree.code(func(p *pkg, f *file) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			text, isText := call.Args[0].(*ast.BasicLit)
			if ok && isText && makers[sel.Sel.Name] && failedTo.MatchString(text.Value) {
				t.Errorf("%s:%d: the message %s; name what was being done", f.path, tree.fset.Position(n.Pos()).Line, text.Value)
			}
			return true
		})
	})
}
