// Command stalls measures how long the ranks of a paced trainer wait while roles of their
// service die, stop, or are cut off.
//
//	go build -o millrace ./cmd/millrace
//	go run ./bench/stalls -millrace ./millrace -markdown stalls.md -svg stalls.svg
//
// Eight ranks in this process train in step, a step every -pace; 64 loaders and 4 constructors are
// processes of their own, and start again a tenth of a second after they died. Each scenario does its harm at given steps.
// Ranks in Python are threads of one process.
// What the ranks get is compared with the reference reader, as in bench/killmatrix. A step is
// stalled if one of its ranks waits longer than a tenth of the pace.
//
// The binary needs no Go on the machine it runs on; the data is made by it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/millrace-data/millrace/internal/rig"
)

// options are those of the command line.
type options struct {
	binary       string
	dir          string
	only         []string
	paces        []time.Duration
	prefetches   []int
	loaders      int
	shadows      int
	hot          bool
	constructors int
	steps        int64
	slowSteps    int64  // at other paces than the shortest
	python       string // that has the package; "": no ranks in Python
	all          bool
	restart      time.Duration
	markdown     string
	json         string
	svg          string
}

func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("stalls", flag.ContinueOnError)
	f.StringVar(&o.binary, "millrace", "bin/millrace", "the service's `binary`")
	f.StringVar(&o.dir, "dir", "", "`folder` for runs; default a temporary one. A short path: sockets lie in it")
	f.IntVar(&o.loaders, "loaders", 64, "source loaders")
	f.IntVar(&o.shadows, "shadows", 0, "loaders beside them that stand by")
	f.BoolVar(&o.hot, "hot", false, "shadows read along")
	f.IntVar(&o.constructors, "constructors", 4, "data constructors, at most 4")
	f.Int64Var(&o.steps, "steps", 64, "steps of a run")
	f.Int64Var(&o.slowSteps, "slow-steps", 34, "steps of a run at another pace than the shortest")
	f.StringVar(&o.python, "python", "", "`interpreter` that has the package millrace: some scenarios run with ranks in Python, too")
	f.BoolVar(&o.all, "all", false, "all scenarios at all paces, with all prefetches and all ranks (an hour)")
	f.DurationVar(&o.restart, "restart", 100*time.Millisecond, "time between the end of a role and its next life; that of millrace serve --processes by default")
	f.StringVar(&o.markdown, "markdown", "", "write the table to this `file`")
	f.StringVar(&o.json, "json", "", "write a line for each run to this `file`")
	f.StringVar(&o.svg, "svg", "", "draw the waits into this `file`")
	only := f.String("scenario", "", "only these, separated by commas: "+strings.Join(names(), ", "))
	paces := f.String("pace", "200ms,1s", "times of a training step")
	prefetches := f.String("prefetch", "2,4", "steps that are planned, and read, ahead")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.only = strings.Split(*only, ","); *only == "" {
		o.only = names()
	}
	for _, name := range o.only {
		if !slices.Contains(names(), name) {
			return o, fmt.Errorf("there is no scenario %q; choose from %s", name, strings.Join(names(), ", "))
		}
	}
	for text := range strings.SplitSeq(*paces, ",") {
		pace, err := time.ParseDuration(text)
		if err != nil {
			return o, err
		}
		o.paces = append(o.paces, pace)
	}
	for text := range strings.SplitSeq(*prefetches, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return o, err
		}
		o.prefetches = append(o.prefetches, n)
	}
	return o, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:])
	if err == nil {
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "stalls: %v\n", err)
		os.Exit(1)
	}
}

// run runs the scenarios one after the other: each has the machine for itself.
func run(ctx context.Context, o options) (err error) {
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return err
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "st"); err != nil {
			return err
		}
		defer os.RemoveAll(o.dir)
	}
	// Roles behind a proxy do not find a key by the planner's address.
	if err := os.Setenv("MILLRACE_ACCESS_KEY", "key-of-one-measurement-on-one-machine"); err != nil {
		return err
	}
	data := filepath.Join(o.dir, "data")
	if err := rig.WriteFleet(data); err != nil {
		return err
	}
	answer, err := rig.Solve(ctx, data, rig.Fleet(o.steps), 4)
	if err != nil {
		return err
	}
	r := &report{opts: o}
	tokens := map[int64][]byte{} // of the positions at the ends of runs with ranks in Go
	for _, x := range o.trials() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.add(measure(ctx, o, answer, x, tokens))
	}
	return r.write()
}
