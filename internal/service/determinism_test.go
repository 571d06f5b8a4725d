package service_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/sizing"
	"github.com/millrace-data/millrace/internal/telemetry"
	"github.com/millrace-data/millrace/internal/trainer"
	"github.com/millrace-data/millrace/jobspec"
)

// setting is a way to run a job. None may change a byte.
type setting struct {
	loaders, constructors int
	processes             bool
	procs                 int // GOMAXPROCS
	readAhead             int // of the clients: 0 = their default, negative = none
	resources
	log     bool // keep a step log
	shadows int  // loaders beside; hotShadow: one that reads along
	shown   bool // what roles do is asked all the time, or each process has its pages
	dealt   bool // a table says which loader reads which source, with how many workers and how much memory
	way     client.Way
	scaled  bool // loaders join and leave all the time
}

func (s setting) String() string {
	return fmt.Sprintf("loaders=%d constructors=%d processes=%v gomaxprocs=%d read_ahead=%d buffers=%d,%d prefetch=%d window=%d disk=%d shadows=%d shown=%v dealt=%v way=%s scaled=%v spill=%d python_workers=%d",
		s.loaders, s.constructors, s.processes, s.procs, s.readAhead, s.loaderBuffer, s.constructorBuffer, s.prefetch, s.window, s.loaderDisk, s.shadows, s.shown, s.dealt, s.way, s.scaled, s.spill, s.pythonWorkers)
}

// axes are the values of a setting. A buffer of one byte holds nothing that does
// not have to be held: every block comes from the local disk or, without one, is
// read again for every fetch, every step is assembled when the one before it is
// done.
var axes = []axis{
	{1, 2, 3},    // loaders
	{1, 2},       // constructors
	{0, 1},       // processes
	{1, 2},       // GOMAXPROCS
	{0, -1},      // read-ahead
	{0, 1, 20e3}, // loader buffer
	{0, 1, 40e3}, // constructor buffer
	{2, 1, 8},    // prefetch
	{20, 1, 500}, // window

	{0, noDisk, 4e3, brokenDisk}, // loader disk

	{0, 1, hotShadow}, // shadows
	{0, 1},            // telemetry
	{0, 1},            // dealt by a table
	{0, 1, 2},         // ways of delivery
	{0, 1},            // scaled
}

// ways are those in which batches come to ranks. On one machine all are possible.
var ways = []client.Way{client.WayShared, client.WayStream, client.WayCalls}

const hotShadow = -1

// settingOf is the setting of values in the order of the axes, and then of spill and Python workers, which only jobs with
// functions have a use for.
func settingOf(v []int) setting {
	v = append(slices.Clip(v), 0, 0, 0, 0, 0, 0)
	return setting{v[0], v[1], v[2] == 1, v[3], v[4], resources{v[5], v[6], v[7], v[8], v[9], v[15], v[16]}, false, v[10], v[11] == 1, v[12] == 1, ways[v[13]], v[14] == 1}
}

// TestDeterminism runs every recipe in many ways: whatever the way, the digest is
// the reference's at every step. In the fast lane every pair of values is tried
// once, each setting with one recipe; MILLRACE_LONG tries all settings so, and
// the pairs with every recipe. Under the race detector, which is there for goroutines and not
// for digests, one in eight settings, others each time, and every sixth recipe is tried.
func TestDeterminism(t *testing.T) {
	dir := writeSources(t)
	eighth := rand.IntN(8)
	for i, values := range pairwise(axes) {
		if testing.Short() && i%8 != eighth {
			continue
		}
		for k, r := range recipes {
			if long || k == i%len(recipes) {
				check(t, dir, r, settingOf(values))
			}
		}
	}
	if long {
		last := len(axes) - 6 // these go round beside the others, whose product takes 20 minutes
		for i, values := range product(axes[:last]) {
			values = append(values, axes[last][i%len(axes[last])], axes[last+1][i/len(axes[last])%len(axes[last+1])], axes[last+2][i/2%2], axes[last+3][i/7%3], axes[last+4][i/4%2], axes[last+5][i/3%2])
			check(t, dir, recipes[i%len(recipes)], settingOf(values))
		}
	}
	for i, r := range recipes {
		if testing.Short() && i%6 > 0 {
			continue
		}
		check(t, dir, r, settingOf([]int{2, 2, 0, 2, 0, 20e3, 0, 4, 20, 0, 0, 1, 0, 0, 1}))
	}
}

