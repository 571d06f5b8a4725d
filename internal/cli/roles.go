package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/millrace-data/millrace/internal/constructor"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner"
	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/sourceloader"
)

// serviceFlags are what the verbs that start a whole service have in common.
type serviceFlags struct {
	Job          string `arg:"" help:"Job spec (YAML)." type:"path"`
	LogDir       string `help:"Folder of the step log. Default: no log is kept." type:"path" placeholder:"DIR"`
	Loaders      int    `help:"Source loaders." default:"1"`
	Constructors int    `help:"Data constructors; at most one per DP rank." default:"1"`
	Prefetch     int    `help:"Steps planned ahead of the slowest trainer; 0 uses the spec's value." default:"0"`
	Processes    bool   `help:"Run each role in its own process."`
	scratchFlag
	rootsFlag
	changesFlag
	tlsFlags
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *serviceFlags) Validate() error {
	return checkCounts(c.Loaders, c.Constructors, c.Prefetch)
}

// options turns the flags into a service's options.
func (c *serviceFlags) options(names compile.Registry, address string, log *slog.Logger, stderr io.Writer) (service.Options, error) {
	job, err := load(names, c.Job)
	if err != nil {
		return service.Options{}, err
	}
	changes, err := c.changes()
	if err != nil {
		return service.Options{}, err
	}
	opts := service.Options{
		Job: job, Changes: changes, AllowRoots: c.AllowRoot, Address: address, Security: c.security(), LogDir: c.LogDir,
		Loaders: c.Loaders, Constructors: c.Constructors, Prefetch: c.Prefetch, Scratch: c.ScratchDir, Log: log, Registry: names, Stderr: stderr,
	}
	if c.Processes {
		if opts.Executable, err = os.Executable(); err != nil {
			return opts, fmt.Errorf("finding the millrace binary for the roles' processes: %w", err)
		}
		opts.SpecFile, opts.ChangesFile = c.Job, c.Changes
	}
	return opts, nil
}

// rootsFlag is what the verbs that start a planner have in common.
type rootsFlag struct {
	AllowRoot []string `help:"Folder that added sources may be read from, links resolved; may be repeated. Default: the folders of the job spec, of its sources' files, and its rank files." type:"existingdir" sep:"none" placeholder:"DIR"`
}

// scratchFlag is what the verbs that start a loader have in common.
type scratchFlag struct {
	ScratchDir string `help:"Folder on a local disk for samples that do not fit a loader's memory. Default: the system's folder for temporary files (TMPDIR)." type:"existingdir" placeholder:"DIR" env:"MILLRACE_SCRATCH_DIR"`
}

// reachable checks that a service that was just started can be reached at its
// own address. Its roles do so, too, and would wait without end.
func (c *serviceFlags) reachable(ctx context.Context, address string) error {
	_, err := askStatus(ctx, address, c.security())
	switch {
	case err == nil || ctx.Err() != nil:
		return ctx.Err()
	case fault.ClassOf(err) == fault.User:
		return err
	case c.TLSCert != "":
		return fault.Userf("the service cannot be reached at its own address %s: %w; the certificate %s must name that host or address and be signed by %s",
			address, err, c.TLSCert, c.TLSCA)
	}
	return fmt.Errorf("reaching the service at its own address %s: %w", address, err)
}

type serveCmd struct {
	serviceFlags
	Listen    string `help:"Address of the service, HOST:PORT or unix:PATH; port 0 takes a free one." default:"127.0.0.1:7070"`
	Advertise string `help:"Host that trainers connect to, if not the listen address. Default for a wildcard address: this machine's name." placeholder:"HOST"`
}

// Help is printed below the usage line.
func (*serveCmd) Help() string {
	return "Trainers connect with the Python package or the Go client, one connection per rank. " +
		"When the service is ready it prints one line, `serving NAME on HOST:PORT`, and runs until it is stopped (Ctrl-C or SIGTERM), which ends it with exit code 0.\n\n" +
		"If the spec is wrong or the data is damaged, the service keeps running and reports the reason to each trainer; `millrace status` shows it too. " +
		"After any other failure, such as a full disk under the step log, it reports the reason for some seconds and exits, with exit code 4 if something was lost.\n\n" +
		"Example:\n  millrace serve job.yaml --listen 127.0.0.1:7070 --log-dir /var/lib/millrace/job"
}

func (c *serveCmd) Run(ctx context.Context, log *slog.Logger, stderr io.Writer, names compile.Registry) error {
	opts, err := c.options(names, c.Listen, log, stderr)
	if err != nil {
		return err
	}
	opts.Advertise = c.Advertise
	limitMemory(opts)
	return service.Run(ctx, opts, func(ctx context.Context, address string) error {
		if err := c.reachable(ctx, address); err != nil {
			return err
		}
		fmt.Printf("serving %s on %s\n", opts.Job.Name, address)
		<-ctx.Done()
		return nil
	})
}

// limitMemory sets this process's memory limit, if the roles are in it.
func limitMemory(opts service.Options) {
	if opts.Executable == "" {
		service.LimitMemory(service.Budget(opts.Job, opts.Loaders, opts.Constructors))
	}
}

type plannerCmd struct {
	Job          string `arg:"" help:"Job spec (YAML)." type:"path"`
	Listen       string `help:"Address to listen on, HOST:PORT or unix:PATH." default:"127.0.0.1:7070"`
	Advertise    string `help:"HOST or HOST:PORT that peers connect to, if not the listen address. Default for a wildcard address: this machine's name." placeholder:"HOST"`
	LogDir       string `help:"Folder of the step log. Default: no log is kept." type:"path" placeholder:"DIR"`
	Loaders      int    `help:"Loaders to wait for before reading starts." default:"1"`
	Constructors int    `help:"Constructors that the DP ranks are spread over." default:"1"`
	Prefetch     int    `help:"Steps planned ahead of the slowest trainer; 0 uses the spec's value." default:"0"`
	rootsFlag
	changesFlag
	tlsFlags
}

