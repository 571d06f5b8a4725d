// Package cli is the command line of Millrace: every role of the service, and
// the tools around it, one file for each verb or group of them. It holds wiring
// only, and what a person sees: flags, help, progress, messages. docs/cli.md is
// the manual.
//
// Package millrace, the public one, is what programs with strategies or policies of their
// own call.
//
// Exit codes: 0 success; 1 a bug in Millrace; 2 wrong usage; 3 the job spec or
// the data is at fault; 4 something was lost (network, process, disk, deadline);
// 5 verify found a difference; 130 interrupted.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/functions"
	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/reference"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/jobspec"
)

// Exit codes; scripts rely on them.
const (
	exitBug         = 1
	exitUsage       = 2
	exitUser        = 3
	exitLost        = 4
	exitDiffers     = 5
	exitInterrupted = 130
)

type cli struct {
	LogLevel      *slog.Level `help:"Minimum log level: debug, info, warn, error. Default: warn; run prints no log." placeholder:"LEVEL" env:"MILLRACE_LOG_LEVEL"`
	LogFormat     logFormat   `help:"How the log is written: text, or json with one object per line." enum:"text,json" default:"text" env:"MILLRACE_LOG_FORMAT"`
	PythonWorkers int         `help:"Worker processes of each environment of Python functions; 0: as resources.python_workers of the job spec says, or one per core. No byte depends on it." placeholder:"N" env:"MILLRACE_PYTHON_WORKERS"`
	WorkerPools   []string    `help:"Worker pools (millrace workers) that run Python functions too, HOST:PORT, separated by commas. Default: resources.worker_pools of the job spec. No byte depends on it." placeholder:"ADDRESS" env:"MILLRACE_WORKER_POOLS"`
	ShowVersion   versionFlag `name:"version" help:"Print the version and exit."`

	Run         runCmd         `cmd:"" help:"Serve a job and feed built-in trainers for every rank."`
	Serve       serveCmd       `cmd:"" help:"Serve a job to trainers: all roles, on this machine."`
	Planner     plannerCmd     `cmd:"" help:"Run only the planner of a job."`
	Loader      loaderCmd      `cmd:"" help:"Run one source loader."`
	Constructor constructorCmd `cmd:"" help:"Run one data constructor."`
	Sidecar     sidecarCmd     `cmd:"" help:"Run the constructor of a trainers' node, with loaders beside it."`
	Workers     workersCmd     `cmd:"" help:"Run Python functions for loaders of other machines."`
	Lint        lintCmd        `cmd:"" help:"Validate a job spec and report every problem."`
	Plan        planCmd        `cmd:"" help:"Plan a job without running it, and report mix, balance and memory."`
	Profile     profileCmd     `cmd:"" help:"Measure what reading the sources of a job costs."`
	Prepare     prepareCmd     `cmd:"" help:"Run the transforms of sources once and write their tokens as Parquet."`
	Explain     explainCmd     `cmd:"" help:"Trace a step's documents to their files, or a file to its steps."`
	Preview     previewCmd     `cmd:"" help:"Show the documents, tokens and text of a step."`
	Status      statusCmd      `cmd:"" help:"Show the status of a running service."`
	Mix         mixCmd         `cmd:"" help:"Change the mix of a running job."`
	Source      sourceCmd      `cmd:"" help:"Pause, resume, drop and add sources of a running job."`
	Batch       batchCmd       `cmd:"" help:"Change the global batch shape of a running job."`
	Topology    topologyCmd    `cmd:"" help:"Move a running job to another mesh of ranks."`
	Skip        skipCmd        `cmd:"" help:"Skip the data of some steps of a running job."`
	Ban         banCmd         `cmd:"" help:"Exclude a record from a running job."`
	Cancel      cancelCmd      `cmd:"" help:"Cancel a pending change."`
	Change      changeCmd      `cmd:"" help:"Apply a change given as JSON to a running job."`
	Changes     changesCmd     `cmd:"" help:"List the changes made to a job."`
	Log         logCmd         `cmd:"" help:"Read, check, repair and export step logs and their mirrors."`
	Skipped     skippedCmd     `cmd:"" help:"List the bad records that a job left out."`
	Reference   referenceCmd   `cmd:"" help:"Compute a job's digest with the reference reader."`
	Verify      verifyCmd      `cmd:"" help:"Verify a step log or a digest against the reference reader."`
	Schema      schemaCmd      `cmd:"" help:"Print the JSON Schema of job specs, for editors."`
	Version     versionCmd     `cmd:"" help:"Print the version."`
}

// Main runs the command line given by args, without the program's name, and
// returns the exit code. Job specs may use names. It takes SIGINT and SIGTERM as the wish to stop; a
// second one ends the process at once.
func Main(args []string, names compile.Registry) int {
	if err := names.Check(); err != nil {
		return report(os.Stderr, err)
	}
	return run(args, names)
}

