package service_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/testdata"
)

// faultyJob is a job with one function of testdata/functions/faulty.py.
func faultyJob(name, python, path string) recipe {
	return recipe{"faulty " + name, fmt.Sprintf(`sources:
  - name: faulty
    files: jsonl/*.jsonl
    chunk_bytes: 2000
    transforms: [{python: {function: "faulty:%s", interpreter: %q, path: %q, memory: 160MiB}}, tokenize: bytes]
    bad_records: {policy: skip, limit: 1000}
batch: {sequence_length: 128, sequences: 4}
topology: {dp: 2}
`, name, python, path), 12, ""}
}

// TestPythonKills: workers and fork servers are ended at random, by all signals that operators and kernels send, while rows
// end others by themselves. The batches are those of a quiet run of the reference reader.
func TestPythonKills(t *testing.T) {
	python, _ := testdata.Python(t)
	dir := writeSources(t)
	for _, job := range []struct {
		of       func(string) recipe
		settings [][]int
	}{
		{func(path string) recipe { return faultyJob("deadly", python, path) }, slices.Repeat(functionSettings[:1], 4)}, // where blocks are read again for each step, deadly rows take minutes
		{func(path string) recipe { return functionsJob("python functions", "cleaning", python, path) }, functionSettings[:3]},
	} {
		r := pythonPath(t, job.of)
		if a := solve(t, dir, r); a.skips == 0 {
			t.Error("no record was bad")
		}
		ctx, stop := context.WithCancel(t.Context())
		var killer sync.WaitGroup
		kills := 0
		killer.Go(func() { kills = killAtRandom(ctx) })
		for _, values := range job.settings {
			check(t, dir, r, settingOf(values))
		}
		stop()
		killer.Wait()
		if kills == 0 {
			t.Error("nothing was killed")
		}
	}
}

// killAtRandom ends a process below this one twice a second.
func killAtRandom(ctx context.Context) (kills int) {
	rng := rand.New(rand.NewPCG(5, 5))
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return kills
		case <-tick.C:
		}
		servers := childrenOf(os.Getpid())
		var workers []int
		for _, server := range servers {
			workers = append(workers, childrenOf(server)...)
		}
		of := workers
		if kills%8 == 7 {
			of = servers
		}
		if len(of) == 0 {
			continue
		}
		signal := []unix.Signal{unix.SIGKILL, unix.SIGABRT, unix.SIGTERM, unix.SIGINT, unix.SIGHUP}[rng.IntN(5)]
		if unix.Kill(of[rng.IntN(len(of))], signal) == nil {
			kills++
		}
	}
}

// childrenOf are the processes that a process started.
func childrenOf(pid int) (pids []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// TestPythonErrors: what a function does that no record is to blame for ends the job with an error that names
// source, step, function, file and rows.
func TestPythonErrors(t *testing.T) {
	python, _ := testdata.Python(t)
	dir := writeSources(t)
	for name, says := range map[string]string{
		"fewer":   "column text has",
		"garbage": "its worker wrote garbage",
		"killed":  "workers in a row were lost, the last one: its worker ended by signal 9",
	} {
		r := pythonPath(t, func(path string) recipe { return faultyJob(name, python, path) })
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := service.Run(ctx, settingOf(functionSettings[0]).options(t, dir, r), func(ctx context.Context, address string) error {
			return consume(ctx, address, client.Rank{})
		})
		cancel()
		for _, part := range []string{`source "faulty"`, "transforms[0].python", "faulty:" + name, ".jsonl", " row", says} {
			if err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), part) { // a rank hears that the job has failed
				t.Errorf("%s: %v (%v), want %q", name, err, fault.ClassOf(err), part)
			}
		}
	}
}
