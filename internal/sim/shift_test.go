package sim_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/internal/constructor"
	"github.com/millrace-data/millrace/internal/fleet"
	"github.com/millrace-data/millrace/internal/planner"
	"github.com/millrace-data/millrace/internal/planner/scaling"
	"github.com/millrace-data/millrace/internal/reference"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/sim"
	"github.com/millrace-data/millrace/internal/sizing"
	"github.com/millrace-data/millrace/internal/sourceloader"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/trainer"
	"github.com/millrace-data/millrace/jobspec"
)

// A mix that shifts, over sources far away, under a trainer that takes shiftPace for a step.
const (
	shiftSteps = 128
	shiftPace  = 250 * time.Millisecond
	shiftFar   = 250 * time.Millisecond // what the store takes for an answer
	shiftWarm  = 24                     // steps before anything counts: all sources begin a block at the same time, and costs become known
)

// shiftKinds are sources of like cost: bytes of a block, and their part of the mix by stage.
var shiftKinds = []shiftKind{
	{"archive", 12, 8, 64 << 10, [4]float64{0.80, 0.15, 0.48, 0.60}},
	{"text", 20, 24, 16 << 10, [4]float64{0.19, 0.84, 0.40, 0.39}},
	{"picture", 8, 24, 2 << 10, [4]float64{0.01, 0.01, 0.12, 0.01}},
}

type shiftKind struct {
	name           string
	sources, files int
	block          int
	shares         [4]float64
}

// shiftWeight is the weight of a source among those of its kind.
func shiftWeight(source, stage int) float64 { return float64(1 + (source+3*stage)%5) }

// shiftJob is the job, and its files.
func shiftJob(t *testing.T) (*jobspec.Job, *store.Memory) {
	st := &store.Memory{}
	var sources, mix strings.Builder
	for _, k := range shiftKinds {
		for i := range k.sources {
			name := fmt.Sprintf("%s-%02d", k.name, i)
			for f := range k.files {
				st.Put(path.Join("/shift", name, fmt.Sprintf("%02d.jsonl", f)), []byte(strings.Repeat(fmt.Sprintf(`{"text":%q}`+"\n", strings.Repeat("x", 1000)), k.block/1000)))
			}
			fmt.Fprintf(&sources, "  - {name: %[1]s, files: %[1]s/*.jsonl, chunk_bytes: %[2]d, long: truncate, shuffle: {block: 1}, transforms: [{tokenize: bytes}]}\n", name, k.block)
		}
	}
	for stage, how := range []string{"", "ramp: linear, over: 16, ", "", "ramp: cosine, over: 16, "} {
		fmt.Fprintf(&mix, "    - {from: %d, %sweights: {", stage*shiftSteps/4, how)
		for _, k := range shiftKinds {
			sum := 0.0
			for i := range k.sources {
				sum += shiftWeight(i, stage)
			}
			for i := range k.sources {
				fmt.Fprintf(&mix, "%s-%02d: %.6f, ", k.name, i, k.shares[stage]*shiftWeight(i, stage)/sum)
			}
		}
		mix.WriteString("}}\n")
	}
	job, findings := jobspec.Parse("shift.yaml", []byte("name: shift\nseed: 1\nbatch: {sequence_length: 2048, sequences: 16}\ntopology: {dp: 2}\nresources: {window: 16}\nsources:\n"+
		sources.String()+"mix:\n  stages:\n"+strings.ReplaceAll(mix.String(), ", }}", "}}")), "/shift")
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	return job, st
}

// far is a store that takes a time for each answer.
type far struct {
	store.Store
	takes time.Duration
}

func (f far) List(ctx context.Context, uri string) ([]store.Object, error) {
	time.Sleep(f.takes)
	return f.Store.List(ctx, uri)
}

func (f far) Open(ctx context.Context, obj store.Object) (store.Handle, error) {
	h, err := f.Store.Open(ctx, obj)
	return farHandle{h, f.takes}, err
}

type farHandle struct {
	store.Handle
	takes time.Duration
}

func (h farHandle) ReadAt(b []byte, at int64) (int, error) {
	time.Sleep(h.takes)
	return h.Handle.ReadAt(b, at)
}

// shifted is what a run of the job gave.
type shifted struct {
	waited        time.Duration
	loaderSeconds float64
	most          int64
	late          []string
}

// shiftService is a service of the job in a bubble, and a trainer of it.
type shiftService struct {
	job     *jobspec.Job
	store   store.Store
	loaders int
	workers func(loader int) int
	deal    [][]int // nil: in turn
	most    int     // loaders that the scaler may have; 0: there is none
	step    func(s trainer.Step, loaders int64)
}