// Help is printed below the usage line.
func (*plannerCmd) Help() string {
	return "One of the three roles, for a service spread over machines: start one planner, then loaders and constructors with --planner HOST:PORT. " +
		"Trainers connect to the planner. It prints `planning NAME on HOST:PORT` when it is ready, and needs TLS (--tls-*) on non-loopback addresses.\n\n" +
		"Example:\n  millrace planner job.yaml --listen 10.0.0.1:7070 --loaders 4 --constructors 2 --tls-cert me.pem --tls-key me.key --tls-ca ca.pem"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *plannerCmd) Validate() error {
	return checkCounts(c.Loaders, c.Constructors, c.Prefetch)
}

func (c *plannerCmd) Run(ctx context.Context, log *slog.Logger, names compile.Registry) error {
	job, err := load(names, c.Job)
	if err != nil {
		return err
	}
	changes, err := c.changes()
	if err != nil {
		return err
	}
	return planner.Run(ctx, planner.Options{
		Job: job, Changes: changes, AllowRoots: c.AllowRoot, Address: c.Listen, Advertise: c.Advertise, Security: c.security(), LogDir: c.LogDir,
		Loaders: c.Loaders, Constructors: c.Constructors, Prefetch: c.Prefetch, Log: log, Registry: names,
		Serving: func(address string) { fmt.Printf("planning %s on %s\n", job.Name, address) },
	})
}

type loaderCmd struct {
	Planner   string `required:"" help:"Address of the planner." placeholder:"ADDRESS"`
	Listen    string `help:"Address to listen on, HOST:PORT or unix:PATH; constructors connect to it." default:"127.0.0.1:0"`
	Advertise string `help:"HOST or HOST:PORT that peers connect to, if not the listen address. Default for a wildcard address: this machine's name." placeholder:"HOST"`
	ID        string `help:"Name in logs and status; default: the address." placeholder:"NAME"`
	Workers   int    `help:"Blocks read concurrently; 0: one per core." default:"0"`
	scratchFlag
	tlsFlags
}

// Help is printed below the usage line.
func (*loaderCmd) Help() string {
	return "Reads sources, once for the whole job. It gets the job from the planner, waiting for it if needed, and exits when the planner does. " +
		"The data files must be readable here under the paths of the job spec.\n\n" +
		"Example:\n  millrace loader --planner 10.0.0.1:7070 --listen 10.0.0.2:0 --tls-cert me.pem --tls-key me.key --tls-ca ca.pem"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *loaderCmd) Validate() error { return atLeast("--workers", int64(c.Workers), 0) }

func (c *loaderCmd) Run(ctx context.Context, log *slog.Logger) error {
	return sourceloader.Run(ctx, sourceloader.Options{
		ID: c.ID, Planner: c.Planner, Address: c.Listen, Advertise: c.Advertise, Security: c.security(), Workers: c.Workers, Scratch: c.ScratchDir, Log: log,
		OnBudget: service.LimitMemory,
	})
}

type constructorCmd struct {
	Planner   string `required:"" help:"Address of the planner." placeholder:"ADDRESS"`
	Listen    string `help:"Address to listen on, HOST:PORT or unix:PATH; trainers connect to it." default:"127.0.0.1:0"`
	Advertise string `help:"HOST or HOST:PORT that peers connect to, if not the listen address. Default for a wildcard address: this machine's name." placeholder:"HOST"`
	ID        string `help:"Name in logs and status; default: the address." placeholder:"NAME"`
	tlsFlags
}

// Help is printed below the usage line.
func (*constructorCmd) Help() string {
	return "Assembles batches from samples and delivers them to trainers. It gets the job from the planner, waiting for it if needed, and exits when the planner does.\n\n" +
		"Example:\n  millrace constructor --planner 10.0.0.1:7070 --listen 10.0.0.3:0 --tls-cert me.pem --tls-key me.key --tls-ca ca.pem"
}

func (c *constructorCmd) Run(ctx context.Context, log *slog.Logger) error {
	return constructor.Run(ctx, constructor.Options{
		ID: c.ID, Planner: c.Planner, Address: c.Listen, Advertise: c.Advertise, Security: c.security(), Log: log, OnBudget: service.LimitMemory,
	})
}

func checkCounts(loaders, constructors, prefetch int) error {
	return cmp.Or(atLeast("--loaders", int64(loaders), 1), atLeast("--constructors", int64(constructors), 1), atLeast("--prefetch", int64(prefetch), 0),
		atMost("--loaders", loaders, maxLoaders), atMost("--prefetch", prefetch, maxPrefetch))
}

// Limits of flags, so that a slip of the finger does not fill a machine.
const (
	maxLoaders  = 4096    // ten times the loaders of the largest job that was measured
	maxPrefetch = 1 << 20 // as in a spec
)

// atMost refuses a flag whose value is too large.
func atMost(flag string, value, most int) error {
	if value > most {
		return fmt.Errorf("%s is %d, valid is %d or less", flag, value, most)
	}
	return nil
}

// atLeast refuses a flag whose value is too small.
func atLeast(flag string, value, least int64) error {
	if value < least {
		return fmt.Errorf("%s is %d, valid is %d or more", flag, value, least)
	}
	return nil
}
