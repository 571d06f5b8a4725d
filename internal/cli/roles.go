package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/constructor"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/fleet"
	"github.com/millrace-data/millrace/internal/planner"
	"github.com/millrace-data/millrace/internal/planner/scaling"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/sourceloader"
	"github.com/millrace-data/millrace/jobspec"
)

// serviceFlags are what the verbs that start a whole service have in common.
type serviceFlags struct {
	Job          string `arg:"" help:"Job spec (YAML)." type:"path"`
	Loaders      *int   `help:"Source loaders. Default: as --sizing says, else 1." placeholder:"N"`
	Constructors int    `help:"Data constructors; at most one per DP rank." default:"1"`
	Prefetch     int    `help:"Steps planned ahead of the slowest trainer; 0 uses the spec's value." default:"0"`
	MostLoaders  int    `help:"Loaders at most: more than --loaders start when the mix needs them, and end when it does not. Default: none more." placeholder:"N"`
	sizingFlag
	Processes bool `help:"Run each role in its own process."`
	keepFlags
	shadowFlags
	scratchFlag
	memoryFlag
	rootsFlag
	changesFlag
	telemetryFlags
	tlsFlags
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *serviceFlags) Validate() error {
	return cmp.Or(c.keepFlags.check(), c.shadowFlags.check(), c.memoryFlag.check(), c.scratchFlag.check(), c.rootsFlag.check(), c.pinned(c.Loaders), atMost("--most-loaders", c.MostLoaders, service.MaxLoaders), checkCounts(count(c.Loaders), c.Shadows, c.Constructors, c.Prefetch))
}

// options turns the flags into a service's options.
func (c *serviceFlags) options(names extensions, address string, log *slog.Logger, stderr io.Writer) (service.Options, error) {
	job, err := load(names, c.Job)
	if err != nil {
		return service.Options{}, err
	}
	changes, err := c.changes()
	if err != nil {
		return service.Options{}, err
	}
	names.functions.Secure(c.security())
	opts := service.Options{
		Job: job, Changes: changes, AllowRoots: c.AllowRoot, Address: address, Security: c.security(), LogDir: c.LogDir, LogMirror: c.LogMirror, LogRetain: c.LogRetain,
		Loaders: count(c.Loaders), Shadows: c.Shadows, HotShadows: c.hot(), Constructors: c.Constructors, Prefetch: c.Prefetch, Scratch: c.ScratchDir, Log: log, Registry: names.Registry, Functions: names.functions.Open, Environments: names.functions.Environments, Stderr: stderr,
	}
	opts.Scale.Most = c.MostLoaders
	if c.Loaders == nil {
		if opts.Layout, err = c.layout(job, c.LogDir, service.SizeOptions{Constructors: c.Constructors, Processes: c.Processes}, log); err != nil {
			return opts, err
		}
	}
	if c.Processes {
		if opts.Executable, err = os.Executable(); err != nil {
			return opts, fmt.Errorf("finding the millrace binary for the roles' processes: %w", err)
		}
		opts.SpecFile, opts.ChangesFile = c.Job, c.Changes
	}
	opts.Memory = c.memory(opts.Roles(), log)
	return opts, nil
}

// keepFlags are what the verbs that start a planner have in common about its step log.
type keepFlags struct {
	LogDir    string `help:"Folder of the step log. Default: no log is kept." type:"path" placeholder:"DIR"`
	LogMirror string `help:"Object store with a second copy of the step log, by which another machine can take over: file:///folder, or s3://BUCKET/PREFIX, one prefix for each job. Needs --log-dir." placeholder:"URL" env:"MILLRACE_LOG_MIRROR"`
	LogRetain int    `help:"Steps that the step log keeps below those that it takes to go on: earlier ones are let go of, and resume tokens of earlier ones are refused. At least 256, as a log lets go of 256 steps at a time. 0 keeps all." default:"0" placeholder:"STEPS"`
}

// check refuses what is said of a log that is not kept, and one that would retain too little.
func (f *keepFlags) check() error {
	switch {
	case f.LogMirror != "" && f.LogDir == "":
		return errors.New("--log-mirror keeps a second copy of the log in --log-dir: give both")
	case f.LogRetain != 0 && f.LogDir == "":
		return errors.New("--log-retain lets go of old steps of the log in --log-dir: give both")
	case f.LogRetain != 0 && f.LogRetain < checkpoint.TrimEvery:
		return fmt.Errorf("--log-retain is %d, valid is %d or more, as a log lets go of %d steps at a time; or 0, to keep all", f.LogRetain, checkpoint.TrimEvery, checkpoint.TrimEvery)
	}
	return nil
}

