//go:build !failpoint

package failpoint_test

import (
	"bytes"
	"debug/elf"
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
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./testdata/passes")
	build.Env = append(os.Environ(), "GOOS=linux")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if passes, empty := code(t, binary, "main.passes"), code(t, binary, "main.empty"); !bytes.Equal(passes, empty) {
		t.Errorf("a function that passes sites is\n%x\nand an empty one is\n%x", passes, empty)
	}
	if data, err := os.ReadFile(binary); err != nil || strings.Contains(string(data), "MILLRACE_FAILPOINTS") {
		t.Errorf("the binary reads the environment (%v)", err)
	}
}

// code is what a function was compiled to.
func code(t *testing.T, binary, name string) []byte {
	file, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Name == name && s.Size > 0 {
			text := file.Sections[s.Section]
			instructions := make([]byte, s.Size)
			if _, err := text.ReadAt(instructions, int64(s.Value-text.Addr)); err != nil {
				t.Fatal(err)
			}
			return instructions
		}
	}
	t.Fatalf("%s has no function %s", binary, name)
	return nil
}
