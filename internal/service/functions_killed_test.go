package service_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/testdata"
)

// TestPythonKilled: a job whose Python workers are killed, one every 100 ms, is the reference's.
func TestPythonKilled(t *testing.T) {
	python, _ := testdata.Python(t)
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("workers are found in /proc")
	}
	dir := writeSources(t)
	r := pythonPath(t, func(path string) recipe { return functionsJob("python functions", "cleaning", python, path) })
	solve(t, dir, r) // its workers are started, and stay
	stop, over := make(chan bool), make(chan int)
	go func() {
		killed := 0
		for {
			select {
			case <-stop:
				over <- killed
				return
			case <-time.After(100 * time.Millisecond):
			}
			if workers := grandchildren(os.Getpid()); len(workers) > 0 && syscall.Kill(workers[killed%len(workers)], syscall.SIGKILL) == nil {
				killed++
			}
		}
	}()
	for _, values := range functionSettings[:3] {
		check(t, dir, r, settingOf(values))
	}
	close(stop)
	if killed := <-over; killed == 0 {
		t.Error("no worker was killed")
	} else {
		t.Logf("%d workers were killed", killed)
	}
}

// grandchildren are the processes that children of a process started: workers, of which a server is the parent.
func grandchildren(pid int) (found []int) {
	parents := map[int]int{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		var id, parent int
		var state string
		if _, err := fmt.Sscan(filepath.Base(filepath.Dir(file)), &id); err != nil {
			continue
		}
		if _, rest, ok := strings.Cut(string(text), ") "); ok {
			if _, err := fmt.Sscan(rest, &state, &parent); err == nil {
				parents[id] = parent
			}
		}
	}
	for id, parent := range parents {
		if parents[parent] == pid {
			found = append(found, id)
		}
	}
	return found
}
