package lint

import (
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
