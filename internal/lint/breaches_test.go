package lint

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// matches reports whether an import is what a rule's name means.
func matches(name, imported string) bool {
	switch name {
	case "*":
		return true
	case "std":
		first, _, _ := strings.Cut(imported, "/")
		return !strings.Contains(first, ".")
	}
	if below, ok := strings.CutSuffix(name, "..."); ok {
		return strings.HasPrefix(imported, below) || imported == strings.TrimSuffix(below, "/")
	}
	return name == imported
}

func anyMatches(names []string, imported string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return matches(name, imported) })
}

// breaches returns how the graph breaks the rule, as text.
func (r *rule) breaches(g map[string][]string) []string {
	var found []string
	for dir := range g {
		from := ours + dir
		if !anyMatches(r.of, from) {
			continue
		}
		seen := map[string]bool{dir: true}
		r.walk(g, dir, []string{from}, seen, &found)
	}
	slices.Sort(found)
	return found
}

// walk looks at what dir imports and, unless the rule is about direct imports,
// at what its packages of this module import in turn.
func (r *rule) walk(g map[string][]string, dir string, way []string, seen map[string]bool, found *[]string) {
	for _, imported := range g[dir] {
		if anyMatches(r.never, imported) && !anyMatches(r.except, imported) && !anyMatches(exemptions(r, way), imported) && imported != way[0] {
			*found = append(*found, strings.Join(append(slices.Clone(way), imported), " imports "))
			continue
		}
		below, mine := strings.CutPrefix(imported, ours)
		if mine && !r.direct && !seen[below] {
			seen[below] = true
			r.walk(g, below, append(slices.Clone(way), imported), seen, found)
		}
	}
}

// exemptions are those of the package at the beginning of a way, for rules about
// everyone.
func exemptions(r *rule, way []string) []string {
	if !slices.Contains(r.of, "./...") {
		return nil
	}
	return exempt[way[0]]
}

func TestImports(t *testing.T) {
	g := load(t).graph(false)
	for i := range rules {
		for _, b := range rules[i].breaches(g) {
			t.Errorf("%s\n\t%s", b, rules[i].why)
		}
	}
}

// TestRulesCanBreak adds to each package that a rule is about an import of each
// thing that it forbids: a rule that does not notice guards nothing. It also
// finds rules about folders that are gone.
func TestRulesCanBreak(t *testing.T) {
	g := load(t).graph(false)
	for i := range rules {
		r := &rules[i]
		for _, of := range r.of {
			about := false
			for dir := range g {
				about = about || matches(of, ours+dir)
			}
			if !about {
				t.Errorf("a rule is about %s, which is not there: %s", of, r.why)
			}
		}
		for _, never := range r.never {
			imported := strings.NewReplacer("*", "example.org/x", "...", "x").Replace(never)
			if !r.noticed(g, imported) {
				t.Errorf("an import of %s is not noticed by the rule: %s", imported, r.why)
			}
		}
	}
}

// noticed adds an import to a package that the rule is about, and through
// another package of the module, and reports whether the rule sees them.
func (r *rule) noticed(g map[string][]string, imported string) bool {
	for dir := range g {
		if !anyMatches(r.of, ours+dir) || len(exemptions(r, []string{ours + dir})) > 0 || ours+dir == imported {
			continue
		}
		direct := map[string][]string{dir: {imported}}
		if len(r.breaches(direct)) != 1 {
			return false
		}
		if r.direct || anyMatches(r.never, "./go-between") {
			continue
		}
		through := map[string][]string{dir: {"./go-between"}, "go-between": {imported}}
		if !slices.ContainsFunc(r.breaches(through), func(b string) bool {
			return b == fmt.Sprintf("./%s imports ./go-between imports %s", dir, imported)
		}) {
			return false
		}
	}
	return true
}

// TestExemptionsAreUsed finds exemptions that nothing needs any more.
func TestExemptionsAreUsed(t *testing.T) {
	g := load(t).graph(false)
	for from, allowed := range exempt {
		for _, imported := range allowed {
			if !slices.Contains(g[strings.TrimPrefix(from, ours)], imported) {
				t.Errorf("%s is exempt for %s, which it does not import", from, imported)
			}
		}
	}
}

// TestTestsStayNear checks what tests of packages import: roles and wiring they
// may, to show a thing at work, but no command.
func TestTestsStayNear(t *testing.T) {
	g := load(t).graph(true)
	for dir, imports := range g {
		if anyMatches([]string{"./cmd/...", "./internal/cli", "./bench/..."}, ours+dir) {
			continue
		}
		for _, imported := range imports {
			if anyMatches([]string{"./cmd/...", "./internal/cli", "./bench/..."}, imported) {
				t.Errorf("a test of ./%s imports %s: a test of a package needs no command", dir, imported)
			}
		}
	}
}