// shadowFlags are what the verbs that start a planner have in common about shadows.
type shadowFlags struct {
	Shadows    int    `help:"Loaders beside --loaders that read nothing for the job while all is well. One takes the place of a loader that is lost or does not answer." default:"0"`
	ShadowMode string `help:"What shadows do until then: warm ones have all sources open; hot ones also read what the loaders that they stand by for read, for as much memory and as many reads." enum:"warm,hot" default:"warm"`
}

// check refuses what is said of shadows that are not there.
func (s *shadowFlags) check() error {
	if s.hot() && s.Shadows == 0 {
		return errors.New("--shadow-mode hot says what shadows do, and there are none: give --shadows, too")
	}
	return nil
}

// hot says whether shadows read along.
func (s *shadowFlags) hot() bool { return s.ShadowMode == service.ShadowMode(true) }

// rootsFlag is what the verbs that start a planner have in common.
type rootsFlag struct {
	AllowRoot []string `help:"Folder that added sources may be read from, links resolved; may be repeated. Default: the folder of the job spec, what the files of its sources begin with before a wildcard, the files of its tokenizers and chat templates, and where its call steps keep answers; for Python functions also the folders of its own and of their interpreters." type:"path" sep:"none" placeholder:"DIR"`
}

// check refuses folders that are not there.
func (f *rootsFlag) check() error { return areFolders("--allow-root", f.AllowRoot...) }

// scratchFlag is what the verbs that start a loader have in common.
type scratchFlag struct {
	ScratchDir string `help:"Folder on a local disk for samples that do not fit a loader's memory. Default: the system's folder for temporary files (TMPDIR)." type:"path" placeholder:"DIR" env:"MILLRACE_SCRATCH_DIR"`
}

// check refuses a folder that is not there.
func (f *scratchFlag) check() error {
	if f.ScratchDir == "" {
		return nil
	}
	return areFolders("--scratch-dir", f.ScratchDir)
}

// checkedFlag is what the verbs of roles have in common that a service starts as its processes (service.Options.Executable).
type checkedFlag struct {
	FoldersChecked bool `help:"The service that starts this process has checked the folders of its flags. One that is gone when a role is started again does not keep it from going on." hidden:""`
}

// areFolders refuses what is no folder.
func areFolders(flag string, paths ...string) error {
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", flag, err)
		case !info.IsDir():
			return fmt.Errorf("%s: %s is not a folder", flag, path)
		}
	}
	return nil
}

// memoryFlag is what the verbs that run loaders or constructors have in common.
type memoryFlag struct {
	Memory string `help:"Memory that this process may take, with those that it starts, such as 8GiB: larger buffers of the job are made smaller. Default: what its control group (cgroup) has." placeholder:"BYTES" env:"MILLRACE_MEMORY"`
}

// sharedFlag is where a constructor has its socket for ranks of the same machine.
type sharedFlag struct {
	SharedDir string `help:"Folder of the socket through which ranks of this machine and user get their batches in shared memory; none: they get none. In two containers of a pod it is one volume, and ranks have MILLRACE_SHARED_DIR. Default: a folder of the user's in the system's folder for temporary files." placeholder:"DIR" env:"MILLRACE_SHARED_DIR"`
}

// check refuses what is no number of bytes.
func (f *memoryFlag) check() error {
	if f.Memory == "" {
		return nil
	}
	n, err := jobspec.ParseBytes(f.Memory)
	if err != nil {
		return fmt.Errorf("--memory: %w", err)
	}
	if n < service.LeastMemory {
		return fmt.Errorf("--memory is %s: a process takes %d bytes beside its buffers; with a unit it is such as 8GiB", f.Memory, int64(service.LeastMemory))
	}
	return nil
}

// memory is what roles of this process get.
func (f *memoryFlag) memory(roles service.Roles, log *slog.Logger) *service.Memory {
	asked, _ := jobspec.ParseBytes(f.Memory) // it was checked; 0 without
	return service.NewMemory(asked, roles, log)
}

