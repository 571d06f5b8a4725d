// Package testdata is what tests share about the files that they read: it finds the optional
// folder of real data, which is not part of the repository, and a Python, and plays transcripts of pure cores.
package testdata

import (
	"os"
	"path/filepath"
	"testing"
)

// Env names the environment variable that points at the data folder.
const Env = "MILLRACE_DATA"

// Find returns the data folder and whether it exists: $MILLRACE_DATA, else
// shared/data next to the repository (the folder that holds go.mod).
func Find() (string, bool) {
	if dir := os.Getenv(Env); dir != "" {
		return dir, isDir(dir)
	}
	root, ok := module()
	if !ok {
		return "", false
	}
	data := filepath.Join(filepath.Dir(root), "shared", "data")
	return data, isDir(data)
}

// module returns the folder of the repository, which has go.mod.
func module() (string, bool) {
	dir, err := os.Getwd()
	if err != nil {
		return "", false
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}
		dir = parent
	}
}

// Dir returns the data folder, or skips the test with instructions.
func Dir(t testing.TB) string {
	t.Helper()
	dir, ok := Find()
	if !ok {
		t.Skipf("the shared data set is not here: set %s to its folder to run this test", Env)
	}
	return dir
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
