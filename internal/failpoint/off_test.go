//go:build !failpoint

package failpoint_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestNothingIsLeft compiles a function that passes sites, and one that does nothing:
// without the tag they are the same instructions.
func TestNothingIsLeft(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "passes")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./testdata/passes").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if passes, empty := instructions(t, binary, "main.passes"), instructions(t, binary, "main.empty"); passes != empty || empty == "" {
		t.Errorf("a function that passes sites is\n%s\nand an empty one is\n%s", passes, empty)
	}
	if data, err := os.ReadFile(binary); err != nil || strings.Contains(string(data), "MILLRACE_FAILPOINTS") {
		t.Errorf("the binary reads the environment (%v)", err)
	}
}

// instructions are those of a function, as bytes.
func instructions(t *testing.T, binary, name string) string {
	out, err := exec.CommandContext(t.Context(), "go", "tool", "objdump", "-s", "^"+name+"$", binary).Output()
	if err != nil {
		t.Fatal(err)
	}
	var code []string
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) > 3 && strings.HasPrefix(f[1], "0x") {
			code = append(code, strings.Join(f[2:], " "))
		}
	}
	return strings.Join(code, "\n")
}
