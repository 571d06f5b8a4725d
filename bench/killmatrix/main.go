// Command killmatrix runs small jobs with real processes, ends a role at each failpoint in
// turn, and compares what the ranks got with the reference reader.
//
//	go build -tags failpoint -o millrace ./cmd/millrace
//	go run ./bench/killmatrix -millrace ./millrace -kills 3000 -markdown table.md
//
// A run is a function of -seed and its number, but for the times at which processes run. It
// starts a planner, loaders and constructors as processes, has a role kill itself at the n-th pass
// of a failpoint, several lives long, starts it again each time, and trains four ranks to the
// end. The digest of every step, each sample, and the resume token must be those of a run
// without harm. A run that does not pass prints the command that repeats it and keeps its folder.
//
// The binary needs no Go on the machine it runs on: -millrace is the service's binary, with
// the tag failpoint, and the data is made by this one.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/millrace-data/millrace/internal/failpoint"
	"github.com/millrace-data/millrace/internal/rig"
)

// options are those of the command line.
type options struct {
	binary   string
	dir      string // of runs
	seed     uint64
	only     int // run, or -1
	kills    int // to reach
	runs     int // at most; 0: as many as it takes
	limit    time.Duration
	within   time.Duration // of all
	parallel int
	sites    string
	markdown string
	json     string
	verbose  bool
	damage   int // damaged logs to open
	splits   int // leaders to stop until they are replaced
	shared   int // constructors, and ranks that map memory of theirs, to kill
	python   string
}

func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("killmatrix", flag.ContinueOnError)
	f.StringVar(&o.binary, "millrace", "bin/millrace-failpoint", "the service's `binary`, built with -tags failpoint")
	f.StringVar(&o.dir, "dir", "", "`folder` for runs; default a temporary one. A short path: sockets lie in it")
	f.Uint64Var(&o.seed, "seed", 1, "of all choices")
	f.IntVar(&o.only, "run", -1, "repeat the run of this `number` alone")
	f.IntVar(&o.kills, "kills", 200, "stop when this many processes were killed")
	f.IntVar(&o.runs, "runs", 0, "stop after this many runs; 0: when -kills are reached")
	f.DurationVar(&o.limit, "limit", 60*time.Second, "of one run: one that takes longer does not pass")
	f.DurationVar(&o.within, "time", 0, "stop after this time; 0: never")
	f.IntVar(&o.parallel, "parallel", max(runtime.NumCPU()/2, 1), "runs at a time")
	f.StringVar(&o.sites, "sites", "", "only failpoints that begin with one of these, separated by commas")
	f.StringVar(&o.markdown, "markdown", "", "write the table to this `file`")
	f.StringVar(&o.json, "json", "", "write the table to this `file`")
	f.IntVar(&o.damage, "damage", 0, "damage this many copies of a killed planner's log, and open them")
	f.IntVar(&o.splits, "splits", 0, "stop this many planners for longer than others wait, and continue them")
	f.IntVar(&o.shared, "shared", 0, "in place of the matrix, kill this many constructors and ranks that map memory of theirs")
	f.StringVar(&o.python, "python", "", "`interpreter` with millrace: with -shared, one rank of four is in Python")
	f.BoolVar(&o.verbose, "v", false, "print a line for each run")
	return o, f.Parse(args)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if os.Getenv(rankVariable) != "" {
		if err := rankMain(ctx, os.Args[1:]); err != nil {
			fmt.Fprintf(os.Stderr, "rank: %v\n", err)
			os.Exit(1)
		}
		return
	}
	o, err := parse(os.Args[1:])
	if err != nil {
		os.Exit(2)
	}
	failed, err := run(ctx, o)
	if err != nil {
		fmt.Fprintf(os.Stderr, "killmatrix: %v\n", err)
		os.Exit(1)
	}
	if failed > 0 {
		os.Exit(1)
	}
}

// run runs the matrix and returns the number of runs that did not pass.
func run(ctx context.Context, o options) (failed int, err error) {
	sites := chosen(o.sites)
	if len(sites) == 0 {
		return 0, fmt.Errorf("no failpoint begins with %q", o.sites)
	}
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return 0, err
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "km"); err != nil {
			return 0, err
		}
	}
	if o.shared > 0 {
		begin := time.Now()
		k, err := killShared(ctx, o)
		if err == nil {
			fmt.Printf("%d constructors and ranks were killed in %.0f s: %d batches compared, none torn, no memory left\n", k.kills, time.Since(begin).Seconds(), k.checked)
		}
		return 0, err
	}
	m := &matrix{opts: o, sites: sites, table: newTable(sites), begin: time.Now()}
	if err := m.prepare(ctx); err != nil {
		return 0, err
	}
	if o.only < 0 || o.splits == 0 {
		m.runAll(ctx)
	}
	m.table.splits = m.split(ctx, o.splits)
	if o.damage > 0 {
		if m.table.damages, err = m.damage(ctx, o.damage); err != nil {
			return m.failed, err
		}
	}
	if m.failed == 0 {
		_ = os.RemoveAll(o.dir) // it holds nothing that anyone looks for
	}
	if err := m.table.write(o, m.summary()); err != nil {
		return m.failed, err
	}
	return m.failed, nil
}

// chosen are the sites that the command line asks for.
func chosen(prefixes string) (sites []failpoint.Info) {
	for _, s := range failpoint.Sites {
		for p := range strings.SplitSeq(prefixes, ",") {
			if strings.HasPrefix(string(s.Site), p) {
				sites = append(sites, s)
				break
			}
		}
	}
	return sites
}

// prepare makes the data, and runs every job once without harm: their tokens are what all
// other runs have to end with.
func (m *matrix) prepare(ctx context.Context) error {
	data := filepath.Join(m.opts.dir, "data")
	if err := rig.Write(data); err != nil {
		return err
	}
	// A client of several planners looks for no key by an address.
	if err := os.Setenv("MILLRACE_ACCESS_KEY", "key-of-one-matrix-on-one-machine"); err != nil {
		return err
	}
	for i := range rig.Recipes {
		a, err := rig.Solve(ctx, data, &rig.Recipes[i], 4)
		if err != nil {
			return err
		}
		m.answers = append(m.answers, a)
		p := plan{number: -1 - i, answer: a, loaders: 1, constructors: 1}
		res := m.execute(ctx, p)
		if res.err != nil {
			return fmt.Errorf("the job %s without harm: %w; its folder is %s", a.Recipe.Name, res.err, m.folder(p))
		}
		a.Token = res.trained.Token
	}
	return nil
}