// reach connects to a service that was just started, at its own address. Its roles do so, too, and would wait without end
// where it cannot be reached.
func (c *serviceFlags) reach(ctx context.Context, address string) (rpc.Conn, error) {
	conn, err := rpc.Dial(address, c.security())
	if err != nil {
		return nil, err
	}
	_, err = askOver(ctx, conn)
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case err == nil:
		return conn, nil
	case fault.ClassOf(err) != fault.User:
		err = fmt.Errorf("reaching the service at its own address %s: %w", address, err)
	}
	_ = conn.Close() // nothing was begun on it
	return nil, err
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

func (c *serveCmd) Run(ctx context.Context, log *slog.Logger, stderr io.Writer, names extensions) error {
	opts, err := c.options(names, c.Listen, log, stderr)
	if err != nil {
		return err
	}
	opts.Advertise = c.Advertise
	hide, err := c.show(ctx, &opts)
	if err != nil {
		return err
	}
	defer hide()
	return service.Run(ctx, opts, func(ctx context.Context, address string) error {
		conn, err := c.reach(ctx, address)
		if err != nil {
			return err
		}
		_ = conn.Close() // it has said what it was to say
		fmt.Fprintf(stdout, "serving %s on %s\n", opts.Job.Name, address)
		<-ctx.Done()
		return nil
	})
}

// show shows the roles, if they are in this process; those in processes of their own show themselves.
func (c *serviceFlags) show(ctx context.Context, opts *service.Options) (hide func(), err error) {
	if opts.Executable != "" {
		opts.TelemetryFlags = service.TelemetryFlags{Address: c.Telemetry, Pprof: c.Pprof}
		return func() {}, nil
	}
	opts.Telemetry, hide, err = c.telemetryFlags.show(ctx, "service", "", c.security(), opts.Log)
	return hide, err
}

type plannerCmd struct {
	Job          string `arg:"" help:"Job spec (YAML)." type:"path"`
	Listen       string `help:"Address to listen on, HOST:PORT or unix:PATH." default:"127.0.0.1:7070"`
	Advertise    string `help:"HOST or HOST:PORT that peers connect to, if not the listen address. Default for a wildcard address: this machine's name." placeholder:"HOST"`
	Standby      bool   `help:"Wait until there is a log in --log-dir and no other planner has it open, or with --log-mirror until the planner that writes there is gone; then take over. Give loaders, constructors and clients both addresses: --planner A,B."`
	MirrorProved bool   `help:"Say that the store of --log-mirror took these credentials before, from a planner that this one is started in place of: where it denies access, that is tried again for a while, and not the end at once."`
	Loaders      *int   `help:"Loaders to wait for before reading starts. Default: those of --sizing, else 1." placeholder:"N"`
	MostLoaders  int    `help:"Say in the status how many loaders the mix needs, up to this number, or have --scale-command start and end them. Default: none more than --loaders." placeholder:"N"`
	ScaleCommand string `help:"Command that starts and ends loaders for --most-loaders, run by the shell with ROLE, COUNT and DRAINED in its environment." placeholder:"COMMAND"`
	Sizing       string `help:"File that says which loader reads what, as plan --sizing --yaml prints it; start loaders with --place." type:"path" placeholder:"FILE"`
	Constructors int    `help:"Constructors that the DP ranks are spread over. Default: 1, or with --ranks-per-node one for each node." placeholder:"N"`
	RanksPerNode int    `help:"Trainer ranks of a node: sidecars serve the DP ranks that begin on their --node." placeholder:"N"`
	Prefetch     int    `help:"Steps planned ahead of the slowest trainer; 0 uses the spec's value." default:"0"`
	keepFlags
	shadowFlags
	rootsFlag
	checkedFlag
	changesFlag
	telemetryFlags
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
	if c.Standby && c.LogDir == "" {
		return errors.New("--standby takes over with the log: give --log-dir, the same as that of the planner that it stands by for, or, on another machine, the same --log-mirror and a folder of its own")
	}
	if c.MirrorProved && c.LogMirror == "" {
		return errors.New("--mirror-proved says something of the store of --log-mirror: give both")
	}
	if c.Sizing != "" && c.Loaders != nil {
		return errBothLoaders
	}
	if err := c.scales(count(c.Loaders)); err != nil {
		return err
	}
	if err := c.rootsFlag.check(); err != nil && !c.FoldersChecked {
		return err
	}
	return cmp.Or(c.keepFlags.check(), c.shadowFlags.check(), atMost("--most-loaders", c.MostLoaders, service.MaxLoaders), checkCounts(count(c.Loaders), c.Shadows, max(c.Constructors, 1), c.Prefetch), atLeast("--constructors", int64(c.Constructors), 0), atLeast("--ranks-per-node", int64(c.RanksPerNode), 0))
}