// parserOf is the command line as kong sees it; a test reads it too.
func parserOf(c *cli) *kong.Kong {
	return kong.Must(c, kong.Name("millrace"), kong.Writers(stdout, os.Stderr), kong.Exit(exit), kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.Description("Millrace keeps trainers fed: a training-data service whose batches are a pure function of the job.\n\n"+
			"New here? Write a job spec (examples/quickstart.yaml is one), check it with `millrace lint`, and see it run with `millrace run`.\n\n"+
			"Exit codes: 0 success, 1 a bug in Millrace, 2 wrong usage, 3 the job spec or the data is at fault, "+
			"4 something was lost (network, process, disk, deadline), 5 verify found a difference, 130 interrupted."))
}

// unsetEmpty has an environment variable that is empty count as not set, for flags and for the processes that this one starts:
// so is what a template of a job leaves of a variable that it does not have.
func unsetEmpty(parser *kong.Kong) {
	_ = kong.Visit(parser.Model, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok {
			for _, name := range flag.Envs {
				if os.Getenv(name) == "" {
					os.Unsetenv(name)
				}
			}
		}
		return next(nil)
	})
}

// exit ends the program after --help and --version, of which kong does not say whether they were printed.
func exit(code int) {
	if err := stdout.failed(); err != nil {
		code = report(os.Stderr, err)
	}
	os.Exit(code)
}

// extensions are what this program has beside the verbs, for jobs that name it.
type extensions struct {
	compile.Registry
	functions *functions.Set
	warnings  logFormat // of job specs
}

// reads is what the reference reader needs of the program.
func (e extensions) reads() reference.Program {
	return reference.Program{Strategies: e.Strategies, RowMethods: e.RowMethods, Functions: e.functions.Open}
}

func run(args []string, names compile.Registry) int {
	// Before anything else: to read the command line takes milliseconds, in which a role that is
	// told to end would die of it.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { signal.Reset(os.Interrupt, syscall.SIGTERM) }) // who asks twice does not want to wait
	ctx, end := context.WithCancel(ctx)
	defer end()
	stdout.ends(end)
	if os.Getpid() == 1 {
		go reapOrphans(ctx, orphansEvery)
	}
	var c cli
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parser := parserOf(&c)
	unsetEmpty(parser)
	kctx, err := parser.Parse(negatives(args))
	if failed := stdout.failed(); failed != nil { // by the help
		return report(os.Stderr, failed)
	}
	if err != nil {
		return misused(err)
	}
	verb := verbOf(kctx.Selected())
	level := c.logLevel(verb)
	os.Setenv("MILLRACE_LOG_LEVEL", level.String()) // the roles' processes inherit it
	os.Setenv("MILLRACE_LOG_FORMAT", string(c.LogFormat))
	stderr := newLogWriter(os.Stderr)
	defer stderr.close()
	log := slog.New(c.LogFormat.handler(stderr, level))
	rpc.LogCertificates(log)
	if c.PythonWorkers < 0 {
		return misused(fmt.Errorf("--python-workers is %d, valid is 0 or more", c.PythonWorkers))
	}
	os.Setenv("MILLRACE_PYTHON_WORKERS", strconv.Itoa(c.PythonWorkers))
	if len(c.WorkerPools) > 0 {
		os.Setenv("MILLRACE_WORKER_POOLS", strings.Join(c.WorkerPools, ","))
	}
	functions := &functions.Set{Log: log, Workers: c.PythonWorkers, Pools: c.WorkerPools, Command: verb != "run" && !serves(verb), Run: verb == "run"}
	defer functions.Close()
	kctx.Bind(extensions{names, functions, c.LogFormat})
	kctx.BindTo(ctx, (*context.Context)(nil))
	kctx.BindTo(stderr, (*io.Writer)(nil))
	err = kctx.Run(log)
	if failed := stdout.failed(); failed != nil { // what ended the verb
		return c.LogFormat.report(stderr, failed)
	}
	code := exitInterrupted
	if serves(verb) {
		code = 0 // it is meant to be stopped so
	}
	if ctx.Err() != nil && endsWith(err, code) {
		return code
	}
	return c.LogFormat.report(stderr, err)
}

// endsWith reports whether err is no more than a signal's own doing. To a verb that is not meant
// to be stopped, all that it waited for is lost.
func endsWith(err error, code int) bool {
	return err == nil || errors.Is(err, context.Canceled) || code == exitInterrupted && fault.ClassOf(err) == fault.Lost
}

// verbOf is a verb as it is typed: run, or mix set.
func verbOf(n *kong.Node) string { return strings.TrimPrefix(n.FullPath(), "millrace ") }

