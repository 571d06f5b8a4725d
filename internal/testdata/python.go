package testdata

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Python returns an interpreter with NumPy and the folder of the Python client's modules, or skips the
// test: $MILLRACE_PYTHON, that of `make .venv/tested`, or the first on the path.
func Python(t testing.TB) (interpreter, client string) {
	t.Helper()
	name, root := python()
	if name == "" {
		t.Skip("no Python with NumPy: run make .venv/tested, or set MILLRACE_PYTHON")
	}
	return name, filepath.Join(root, "client", "python", "src")
}

var python = sync.OnceValues(func() (interpreter, root string) {
	root, ok := module()
	if !ok {
		return "", ""
	}
	for _, name := range []string{os.Getenv("MILLRACE_PYTHON"), filepath.Join(root, ".venv", "bin", "python"), "python3"} {
		if strings.Contains(name, "/") {
			name, _ = filepath.Abs(name)
		}
		if name != "" && exec.Command(name, "-c", "import numpy").Run() == nil {
			return name, root
		}
	}
	return "", root
})