// scales refuses a command that would never be run, as there may be no more loaders than the job begins with.
func (c *plannerCmd) scales(loaders int) error {
	switch {
	case c.ScaleCommand != "" && c.MostLoaders == 0:
		return errors.New("--scale-command scales up to --most-loaders: give both")
	case c.ScaleCommand != "" && c.MostLoaders <= loaders:
		return fmt.Errorf("--scale-command scales up to --most-loaders, which is %d: valid is more than the loaders that the job begins with, %d", c.MostLoaders, loaders)
	}
	return nil
}

func (c *plannerCmd) Run(ctx context.Context, log *slog.Logger, names extensions) error {
	job, err := load(names, c.Job)
	if err != nil {
		return err
	}
	changes, err := c.changes()
	if err != nil {
		return err
	}
	loaders, deal := count(c.Loaders), [][]int(nil)
	if c.Sizing != "" {
		layout, err := readLayout(c.Sizing, job)
		if err != nil {
			return err
		}
		loaders, deal = len(layout.Loaders), layout.Deal(service.SourceNames(job))
		if err := c.scales(loaders); err != nil {
			return fault.As(fault.User, err)
		}
	}
	board, hide, err := c.show(ctx, "planner", "", c.security(), log)
	if err != nil {
		return err
	}
	defer hide()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var scaling errgroup.Group
	scale := c.scale(ctx, loaders, &scaling, log)
	err = planner.Run(ctx, planner.Options{
		Job: job, Deal: deal, Scale: scale, Changes: changes, AllowRoots: c.AllowRoot, Address: c.Listen, Advertise: c.Advertise, Security: c.security(), LogDir: c.LogDir, LogMirror: c.LogMirror, LogRetain: c.LogRetain,
		Loaders: loaders, Shadows: c.Shadows, HotShadows: c.hot(), Constructors: c.Constructors, Prefetch: c.Prefetch, Log: log, Registry: names.Registry,
		Standby: c.Standby, MirrorProved: c.MirrorProved, RanksPerNode: c.RanksPerNode, Telemetry: board,
		Serving: func(address string) { fmt.Fprintf(stdout, "planning %s on %s\n", job.Name, address) },
	})
	stop()
	return cmp.Or(err, scaling.Wait())
}

// scale has loaders scaled, by a command if there is one.
func (c *plannerCmd) scale(ctx context.Context, loaders int, work *errgroup.Group, log *slog.Logger) (s scaling.Options) {
	if c.MostLoaders <= loaders {
		return s
	}
	s.Most, s.Fleet = c.MostLoaders, fleet.Asked{}
	if c.ScaleCommand != "" {
		command := fleet.NewCommand(c.ScaleCommand, log)
		work.Go(func() error { return command.Run(ctx) })
		s.Fleet = command
	}
	return s
}

// plannerFlags are what the verbs that need a planner have in common.
type plannerFlags struct {
	Planner     string        `required:"" help:"Address of the planner, or several, separated by commas: where it is, and where others may take its place." placeholder:"ADDRESS"`
	PlannerWait time.Duration `help:"How long to go on without a planner, such as 10m; 0: until it is stopped." default:"0" placeholder:"DURATION"`
}

type loaderCmd struct {
	plannerFlags
	Listen    string `help:"Address to listen on, HOST:PORT or unix:PATH; constructors connect to it." default:"127.0.0.1:0"`
	Advertise string `help:"HOST or HOST:PORT that peers connect to, if not the listen address. Default for a wildcard address: this machine's name." placeholder:"HOST"`
	ID        string `help:"Name in logs and status; default: the address." placeholder:"NAME"`
	Workers   int    `help:"Blocks read concurrently; 0: one per core." default:"0"`
	Buffer    int64  `help:"Bytes of samples to hold; 0: as resources.loader_buffer of the job spec says." default:"0" placeholder:"BYTES"`
	Place     int    `help:"Share of the reading to ask for, from 0: the number of a loader in the file of planner --sizing. Default: any." default:"-1" placeholder:"N"`
	scratchFlag
	checkedFlag
	memoryFlag
	telemetryFlags
	tlsFlags
}

