package sim_test

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/sim"
)

var (
	first   = flag.Uint64("seed", 1, "the first seed to run")
	seeds   = flag.Int("seeds", 0, "number of seeds to run; default 20, 8 with -short, or 1000 with MILLRACE_LONG")
	fresh   = flag.Bool("tokenless", false, "ranks that saved no state begin without a token, too")
	tight   = flag.Bool("tight", false, "constructors have room for one step only")
	long    = flag.Int64("steps", 0, "length of the runs, in which roles and ranks live then: to measure")
	onGRPC  = flag.Bool("grpc", false, "the calls of all seeds go over gRPC")
	verbose = flag.Bool("logs", false, "print what the roles log")
)

// failed are seeds that found something, and run each time.
var failed = []uint64{
	90, // the planner is lost in the instant in which a restart of all ranks moves the job
}

// TestSeeds runs the service under the faults of some seeds.
func TestSeeds(t *testing.T) {
	n, again := *seeds, []uint64(nil)
	if n == 0 {
		again = failed
		switch n = 20; {
		case os.Getenv("MILLRACE_LONG") != "":
			n = 1000
		case testing.Short(): // go test -race -short
			n = 8
		}
	}
	defer debug.SetGCPercent(debug.SetGCPercent(1600)) // a run is short, and leaves all that it made behind
	begin := time.Now()
	var total sim.Result
	var mu sync.Mutex
	var next atomic.Int64
	t.Run("all", func(t *testing.T) {
		for range min(n, 2*runtime.GOMAXPROCS(0)) { // a run has moments in which one of its goroutines can go on
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for i := next.Add(1); i <= int64(n+len(again)); i = next.Add(1) {
					seed := *first + uint64(i) - 1
					if i > int64(n) {
						seed = again[i-int64(n)-1]
					}
					res := run(t, seed)
					if res == nil {
						continue
					}
					if testing.Verbose() {
						t.Logf("seed %d: %+v", seed, *res)
					}
					mu.Lock()
					total.Steps += res.Steps
					total.Restarts += res.Restarts
					total.Resumes += res.Resumes
					total.Confused += res.Confused
					total.Took += res.Took
					total.Counts.Add(res.Counts)
					mu.Unlock()
				}
			})
		}
	})
	took := time.Since(begin)
	t.Logf("%d runs in %.1f s, %d steps, %.0f steps a second; %v of virtual time, %d roles restarted, %d jobs resumed, %d of them as the service asked for it; %+v",
		n+len(again), took.Seconds(), total.Steps, float64(total.Steps)/took.Seconds(), total.Took.Round(time.Second), total.Restarts, total.Resumes, total.Confused, total.Counts)
}

// run runs one seed in a bubble.
func run(t *testing.T, seed uint64) (res *sim.Result) {
	opts, err := sim.Options{Seed: seed, Tokenless: *fresh, Tight: *tight, GRPC: *onGRPC, Steps: *long}, error(nil)
	if *verbose {
		opts.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	defer func() {
		if problem := recover(); problem != nil { // goroutines that do not end
			err = fmt.Errorf("seed %d: %v", seed, problem)
		}
		if err != nil {
			t.Errorf("%v\ngo test ./internal/sim -run TestSeeds -seed %d -seeds 1 -logs", err, seed)
		}
	}()
	synctest.Test(t, func(t *testing.T) { res, err = sim.Run(t.Context(), opts) })
	return res
}