func check(t *testing.T, dir string, r recipe, s setting, onStep ...func(trainer.Step)) {
	t.Run(r.name+"/"+s.String(), func(t *testing.T) {
		want := solve(t, dir, r)
		gomaxprocs(t, s.procs)
		res := s.run(t, dir, r, func(step trainer.Step) {
			if step.Digest != want.digests[step.Step+1] {
				t.Errorf("digest step=%d %x, want %x", step.Step+1, step.Digest, want.digests[step.Step+1])
			}
			for _, f := range onStep {
				f(step)
			}
		})
		if res.Next != want.steps() || res.Ended != want.ended {
			t.Errorf("%d steps, ended %v; want %d, %v", res.Next, res.Ended, want.steps(), want.ended)
		}
	})
}

// gomaxprocs sets GOMAXPROCS here and in processes until the test ends.
func gomaxprocs(t *testing.T, n int) {
	if n == 0 {
		return
	}
	t.Setenv("GOMAXPROCS", strconv.Itoa(n))
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// patience bounds one run: ten times what the slowest takes on a busy machine.
const patience = time.Minute

// runTime bounds a run of the matrix, whatever else the machine does. One that hangs is ended by its ranks, 40 s after
// anything moved.
const runTime = 4 * patience

// run runs a recipe as the setting says.
func (s setting) run(t *testing.T, dir string, r recipe, onStep func(trainer.Step)) *trainer.Result {
	t.Helper()
	var res *trainer.Result
	s.serve(t, dir, r, func(ctx context.Context, address string) (err error) {
		res, err = trainer.Run(ctx, trainer.Options{
			Address: address, Job: parse(t, dir, r.text(s.resources)), Changes: r.changesOf(t), Steps: r.steps, Prefetch: s.readAhead, Way: s.way, OnStep: onStep,
		})
		return err
	})
	return res
}

// serve runs use against a service.
func (s setting) serve(t *testing.T, dir string, r recipe, use func(ctx context.Context, address string) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runTime)
	defer cancel()
	opts := s.options(t, dir, r)
	if s.shown && !s.processes {
		opts.Telemetry = telemetry.NewBoard(func(telemetry.Span) {}, 1)
		defer lookAt(opts.Telemetry)()
	}
	if err := service.Run(ctx, opts, use); err != nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatalf("the run took longer than %v", runTime)
	}
}

