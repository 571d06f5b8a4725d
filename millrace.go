// Package millrace is what other programs build on: Main is the command line, with
// strategies, row methods and feedback policies of the program's own, and Serve is a whole service
// in this process. Package client is for trainers, which need nothing of this.
//
// It owns no behaviour: it names what lies under internal and holds it together.
package millrace

import (
	"context"
	"log/slog"

	"github.com/millrace-data/millrace/internal/cli"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/jobspec"
)

// Registry holds the strategies, row methods and feedback policies that job specs may name besides the
// built-in ones. Do not change it once it is passed on. The zero value adds nothing.
type Registry = compile.Registry

// UserError is an error that the caller mends: a job spec, data, an option or a request.
// Its message says what to change. Test for it with errors.As or errors.AsType.
type UserError = fault.UserError

// LostError says that a machine, process, disk or the network went away, or that a
// deadline passed. Neither the spec nor the data is at fault, and trying again may help.
// An error that is neither a UserError, a LostError nor the context's own is a bug.
type LostError = fault.LostError

// Security says how the service and its clients trust each other. The zero value is plain
// text, on loopback only, with an access key that clients of the same user find.
type Security = rpc.Security

// Main runs the command line given by args, without the program's name, and returns the
// exit code; docs/cli.md is the manual. A program that calls it with a registry is
// millrace for job specs that use these names:
//
//	os.Exit(millrace.Main(os.Args[1:], millrace.Registry{Strategies: strategy.Set{"mine": plan}}))
//
// With `--processes` the roles run the same program again, so call Main before anything
// else happens.
func Main(args []string, names Registry) int { return cli.Main(args, names) }

// Load reads and checks the job spec at path. The job is nil if there is an error among
// the findings; Findings.Err returns it as a UserError.
func Load(path string, names Registry) (*jobspec.Job, jobspec.Findings) {
	return service.Lint(path, names)
}

// Options configure a service. The zero value has one loader and one constructor, keeps
// no step log and listens on a free port of 127.0.0.1.
type Options struct {
	Registry     Registry     // for the names in the job spec
	Address      string       // of the service, HOST:PORT or unix:PATH
	Advertise    string       // host that trainers reach it at; default: that of the address, or the machine's name
	Security     Security     //
	LogDir       string       // folder of the step log; default: none is kept
	Loaders      int          // default 1, at most 4096
	Constructors int          // default 1, at most one for each DP rank
	Prefetch     int          // steps planned ahead of the slowest rank, at most 2^20; default: the job spec's
	Workers      int          // blocks each loader reads at a time; default GOMAXPROCS
	Scratch      string       // folder for samples that do not fit a loader's memory; default os.TempDir
	AllowRoots   []string     // folders that sources which join are read from; default: the job's own
	Log          *slog.Logger // default: discard
}

// Serve starts a service for a job in this process, calls use with its address, and stops
// the service when use returns or ctx ends. Trainers connect with package client, from
// this process or others, until then. Serve returns the error of use, or that of the first
// part of the service that ended before; it is then of type UserError or LostError, or a
// bug. A job that is nil and options below 0 are a UserError. Several services may run at the same time.
func Serve(ctx context.Context, job *jobspec.Job, o Options, use func(ctx context.Context, address string) error) error {
	if err := o.Registry.Check(); err != nil {
		return err
	}
	return service.Run(ctx, service.Options{
		Job: job, Registry: o.Registry, Address: o.Address, Advertise: o.Advertise, Security: o.Security, LogDir: o.LogDir,
		Loaders: o.Loaders, Constructors: o.Constructors, Prefetch: o.Prefetch, Workers: o.Workers, Scratch: o.Scratch,
		AllowRoots: o.AllowRoots, Log: o.Log,
	}, use)
}