// silent is above every level: what run has to say is in its summary and error.
const silent = slog.LevelError + 1

func (c *cli) logLevel(verb string) slog.Level {
	switch {
	case c.LogLevel != nil:
		return *c.LogLevel
	case verb == "run":
		return silent
	}
	return slog.LevelWarn
}

// misused says what is wrong with a command line, and where its help is.
func misused(err error) int {
	help, text := "millrace --help", err.Error()
	if parse, ok := errors.AsType[*kong.ParseError](err); ok {
		node := parse.Context.Model.Node
		if selected := parse.Context.Selected(); selected != nil {
			node, help = selected, "millrace "+verbOf(selected)+" --help"
		}
		if strings.HasPrefix(text, "unexpected argument") && !strings.Contains(text, "did you mean") && len(node.Children) > 0 {
			text += ", valid are " + strings.Join(namesOf(node.Children), ", ")
		}
	}
	fmt.Fprintf(os.Stderr, "millrace: %s; see `%s`\n", text, help)
	return exitUsage
}

func namesOf(nodes []*kong.Node) (names []string) {
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return names
}

// negatives writes --steps -1 as --steps=-1: kong takes what begins with - for a flag, and millrace has none
// that begins with a digit.
func negatives(args []string) (all []string) {
	for i, arg := range args {
		if arg == "--" { // what follows are no flags
			return append(all, args[i:]...)
		}
		negative := len(arg) > 1 && arg[0] == '-' && arg[1] >= '0' && arg[1] <= '9'
		if negative && i > 0 && strings.HasPrefix(args[i-1], "--") && !strings.Contains(args[i-1], "=") {
			all[len(all)-1] += "=" + arg
			continue
		}
		all = append(all, arg)
	}
	return all
}

// serves says whether a verb runs until it is stopped.
func serves(verb string) bool {
	return slices.Contains([]string{"serve", "planner", "loader", "constructor", "sidecar", "workers"}, verb)
}

// report prints an error, in one line, and returns its exit code.
func report(stderr io.Writer, err error) int {
	if err == nil {
		return 0
	}
	if findings, ok := errors.AsType[jobspec.Findings](err); ok {
		if fault.ClassOf(err) == fault.Lost {
			fmt.Fprintln(stderr, findings.Error()+lostAdvice)
			return exitLost
		}
		fmt.Fprintln(stderr, findings.Error())
		return exitUser
	}
	if _, ok := errors.AsType[*differsError](err); ok {
		fmt.Fprintf(stderr, "millrace: %v\n", err)
		return exitDiffers
	}
	switch fault.ClassOf(err) {
	case fault.User:
		fmt.Fprintf(stderr, "millrace: %v\n", err)
		return exitUser
	case fault.Lost:
		text := err.Error()
		if !strings.HasSuffix(text, lostAdvice) { // the end of a role's process has it already
			text += lostAdvice
		}
		fmt.Fprintf(stderr, "millrace: %s\n", text)
		return exitLost
	}
	fmt.Fprintf(stderr, "millrace: bug: %v (please report this with the command, the job spec and the log, --log-level debug)\n", err)
	return exitBug
}

const lostAdvice = " (something was lost: the spec and the data are not at fault; --log-level info tells more)"

// load reads a job spec and prints its warnings.
func load(names extensions, path string, opts ...jobspec.Option) (*jobspec.Job, error) {
	job, findings := service.Lint(path, names.Registry, opts...)
	if err := findings.Err(); err != nil {
		return nil, err
	}
	for _, f := range findings {
		names.warnings.warn(os.Stderr, f)
	}
	if names.functions != nil {
		names.functions.Default(job.Resources.PythonWorkers, job.Resources.WorkerPools)
	}
	return job, nil
}

// tlsFlags are the flags that say how roles, trainers and tools trust each other.
type tlsFlags struct {
	TLSCert  string `name:"tls-cert" help:"Certificate (PEM) of this process." type:"path" placeholder:"FILE"`
	TLSKey   string `name:"tls-key" help:"Private key (PEM) of the certificate." type:"path" placeholder:"FILE"`
	TLSCA    string `name:"tls-ca" help:"CA certificate (PEM) that peers must be signed by." type:"path" placeholder:"FILE"`
	Insecure bool   `help:"Listen on non-loopback addresses without TLS: the network is trusted."`

	AccessKeyFile string `help:"File with the service's access key (also MILLRACE_ACCESS_KEY_FILE). Default: the key left by a service of this user on this machine." type:"path" placeholder:"FILE"`
}

func (f tlsFlags) security() rpc.Security {
	return rpc.Security{CertFile: f.TLSCert, KeyFile: f.TLSKey, CAFile: f.TLSCA, Insecure: f.Insecure, AccessKeyFile: f.AccessKeyFile}
}
