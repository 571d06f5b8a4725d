package lint

import (
	"go/ast"
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/failpoint"
)

// TestSites compares the sites at which roles pass a failpoint with the list that the kill
// matrix goes through: each is passed somewhere, in the code of its role, and each that is
// passed is listed.
func TestSites(t *testing.T) {
	names := declaredSites(t)
	listed := map[string]failpoint.Info{}
	for _, s := range failpoint.Sites {
		listed[string(s.Site)] = s
	}
	folders := map[failpoint.Role][]string{
		failpoint.Planner: {"internal/planner", "internal/checkpoint"}, failpoint.Loader: {"internal/sourceloader"},
		failpoint.Constructor: {"internal/constructor"},
	}
	passed := map[string]bool{}
	load(t).code(func(p *pkg, f *file) {
		for _, site := range sitesPassed(f.ast) {
			info, ok := listed[names[site]]
			if !ok {
				t.Errorf("%s passes failpoint.%s, which failpoint.Sites does not list", f.path, site)
				continue
			}
			passed[names[site]] = true
			if !slices.ContainsFunc(folders[info.Role], func(d string) bool { return strings.HasPrefix(p.dir, d) }) {
				t.Errorf("%s passes %s, which is a site of the %s", f.path, info.Site, info.Role)
			}
		}
	})
	for _, site := range slices.Sorted(maps.Keys(listed)) {
		if !passed[site] {
			t.Errorf("nothing passes the failpoint %s: take it out of failpoint.Sites", site)
		}
	}
	if len(listed) < 16 || len(names) != len(listed) {
		t.Errorf("%d sites are declared and %d listed; 16 are wanted", len(names), len(listed))
	}
}

// declaredSites are the constants of package failpoint, by their names.
func declaredSites(t *testing.T) map[string]string {
	names := map[string]string{}
	for _, f := range load(t).pkgs["internal/failpoint"].files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok || v.Type == nil || types.ExprString(v.Type) != "Site" {
				return true
			}
			for i, name := range v.Names {
				names[name.Name] = strings.Trim(types.ExprString(v.Values[i]), `"`)
			}
			return true
		})
	}
	return names
}

// sitesPassed are the names of the sites that a file passes.
func sitesPassed(f *ast.File) (names []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 1 {
			return true
		}
		fn := types.ExprString(call.Fun)
		if fn == "failpoint.Hit" || fn == "failpoint.Error" || fn == "failpoint.Tear" {
			names = append(names, strings.TrimPrefix(types.ExprString(call.Args[0]), "failpoint."))
		}
		return true
	})
	return names
}