// run runs it to the end of the steps.
func (x *shiftService) run(t *testing.T) {
	network := sim.NewNetwork(1, sim.Faults{Delay: 100 * time.Microsecond})
	on := func(host string) rpc.Security { return rpc.Through(network.Carrier(host)) }
	log := slog.New(slog.DiscardHandler)
	if *verbose {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	var live atomic.Int64
	loaders := fleet.NewLocal(64, func(_ fleet.Role, n int) string { return fmt.Sprintf("loader-%d", n) }, func(ctx context.Context, _ fleet.Role, n int) error {
		live.Add(1)
		defer live.Add(-1)
		host := fmt.Sprintf("loader-%d", n)
		return sourceloader.Run(ctx, sourceloader.Options{
			ID: host, Planner: "planner:1", Address: host + ":1", Security: on(host), Store: x.store, Workers: x.workers(n), Place: n + 1, Log: log,
		})
	})
	if err := loaders.Scale(ctx, fleet.Loader, x.loaders); err != nil {
		t.Fatal(err)
	}
	g.Go(func() error { return loaders.Run(ctx) })
	opts := planner.Options{Job: x.job, Address: "planner:1", Security: on("planner"), Loaders: x.loaders, Deal: x.deal, Constructors: 1, Log: log}
	if x.most > 0 {
		opts.Scale = scaling.Options{Fleet: loaders, Every: 500 * time.Millisecond, Scaling: sizing.Scaling{Most: x.most}}
	}
	g.Go(func() error { return planner.Run(ctx, opts) })
	g.Go(func() error {
		return constructor.Run(ctx, constructor.Options{ID: "constructor", Planner: "planner:1", Address: "constructor:1", Security: on("constructor"), Log: log})
	})
	g.Go(func() error {
		defer stop()
		_, err := trainer.Run(ctx, trainer.Options{Address: "planner:1", Job: x.job, Steps: shiftSteps, Security: on("trainer"), OnStep: func(s trainer.Step) { x.step(s, live.Load()) }})
		return err
	})
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		t.Error(err)
	}
}

// shift runs the job at the pace, with loaders of a worker each, from a first number to a most; 0: as many as the first.
func shift(t *testing.T, first, most int, digests [][32]byte, job *jobspec.Job, files store.Store) (got shifted) {
	synctest.Test(t, func(t *testing.T) {
		last := time.Now()
		x := shiftService{job: job, store: far{files, shiftFar}, loaders: first, workers: func(int) int { return 1 }, most: most}
		x.step = func(s trainer.Step, loaders int64) {
			if s.Digest != digests[s.Step] {
				t.Errorf("digest step=%d %x, the reference reader has %x", s.Step, s.Digest, digests[s.Step])
			}
			if s.Step >= shiftWarm {
				got.waited += s.Wait
				got.loaderSeconds += time.Since(last).Seconds() * float64(loaders)
				got.most = max(got.most, loaders)
				if s.Wait > shiftPace/10 {
					got.late = append(got.late, fmt.Sprintf("%d:%v(%d)", s.Step, s.Wait.Round(time.Millisecond), loaders))
				}
			}
			last = time.Now()
			time.Sleep(shiftPace)
		}
		x.run(t)
	})
	return got
}

// TestShiftingMix: loaders that follow a schedule are there when it needs them, in virtual time: they leave trainers almost none of the
// waits that those have with the loaders that it begins with, and stay for less time than as many as the peak needs.
func TestShiftingMix(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	job, files := shiftJob(t)
	var digests [][32]byte
	if _, _, err := reference.Read(t.Context(), files, job, nil, shiftSteps, func(s *reference.Step) error {
		digests = append(digests, s.Digest)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	few, many, scaled := shift(t, 2, 0, digests, job, files), shift(t, 6, 0, digests, job, files), shift(t, 2, 8, digests, job, files)
	t.Logf("2 loaders: %v; 6: %v; scaled: %v", few, many, scaled)
	if few.waited < time.Second || many.waited > 100*time.Millisecond {
		t.Errorf("trainers waited %v for 2 loaders, and %v for 6: this says nothing of those that are scaled", few.waited, many.waited)
	}
	if scaled.waited > few.waited/10 || scaled.loaderSeconds > 0.9*many.loaderSeconds {
		t.Errorf("scaled, trainers waited %v in place of %v, for %.0f loader-seconds, that of the peak takes %.0f",
			scaled.waited, few.waited, scaled.loaderSeconds, many.loaderSeconds)
	}
}
