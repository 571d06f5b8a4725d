package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

const (
	maxFileLines     = 500 // one sitting's reading
	maxFunctionLines = 70  // one screen, with its neighbours' edges
)

// ratchet lists what is over a limit, with its size and the reason. A size may
// only go down: when it does, the number here follows; at the limit the line
// goes. Generated code does not count.
var ratchet = map[string]struct {
	lines int
	why   string
}{}

func TestSizes(t *testing.T) {
	tree := load(t)
	over := map[string]int{}
	for _, dir := range tree.dirs() {
		for _, f := range tree.pkgs[dir].files {
			if f.generated {
				continue
			}
			if f.lines > maxFileLines {
				over[f.path] = f.lines
			}
			for _, decl := range f.ast.Decls {
				fn, ok := decl.(*ast.FuncDecl)
				if !ok || f.test { // a test is read once, from top to bottom
					continue
				}
				lines := tree.fset.Position(fn.End()).Line - tree.fset.Position(fn.Pos()).Line + 1
				if lines > maxFunctionLines {
					over[f.path+":"+nameOf(fn)] = lines
				}
			}
		}
	}
	for what, lines := range over {
		known, ok := ratchet[what]
		switch {
		case !ok:
			t.Errorf("%s has %d lines: files may have %d, functions %d; divide it where a reader would, or list it in the ratchet with a reason",
				what, lines, maxFileLines, maxFunctionLines)
		case lines > known.lines:
			t.Errorf("%s grew from %d to %d lines; divide it", what, known.lines, lines)
		case lines < known.lines:
			t.Errorf("%s shrank from %d to %d lines: set the ratchet to that", what, known.lines, lines)
		}
	}
	for what, known := range ratchet {
		if _, ok := over[what]; !ok {
			t.Errorf("%s is within the limit or gone: take it out of the ratchet", what)
		}
		if known.why == "" {
			t.Errorf("%s has no reason in the ratchet", what)
		}
	}
}

// maxShellLines is what the shell of the planner, the package internal/planner itself, may have: all that happens in it
// at the same time has to be in one reader's head.
const maxShellLines = 1500

// TestShell keeps what is a function of values out of the shell of the planner.
func TestShell(t *testing.T) {
	lines := 0
	load(t).code(func(p *pkg, f *file) {
		if p.dir == "internal/planner" {
			lines += f.lines
		}
	})
	switch {
	case lines == 0:
		t.Error("internal/planner is not there: let the test look where the shell of the planner is")
	case lines > maxShellLines:
		t.Errorf("the shell of the planner, internal/planner without tests, has %d lines, and may have %d: move what needs no stream, timer or inbox "+
			"to a package below it: decisions to control, messages to wire, words and the page to status", lines, maxShellLines)
	}
}

func nameOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	kind := fn.Recv.List[0].Type
	if star, ok := kind.(*ast.StarExpr); ok {
		kind = star.X
	}
	if index, ok := kind.(*ast.IndexExpr); ok {
		kind = index.X
	}
	return fmt.Sprint(kind) + "." + fn.Name.Name
}

// TestNoInit forbids what happens because of an import: registration by init
// hides from the reader what a program is made of.
func TestNoInit(t *testing.T) {
	allowed := map[string]string{
		"embed":                                 "go:embed of a string or bytes asks for it",
		"google.golang.org/grpc/encoding/proto": "gRPC's own codec, which ours wraps",
	}
	load(t).code(func(p *pkg, f *file) {
		for _, decl := range f.ast.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s has an init function; make it a plain table or a call in main", f.path)
			}
		}
		for i, spec := range f.ast.Imports {
			if spec.Name == nil {
				continue
			}
			if _, ok := allowed[f.imports[i]]; spec.Name.Name == "_" && !ok {
				t.Errorf("%s imports %s for its effects only", f.path, f.imports[i])
			}
			if spec.Name.Name == "." {
				t.Errorf("%s imports all names of %s", f.path, f.imports[i])
			}
		}
	})
}

// TestPackageNames forbids drawers for everything.
func TestPackageNames(t *testing.T) {
	drawers := []string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "base", "lib", "core", "types", "models", "tools"}
	for _, dir := range load(t).dirs() {
		for part := range strings.SplitSeq(dir, "/") {
			if slices.Contains(drawers, part) || strings.HasSuffix(part, "util") || strings.HasSuffix(part, "utils") {
				t.Errorf("%s: %q says nothing; name a package for a noun of the domain, or leave a helper with its only caller", dir, part)
			}
		}
	}
}

// pure are packages in which nothing happens at the same time: what they compute is a
// function of what they are given.
var pure = []string{
	"balance", "internal/constructor/assemble", "internal/expr", "internal/planner/change", "planner/cost", "planner/dgraph", "planner/feedback",
	"internal/planner/mix", "planner/mesh", "internal/planner/plan", "planner/strategy", "internal/planner/compile",
	"internal/planner/control", "internal/planner/cut", "internal/planner/token", "internal/planner/wire", "internal/engine/schedule", "internal/engine/simulate", "internal/engine/solve",
	"internal/sizing", "internal/placement",
}

// TestPureStartNothing forbids goroutines, channels and selects in pure packages.
func TestPureStartNothing(t *testing.T) {
	tree := load(t)
	for _, dir := range pure {
		if tree.pkgs[dir] == nil {
			t.Errorf("%s is not there: take it out of the list", dir)
		}
	}
	tree.code(func(p *pkg, f *file) {
		if !slices.Contains(pure, p.dir) {
			return
		}
		for _, at := range concurrent(f.ast) {
			line := tree.fset.Position(at).Line
			t.Errorf("%s:%d: the package is pure: have its caller decide what happens at the same time, and give it a function", f.path, line)
		}
	})
}

// concurrent returns where a file starts or waits for what happens at the same time.
func concurrent(f *ast.File) (at []token.Pos) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.GoStmt, *ast.SendStmt, *ast.SelectStmt, *ast.ChanType:
			at = append(at, n.Pos())
		}
		return true
	})
	return at
}

// TestConcurrentIsFound makes sure that the rule can break.
func TestConcurrentIsFound(t *testing.T) {
	for _, body := range []string{"go f()", "var c chan int; _ = c", "c <- 1", "select {}"} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x; func f() { "+body+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(concurrent(file)) == 0 {
			t.Errorf("%q is not found", body)
		}
	}
}

// TestSpecIsParsedByThePlanner forbids roles other than the planner to read job specs: what
// they have to know of one is compiled for them, so that all go by the same reading.
func TestSpecIsParsedByThePlanner(t *testing.T) {
	readers := []string{"Parse", "ParseSource", "Load", "Lint"}
	load(t).code(func(p *pkg, f *file) {
		if !strings.HasPrefix(p.dir, "internal/sourceloader") && !strings.HasPrefix(p.dir, "internal/constructor") {
			return
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains(readers, s.Sel.Name) {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "jobspec" {
					t.Errorf("%s calls jobspec.%s: what a role has to know of the job comes in messages of planner/compile", f.path, s.Sel.Name)
				}
			}
			return true
		})
	})
}
