// Command safety measures what the step log, its mirror and shadows cost.
//
//	go build -o bin/millrace ./cmd/millrace
//	go run ./bench/safety -markdown build/safety.md
//
// It prints KB a step of the log at 306 sources and the time of a commit, local and with a mirror;
// the throughput of a job with all of it and without, in runs that take turns; memory and CPU of a
// warm and of a hot shadow, and what is read again when the loader beside it dies; and the time from
// the start of a service on a log of a million steps to the first batch. The service's roles are
// processes of the given binary. On two cores it takes about three minutes.
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
)

// options are those of the command line.
type options struct {
	binary   string
	dir      string
	only     string
	rounds   int
	within   time.Duration // of the runs of throughput, and of shadows
	steps    int64         // of the long log
	commits  int
	markdown string
}

// report is the table to come.
type report struct{ rows [][3]string }

func (r *report) add(what, value, goal string) {
	fmt.Printf("%s: %s (%s)\n", what, value, goal)
	r.rows = append(r.rows, [3]string{what, value, goal})
}

func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d cores, %s/%s, %s.\n\n| what | measured | goal |\n|---|--:|---|\n", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	for _, row := range r.rows {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", row[0], row[1], row[2])
	}
	return b.String()
}

func main() {
	var o options
	flag.StringVar(&o.binary, "millrace", "bin/millrace", "the service's `binary`")
	flag.StringVar(&o.dir, "dir", "", "`folder` for logs, on the disk to be measured; default a temporary one")
	flag.StringVar(&o.only, "only", "", "only this: log, throughput, shadows or restart")
	flag.IntVar(&o.rounds, "rounds", 7, "runs with and without safety each")
	flag.DurationVar(&o.within, "time", 3*time.Second, "how long a run is measured")
	flag.Int64Var(&o.steps, "steps", 1_000_000, "steps of the log that a service is started on")
	flag.IntVar(&o.commits, "commits", 1500, "steps that are committed one by one")
	flag.StringVar(&o.markdown, "markdown", "", "write the table to this `file`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "safety: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return err
	}
	if _, err := os.Stat(o.binary); err != nil {
		return fmt.Errorf("the service's binary: %w: go build -o bin/millrace ./cmd/millrace", err)
	}
	if o.dir, err = os.MkdirTemp(o.dir, "sf"); err != nil {
		return err
	}
	defer os.RemoveAll(o.dir)
	if err := os.Setenv("MILLRACE_ACCESS_KEY", "key-of-one-measurement-on-one-machine"); err != nil {
		return err
	}
	r := &report{}
	for _, part := range []struct {
		name string
		do   func(context.Context, options, *report) error
	}{{"log", measureLog}, {"throughput", measureThroughput}, {"shadows", measureShadows}, {"restart", measureRestart}} {
		if o.only != "" && o.only != part.name {
			continue
		}
		if err := part.do(ctx, o, r); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	if o.markdown != "" {
		return os.WriteFile(o.markdown, []byte(r.markdown()), 0o644)
	}
	fmt.Print("\n", r.markdown())
	return nil
}
