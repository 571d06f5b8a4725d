package metamorphic_test

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/metamorphic"
	"github.com/millrace-data/millrace/internal/rig"
)

var (
	first   = flag.Uint64("seed", 1, "the first seed to run")
	seeds   = flag.Int("seeds", 0, "number of seeds to run; default 25, or 2000 with MILLRACE_LONG")
	list    = flag.String("ops", "", "file with the operations to run, in place of the seed's")
	reduce  = flag.Bool("reduce", true, "shorten the list of operations of a seed that fails")
	verbose = flag.Bool("logs", false, "print what the roles log")
)

// TestSeeds runs lists of operations, under the options of their seeds.
func TestSeeds(t *testing.T) {
	n := *seeds
	if n == 0 {
		n = 25
		if testing.Short() {
			n = 8
		}
		if os.Getenv("MILLRACE_LONG") != "" {
			n = 2000
		}
	}
	begin := time.Now()
	var next, steps, forward atomic.Int64
	t.Run("all", func(t *testing.T) {
		for range min(n, 4) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for i := next.Add(1); i <= int64(n) && !t.Failed(); i = next.Add(1) {
					res := try(t, *first+uint64(i)-1)
					steps.Add(res.Steps)
					forward.Add(int64(res.Forward))
				}
			})
		}
	})
	t.Logf("%d lists in %.1f s, %d steps, a branch was taken up again %d times", n, time.Since(begin).Seconds(), steps.Load(), forward.Load())
}

// try runs one seed, and returns what it did; nothing if it failed.
func try(t *testing.T, seed uint64) metamorphic.Result {
	rng := rig.Random(seed, "metamorphic")
	opts := metamorphic.DrawOptions(rng)
	ops := metamorphic.Draw(rng, opts, 45)
	if *list != "" {
		text, err := os.ReadFile(*list)
		if err == nil {
			ops, err = metamorphic.Parse(string(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	res, err := run(t, seed, opts, ops)
	if testing.Verbose() && err == nil {
		t.Logf("seed %d: %d steps, longest wait %v, %+v: %s", seed, res.Steps, res.Longest, opts, strings.ReplaceAll(metamorphic.Print(ops), "\n", "; "))
	}
	if err == nil {
		return *res
	}
	if *reduce {
		ops = metamorphic.Reduce(ops, 30, func(ops []metamorphic.Op) bool { _, err := run(t, seed, opts, ops); return err != nil })
	}
	file := filepath.Join(t.ArtifactDir(), fmt.Sprintf("ops-%d.txt", seed))
	if err := os.WriteFile(file, []byte(metamorphic.Print(ops)), 0o644); err != nil {
		t.Error(err)
	}
	t.Errorf("seed %d, %+v: %v\noperations that fail:\n%sgo test ./internal/metamorphic -run TestSeeds -seed %d -seeds 1 -logs\nwith -artifacts the list is kept, and -ops %s runs it again",
		seed, opts, err, metamorphic.Print(ops), seed, filepath.Base(file))
	return metamorphic.Result{}
}

// run runs a list in a bubble.
func run(t *testing.T, seed uint64, opts metamorphic.Options, ops []metamorphic.Op) (res *metamorphic.Result, err error) {
	log := slog.New(slog.DiscardHandler)
	if *verbose {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	defer func() {
		if problem := recover(); problem != nil { // goroutines that do not end
			err = fmt.Errorf("%v", problem)
		}
	}()
	synctest.Test(t, func(t *testing.T) { res, err = metamorphic.Run(t.Context(), seed, opts, ops, log) })
	return res, err
}

// TestForward goes back, and then on from tokens of two branches that were left, with a planner that
// dies in between.
func TestForward(t *testing.T) {
	const ops = "20 back - 0s 9\n16 forward - 0s 7\n25 back - 0s 20\n8 kill planner 100ms 0\n10 forward - 0s 12\n30 back - 0s 12\n21 back - 0s 6\n18 forward - 0s 12"
	list, err := metamorphic.Parse(ops)
	if err != nil {
		t.Fatal(err)
	}
	for recipe := range rig.Recipes {
		opts := metamorphic.Options{Recipe: recipe, Packing: true, Loaders: 2, Constructors: 2, LoaderBuffer: 1 << 20, ConstructorBuffer: 1 << 20, Prefetch: 4, Ahead: 2, Window: 20}
		res, err := run(t, uint64(recipe), opts, list)
		if err != nil || res.Forward != 3 {
			t.Errorf("recipe %d: %+v, %v; want 3 branches that are taken up again", recipe, res, err)
		}
	}
}

// TestText: what is printed is read again.
func TestText(t *testing.T) {
	for seed := range uint64(50) {
		rng := rig.Random(seed, "text")
		ops := metamorphic.Draw(rng, metamorphic.DrawOptions(rng), 45)
		got, err := metamorphic.Parse(metamorphic.Print(ops))
		if err != nil || metamorphic.Print(got) != metamorphic.Print(ops) {
			t.Fatalf("%v: %v\n%v", err, got, ops)
		}
	}
	for _, text := range []string{"x kill - 0s 0", "1 kill -", "1 kill - 5 0"} {
		if _, err := metamorphic.Parse(text); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

// TestReduce shortens lists in which two operations fail together.
func TestReduce(t *testing.T) {
	for n := range 12 {
		var ops []metamorphic.Op
		for i := range n + 2 {
			ops = append(ops, metamorphic.Op{At: int64(i), Kind: metamorphic.Pause})
		}
		has := func(ops []metamorphic.Op, at int64) bool {
			for _, o := range ops {
				if o.At == at {
					return true
				}
			}
			return false
		}
		a, b := int64(n/2), int64(n+1)
		got := metamorphic.Reduce(ops, 1000, func(ops []metamorphic.Op) bool { return has(ops, a) && has(ops, b) })
		if len(got) != 2 || !has(got, a) || !has(got, b) {
			t.Errorf("%d operations became %v", len(ops), got)
		}
	}
}