// lookAt asks all roles of a board again and again what they do, until end is called.
func lookAt(board *telemetry.Board) (end func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			for _, p := range board.Parts() {
				if p.Ready != nil {
					p.Ready()
				}
				if p.Metrics != nil { // a planner that waits for its log has none
					p.Metrics(func(telemetry.ID, float64, ...string) {})
				}
			}
			select {
			case <-done:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return func() { close(done); <-ended }
}

func (s setting) options(t testing.TB, dir string, r recipe) service.Options {
	t.Helper()
	text := r.text(s.resources)
	opts := service.Options{Job: parse(t, dir, text), Changes: r.changesOf(t), Loaders: s.loaders, Constructors: s.constructors, Registry: names, Functions: open}
	opts.Shadows, opts.HotShadows = max(s.shadows, -s.shadows), s.shadows == hotShadow
	if s.pythonWorkers > 0 {
		opts.Functions = openWith(pythonsOf(s.pythonWorkers))
	}
	if s.dealt {
		opts.Layout = layoutOf(opts.Job, s.loaders)
	}
	if s.scaled {
		opts.LogDir, opts.Scale = t.TempDir(), churning(s.loaders)
		dear(t, opts.Job, opts.LogDir)
	}
	if s.log {
		opts.LogDir = t.TempDir()
	}
	if s.loaderDisk == brokenDisk {
		opts.Scratch = filepath.Join(dir, "missing")
	}
	if s.processes {
		opts.Executable, opts.SpecFile = binary(t), filepath.Join(dir, "job.yaml")
		write(t, opts.SpecFile, text)
		if r.changes != "" {
			opts.ChangesFile = filepath.Join(dir, "changes.jsonl")
			write(t, opts.ChangesFile, r.changes)
		}
		opts.Stderr = os.Stderr
		if s.loaders == 2 { // in little memory, where buffers are made smaller
			opts.Memory = service.NewMemory(512<<20, opts.Roles(), slog.New(slog.DiscardHandler))
		}
		if s.shown {
			opts.TelemetryFlags = service.TelemetryFlags{Address: "127.0.0.1:0", Pprof: "127.0.0.1:0"}
		}
	}
	return opts
}

type axis []int

// product returns all settings.
func product(axes []axis) [][]int {
	all := [][]int{nil}
	for _, a := range axes {
		var next [][]int
		for _, head := range all {
			for _, v := range a {
				next = append(next, append(append([]int(nil), head...), v))
			}
		}
		all = next
	}
	return all
}

// pairwise returns few settings among which every pair of values of two axes occurs. Each begins with the first
// pair that none has yet, and takes on each other axis the value with the most new pairs, the first of equals.
func pairwise(axes []axis) (chosen [][]int) {
	type value struct{ axis, at int }
	seen := map[[2]value]bool{}
	pairOf := func(a, b value) [2]value {
		if a.axis > b.axis {
			a, b = b, a
		}
		return [2]value{a, b}
	}
	setting := func(first [2]value) {
		at := map[int]int{first[0].axis: first[0].at, first[1].axis: first[1].at}
		for i := range axes {
			if _, ok := at[i]; ok {
				continue
			}
			best, gain := 0, -1
			for v := range axes[i] {
				n := 0
				for j, other := range at {
					if !seen[pairOf(value{i, v}, value{j, other})] {
						n++
					}
				}
				if n > gain {
					best, gain = v, n
				}
			}
			at[i] = best
		}
		values := make([]int, len(axes))
		for i := range axes {
			values[i] = axes[i][at[i]]
			for j := range i {
				seen[pairOf(value{i, at[i]}, value{j, at[j]})] = true
			}
		}
		chosen = append(chosen, values)
	}
	for i := range axes {
		for j := range i {
			for v := range axes[i] {
				for w := range axes[j] {
					if pair := pairOf(value{i, v}, value{j, w}); !seen[pair] {
						setting(pair)
					}
				}
			}
		}
	}
	return chosen
}

// TestTopologies is G6: the same global batch on other meshes has the same digest.
func TestTopologies(t *testing.T) {
	dir := writeSources(t)
	base := recipes[0]
	want := solve(t, dir, base)
	for _, topology := range []string{
		"dp: 1", "dp: 2", "dp: 4", "dp: 2, cp: 2", "dp: 1, cp: 4", "dp: 1, pp: 2", "dp: 2, pp: 4, tp: 2", "dp: 1, cp: 2, pp: 2, tp: 2",
	} {
		if testing.Short() && topology != "dp: 2, cp: 2" {
			continue
		}
		t.Run(topology, func(t *testing.T) {
			r := recipe{topology, mixed + "\nbatch: {sequence_length: 512, sequences: 8, microbatch_size: 1}\ntopology: {" + topology + "}\n", base.steps, ""}
			res := setting{}.run(t, dir, r, nil)
			if res.Digest != want.digests[base.steps] {
				t.Errorf("digest step=%d %x, want %x", res.Next, res.Digest, want.digests[base.steps])
			}
		})
	}
}

// layoutOf deals sources to loaders as nobody would: the last source to all of them, the others in turn, with
// more workers and less memory from one to the next.
func layoutOf(job *jobspec.Job, loaders int) *sizing.Layout {
	l := &sizing.Layout{}
	names := service.SourceNames(job)
	for n := range loaders {
		x := sizing.Loader{Sources: names[len(names)-1:], Workers: 1 + n, Buffer: max(job.Resources.LoaderBuffer>>n, 1)}
		for i, name := range names[:len(names)-1] {
			if i%loaders == n {
				x.Sources = append(slices.Clone(x.Sources), name)
			}
		}
		l.Loaders = append(l.Loaders, x)
	}
	return l
}
