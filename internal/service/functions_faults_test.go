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
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/testdata"
	"github.com/millrace-data/millrace/internal/trainer"
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
		every    time.Duration
		servers  int64
	}{
		{func(path string) recipe { return faultyJob("deadly", python, path) }, slices.Repeat(functionSettings[:1], 4), 500 * time.Millisecond, 8}, // where blocks are read again for each step, deadly rows take minutes
		{func(path string) recipe { return functionsJob("python functions", "cleaning", python, path) }, functionSettings[:3], 100 * time.Millisecond, 40},
	} {
		r := pythonPath(t, job.of)
		if a := solve(t, dir, r); a.skips == 0 {
			t.Error("no record was bad")
		}
		ctx, stop := context.WithCancel(t.Context())
		var killing sync.WaitGroup
		k := killer{every: job.every, servers: job.servers}
		killing.Go(func() { k.run(ctx) })
		if testing.Short() {
			job.settings = job.settings[:1]
		}
		for _, values := range job.settings {
			check(t, dir, r, settingOf(values), k.step)
		}
		for range 100 { // one job can be over before the first kill
			if k.kills.Load() > 0 {
				break
			}
			check(t, dir, r, settingOf(job.settings[0]), k.step)
		}
		stop()
		killing.Wait()
		if t.Logf("%d processes were killed", k.kills.Load()); k.kills.Load() == 0 {
			t.Error("nothing was killed")
		}
	}
}

// killer ends a process below this one at random, again and again, by all signals in turn.
type killer struct {
	every   time.Duration
	servers int64 // after how many kills one is of a fork server, which takes seconds to come back on a busy machine
	kills   atomic.Int64
	since   atomic.Int64 // kills since the last step
}

// killsPerStep is how many processes are ended for each step at the most: on a machine that takes seconds to bring a worker back, ten
// kills a second would be the end of all workers before they have done anything, and no job could go on.
const killsPerStep = 5

func (k *killer) step(trainer.Step) { k.since.Store(0) }

func (k *killer) run(ctx context.Context) {
	rng := rand.New(rand.NewPCG(5, 5))
	tick := time.NewTicker(k.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if k.since.Load() >= killsPerStep {
			continue
		}
		servers := childrenOf(os.Getpid())
		var workers []int
		for _, server := range servers {
			workers = append(workers, childrenOf(server)...)
		}
		of := workers
		if k.kills.Load()%k.servers == k.servers-1 {
			of = servers
		}
		if len(of) == 0 {
			continue
		}
		signal := []unix.Signal{unix.SIGKILL, unix.SIGABRT, unix.SIGTERM, unix.SIGINT, unix.SIGHUP}[rng.IntN(5)]
		if unix.Kill(of[rng.IntN(len(of))], signal) == nil {
			k.kills.Add(1)
			k.since.Add(1)
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

// hangingJob is a job with a function that never returns at some rows.
func hangingJob(name, batch, policy, python, path string) recipe {
	return recipe{"hanging " + name, fmt.Sprintf(`sources:
  - name: hanging
    files: hanging/*.jsonl
    transforms: [{python: {function: "faulty:%s", interpreter: %q, path: %q, timeout: 1, batch_bytes: %s}}, tokenize: bytes]
    bad_records: %s
batch: {sequence_length: 128, sequences: 4}
`, name, python, path, batch, policy), 12, ""}
}

// TestPythonHangs: a function that hangs costs a few timeouts, not one for each row of its batch. The job stops with an error
// that names source, step, function, file and row, or leaves the row out and is the reference's at every step.
func TestPythonHangs(t *testing.T) {
	python, _ := testdata.Python(t)
	dir := writeSources(t)
	var rows strings.Builder
	at := 0 // of the row that hangs first, in bytes
	for id := range 300 {
		if id == 77 {
			at = rows.Len()
		}
		fmt.Fprintf(&rows, "{\"text\": \"row %d of a file with rows that are all alike\", \"id\": %d}\n", id, id)
	}
	if err := os.MkdirAll(filepath.Join(dir, "hanging"), 0o777); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "hanging", "a.jsonl"), rows.String())
	r := pythonPath(t, func(path string) recipe { return hangingJob("hangs", "100", "{policy: skip, limit: 1}", python, path) })
	if a := solve(t, dir, r); a.skips != 1 {
		t.Errorf("%d records were bad", a.skips)
	}
	check(t, dir, r, settingOf(functionSettings[0]))

	r = pythonPath(t, func(path string) recipe { return hangingJob("hangs_on", "1MiB", "stop", python, path) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	err := service.Run(ctx, settingOf(functionSettings[0]).options(t, dir, r), func(ctx context.Context, address string) error {
		return consume(ctx, address, client.Rank{})
	})
	for _, part := range []string{`source "hanging"`, "transforms[0].python faulty:hangs_on", "hanging/a.jsonl", fmt.Sprintf("byte %d: ", at), "it took longer than 1s"} {
		if err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), part) {
			t.Errorf("%v (%v), want %q", err, fault.ClassOf(err), part)
		}
	}
	if took := time.Since(began); took > patience/2 { // 223 rows hang
		t.Errorf("the error came after %v", took)
	}
}