// Help is printed below the usage line.
func (*loaderCmd) Help() string {
	return "Reads sources, once for the whole job. It gets the job from the planner, waiting for it if needed. When the planner goes away it keeps what it has, and waits for the planner, or one that takes its place. " +
		"The data files must be readable here under the paths of the job spec.\n\n" +
		"Example:\n  millrace loader --planner 10.0.0.1:7070 --listen 10.0.0.2:0 --tls-cert me.pem --tls-key me.key --tls-ca ca.pem"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *loaderCmd) Validate() error {
	if err := c.scratchFlag.check(); err != nil && !c.FoldersChecked {
		return err
	}
	return cmp.Or(c.memoryFlag.check(), atLeast("--workers", int64(c.Workers), 0), atLeast("--buffer", c.Buffer, 0), atLeast("--place", int64(c.Place), -1), atMost("--place", c.Place, service.MaxLoaders-1))
}

func (c *loaderCmd) Run(ctx context.Context, log *slog.Logger, names extensions) error {
	board, hide, err := c.show(ctx, "loader", c.ID, c.security(), log)
	if err != nil {
		return err
	}
	defer hide()
	names.functions.Secure(c.security())
	return sourceloader.Run(ctx, sourceloader.Options{
		ID: c.ID, Planner: c.Planner, Patience: c.PlannerWait, Address: c.Listen, Advertise: c.Advertise, Security: c.security(), Workers: c.Workers, Buffer: c.Buffer, Place: c.Place + 1, Scratch: c.ScratchDir, Log: log,
		Drain: drainTime, Fit: c.memory(service.Roles{Loader: 1}, log).Loader, OnWorkers: names.functions.Default, Functions: names.functions.Open, Environments: names.functions.Environments, Telemetry: board,
	})
}

type constructorCmd struct {
	plannerFlags
	Listen    string `help:"Address to listen on, HOST:PORT or unix:PATH; trainers connect to it." default:"127.0.0.1:0"`
	Advertise string `help:"HOST or HOST:PORT that peers connect to, if not the listen address. Default for a wildcard address: this machine's name." placeholder:"HOST"`
	ID        string `help:"Name in logs and status; default: the address." placeholder:"NAME"`
	sharedFlag
	memoryFlag
	telemetryFlags
	tlsFlags
}

// Help is printed below the usage line.
func (*constructorCmd) Help() string {
	return "Assembles batches from samples and delivers them to trainers. It gets the job from the planner, waiting for it if needed. When the planner goes away it goes on delivering what is planned, and waits for the planner, or one that takes its place.\n\n" +
		"Example:\n  millrace constructor --planner 10.0.0.1:7070 --listen 10.0.0.3:0 --tls-cert me.pem --tls-key me.key --tls-ca ca.pem"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *constructorCmd) Validate() error { return c.memoryFlag.check() }

func (c *constructorCmd) Run(ctx context.Context, log *slog.Logger) error {
	board, hide, err := c.show(ctx, "constructor", c.ID, c.security(), log)
	if err != nil {
		return err
	}
	defer hide()
	return constructor.Run(ctx, constructor.Options{
		ID: c.ID, Planner: c.Planner, Patience: c.PlannerWait, Address: c.Listen, Advertise: c.Advertise, Security: c.security(), Log: log, Drain: drainTime, Fit: c.memory(service.Roles{Constructor: 1}, log).Constructor, SharedDir: c.SharedDir, Telemetry: board,
	})
}

// drainTime is how long a loader or a constructor that is asked to stop finishes what others
// wait for: with what the planner and the server take, it is gone in less than ten seconds.
const drainTime = 4 * time.Second

// count is a number of loaders that may be left out.
func count(loaders *int) int {
	if loaders == nil {
		return 1
	}
	return *loaders
}

func checkCounts(loaders, shadows, constructors, prefetch int) error {
	return cmp.Or(atLeast("--loaders", int64(loaders), 1), atLeast("--shadows", int64(shadows), 0), atMost("--shadows", shadows, service.MaxLoaders), atLeast("--constructors", int64(constructors), 1), atLeast("--prefetch", int64(prefetch), 0),
		atMost("--loaders", loaders, service.MaxLoaders), atMost("--prefetch", prefetch, service.MaxPrefetch))
}

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
