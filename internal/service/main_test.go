package service_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// long says whether to run the full products, not the reduced sets; -short, with which the race
// detector runs before a change lands, thins these once more.
var long = os.Getenv("MILLRACE_LONG") != ""

// waitAtOnce is how many of the tests that are parallel run at a time: they wait for deadlines, and
// use little of a core.
const waitAtOnce = 6

// TestMain looks for goroutines that outlive the services of the tests.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(max(waitAtOnce, runtime.GOMAXPROCS(0)))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := makeDir(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv("MILLRACE_KEY_DIR", filepath.Join(folder, "keys")) // of services that are killed, keys stay
	code := m.Run()
	closeFunctions()
	if left := leaked(); left != "" && code == 0 {
		fmt.Fprintf(os.Stderr, "goroutines are left after all tests:\n%s\n", left)
		code = 1
	}
	if folder != "" {
		os.RemoveAll(folder)
	}
	os.Exit(code)
}

// leaked waits until no goroutine of this module or of its libraries is left
// but the caller's, and returns the stacks of those that do not go.
// The Python workers that the tests share until their end do not count: the package of workers looks
// for what they leave.
func leaked() string {
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		left := goroutines()
		if len(left) == 0 || time.Now().After(deadline) {
			return strings.Join(left, "\n\n")
		}
	}
}

func goroutines() []string {
	buf := make([]byte, 4<<20)
	all := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	var left []string
	for _, g := range all[1:] { // the first is the caller's
		if strings.Contains(g, "testing.(*T).Run") || strings.Contains(g, "testing.(*M).Run") || strings.Contains(g, "millrace/internal/worker.") {
			continue
		}
		if strings.Contains(g, "millrace") || strings.Contains(g, "grpc") || strings.Contains(g, "pebble") {
			left = append(left, g)
		}
	}
	return left
}

var (
	folder  string // of the binaries
	makeDir = sync.OnceValue(func() (err error) {
		folder, err = os.MkdirTemp("", "millrace-test-*")
		return err
	})
	// programs are millrace itself, and millrace with a strategy of a user's own.
	programs = map[string]func(t testing.TB) string{"millrace": built("../../cmd/millrace"), "mine": built("./testdata/mine")}
)

// built builds a program once, and returns its path.
func built(source string) func(t testing.TB) string {
	build := sync.OnceValues(func() (string, error) {
		if err := makeDir(); err != nil {
			return "", err
		}
		path := filepath.Join(folder, filepath.Base(source))
		out, err := exec.Command("go", "build", "-ldflags=-w", "-o", path, source).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("building %s: %w\n%s", source, err, out)
		}
		return path, nil
	})
	return func(t testing.TB) string {
		t.Helper()
		if testing.Short() { // go test -race -short
			t.Skip("roles that are processes are tested without -short: the race detector does not see into them")
		}
		path, err := build()
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
}

// binary returns the path of a binary that is millrace and has the strategies that
// the jobs of the tests name.
func binary(t testing.TB) string {
	t.Helper()
	return programs["mine"](t)
}
