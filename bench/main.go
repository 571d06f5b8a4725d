// Command bench measures a whole Millrace service against its ceilings.
//
//	go run ./bench                          # all scenarios
//	go run ./bench -scenario text -runs 11  # one of them
//	go run ./bench -against main~50         # in turns with the bench of that commit
//
// Scenarios: text (raw JSONL, tokenized on the way), parquet (token ids in
// Parquet, plain and zstd), memory (306 Parquet sources for 16 ranks), epochs (306
// tiny ones), plan (the planner's core alone), plancycle (a whole planning cycle for
// 4096 ranks), balance (how even planned steps are), trainsim (the training simulator), vlm (pairs of image and text),
// clients (up to 4096 of one constructor). And some that have to be named, as they take long or are about one question: shifting
// (a mix that ramps and jumps: fixed and scaled loaders), layouts (of loaders, by cost and by hand), telemetry (what it costs), gc (paced ranks by
// settings of the garbage collector).
//
// Every scenario writes its own inputs, the same in every run, into a temporary
// folder; inputs.go, sources.go and epochs.go have the recipes. Service and
// trainer ranks are separate processes: this binary starts itself with
// -role. A scenario's runs alternate with those of its ceilings, so that a
// busy machine slows both. It never verifies the delivered batches; the tests do.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// config is common to all scenarios.
type config struct {
	runs    int
	dir     string // of inputs
	profile string // folder for CPU profiles of the service; "" = none
	python  string // interpreter with pyarrow, or millrace; "" = no comparison
	way     string // of batches to ranks; "" = as by default
	report  *report

	shifting shiftingFlags
}

// profileOf returns the profile's file for a scenario's first run, "" for none.
func (c *config) profileOf(scenario string, run int) (string, error) {
	if c.profile == "" || run > 0 {
		return "", nil
	}
	return filepath.Join(c.profile, scenario+".cpu"), os.MkdirAll(c.profile, 0o755)
}

// scenarios in the order they run.
var scenarios = []struct {
	name string
	run  func(context.Context, *config) error
	long bool // it runs only when it is named
}{
	{name: "text", run: benchText},
	{name: "parquet", run: benchParquet},
	{name: "memory", run: benchMemory},
	{name: "epochs", run: benchEpochs},
	{name: "plan", run: benchPlan},
	{name: "vlm", run: benchVLM},
	{name: "plancycle", run: benchPlanCycle},
	{name: "balance", run: benchBalance},
	{name: "trainsim", run: benchTrainsim},
	{name: "clients", run: benchClients},
	{name: "shifting", run: benchShifting, long: true},
	{name: "layouts", run: benchLayouts, long: true},
	{name: "telemetry", run: benchTelemetry, long: true},
	{name: "gc", run: benchGC, long: true},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	runs := flags.Int("runs", 7, "runs of each `measurement`")
	only := flags.String("scenario", "", "run only these, separated by commas; default all but shifting, layouts, telemetry and gc")
	out := flags.String("out", "", "append results to this file as JSON `lines`")
	keep := flags.String("inputs", "", "folder for the inputs; default a temporary one")
	profile := flags.String("profile", "", "write CPU profiles of the service into this `folder`")
	against := flags.String("against", "", "compare with the bench of this `commit`: -runs turns, each of one run of both")
	python := flags.String("python", "", "Python with pyarrow (and optionally torch) for the memory comparison, and with millrace for ranks in Python of text and parquet")
	way := flags.String("way", "", "how text and parquet deliver batches: shared, stream or calls; default as a user gets them")
	var shifting shiftingFlags
	shifting.register(flags)
	role := flags.String("role", "", "used by the program itself")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *role != "" {
		return child(ctx, *role, flags.Args())
	}
	cfg := &config{runs: max(*runs, 1), dir: *keep, profile: *profile, python: *python, way: *way, shifting: shifting}
	if cfg.dir == "" {
		dir, err := os.MkdirTemp("", "millrace-bench-*")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		cfg.dir = dir
	}
	var err error
	if cfg.dir, err = filepath.Abs(cfg.dir); err != nil { // specs lie in it, from where they name their files
		return err
	}
	if cfg.report, err = newReport(os.Stdout, *out); err != nil {
		return err
	}
	if *against != "" {
		return errors.Join(runTurns(ctx, cfg, *against, *only), cfg.report.close())
	}
	return errors.Join(runScenarios(ctx, cfg, *only), cfg.report.close())
}

// named are the scenarios of a list, divided by commas; all but long ones if it is empty.
func named(only string) (wanted []string, err error) {
	var names []string
	for _, s := range scenarios {
		names = append(names, s.name)
		if !s.long {
			wanted = append(wanted, s.name)
		}
	}
	if only == "" {
		return wanted, nil
	}
	wanted = strings.Split(only, ",")
	for _, w := range wanted {
		if !slices.Contains(names, w) {
			return nil, fmt.Errorf("unknown scenario %q; choose from %s", w, strings.Join(names, ", "))
		}
	}
	return wanted, nil
}

func runScenarios(ctx context.Context, cfg *config, only string) error {
	wanted, err := named(only)
	if err != nil {
		return err
	}
	for _, s := range scenarios {
		if !slices.Contains(wanted, s.name) {
			continue
		}
		if err := s.run(ctx, cfg); err != nil {
			return fmt.Errorf("scenario %s: %w", s.name, err)
		}
	}
	return nil
}
