package lint

import (
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// public are the packages that other programs may import. Everything else lies under
// internal, or is a command.
var public = []string{
	".", "balance", "client", "jobspec",
	"planner/cost", "planner/dgraph", "planner/feedback", "planner/mesh", "planner/strategy",
}

// TestImportable finds packages that other programs can import and should not.
func TestImportable(t *testing.T) {
	tree := load(t)
	for _, dir := range tree.dirs() {
		internal := slices.Contains(strings.Split(dir, "/"), "internal")
		if !internal && tree.pkgs[dir].name != "main" && !slices.Contains(public, dir) {
			t.Errorf("package %s can be imported by other programs: move it under internal", dir)
		}
	}
	for _, dir := range public {
		if tree.pkgs[dir] == nil {
			t.Errorf("package %s is gone: take it out of the list", dir)
		}
	}
}

// TestPublicTypes finds types in the API of public packages that other programs cannot
// name: those of internal packages without an alias in a public one.
func TestPublicTypes(t *testing.T) {
	a := api{named: map[types.Type]bool{}, seen: map[types.Type]bool{}, found: map[string]bool{}}
	packages := typed(t)
	names := 0
	for _, p := range packages {
		for _, name := range p.Scope().Names() {
			o := p.Scope().Lookup(name)
			if !o.Exported() {
				continue
			}
			names++
			if _, ok := o.(*types.TypeName); ok {
				a.named[types.Unalias(o.Type())] = true
			}
		}
	}
	for _, p := range packages {
		for _, name := range p.Scope().Names() {
			if o := p.Scope().Lookup(name); o.Exported() {
				a.walk(o.Type(), p.Path()+"."+name)
			}
		}
	}
	t.Logf("%d public packages export %d names", len(packages), names)
	if len(a.seen) < 50 {
		t.Errorf("%d types were looked at, which is not all", len(a.seen))
	}
	for text := range a.found {
		t.Error(text)
	}
}

// typed are the public packages, from the compiler's export data.
func typed(t *testing.T) []*types.Package {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}
	for _, dir := range public {
		args = append(args, ours+dir)
	}
	list := exec.CommandContext(t.Context(), "go", args...)
	list.Dir, list.Stderr = "../..", os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	from := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
	var packages []*types.Package
	for _, dir := range public {
		p, err := from.Import(strings.TrimSuffix(module+"/"+dir, "/."))
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	return packages
}

// api walks what other programs see of types.
type api struct {
	named map[types.Type]bool // types that public packages name
	seen  map[types.Type]bool
	found map[string]bool
}

// walk looks at a type and all it shows, used by an exported name.
func (a *api) walk(t types.Type, by string) {
	t = types.Unalias(t)
	if a.seen[t] {
		return
	}
	a.seen[t] = true
	switch t := t.(type) {
	case *types.Named:
		a.namedType(t, by)
	case *types.Pointer:
		a.walk(t.Elem(), by)
	case *types.Slice:
		a.walk(t.Elem(), by)
	case *types.Array:
		a.walk(t.Elem(), by)
	case *types.Chan:
		a.walk(t.Elem(), by)
	case *types.Map:
		a.walk(t.Key(), by)
		a.walk(t.Elem(), by)
	case *types.Signature:
		for v := range t.Params().Variables() {
			a.walk(v.Type(), by)
		}
		for v := range t.Results().Variables() {
			a.walk(v.Type(), by)
		}
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() {
				a.walk(f.Type(), by+"."+f.Name())
			}
		}
	case *types.Interface:
		for m := range t.Methods() {
			if m.Exported() {
				a.walk(m.Type(), by+"."+m.Name())
			}
		}
	}
}

func (a *api) namedType(t *types.Named, by string) {
	p := t.Obj().Pkg()
	if p == nil || !strings.HasPrefix(p.Path(), module) {
		return // of the language, or of other modules
	}
	if strings.Contains(p.Path(), "/internal/") && !a.named[types.Type(t.Origin())] {
		a.found[fmt.Sprintf("%s shows %s, which other programs cannot name: give it an alias in a public package", by, t)] = true
		return
	}
	for m := range t.Methods() {
		if m.Exported() {
			a.walk(m.Type(), by+"."+m.Name())
		}
	}
	for arg := range t.TypeArgs().Types() {
		a.walk(arg, by)
	}
	if t.Obj().Exported() {
		a.walk(t.Underlying(), by)
	}
}
