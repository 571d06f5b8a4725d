package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/functions"
	"github.com/millrace-data/millrace/internal/pool"
	"github.com/millrace-data/millrace/internal/worker"
	"github.com/millrace-data/millrace/jobspec"
)

type workersCmd struct {
	Listen       string   `help:"Address to listen on, HOST:PORT or unix:PATH; loaders connect to it. Port 0 takes a free one." default:"127.0.0.1:7080"`
	Advertise    string   `help:"HOST or HOST:PORT that loaders connect to, if not the listen address. Default for a wildcard address: this machine's name." placeholder:"HOST"`
	Env          []string `help:"Interpreter that has millrace, NumPy and the functions' packages; may be repeated. The first one that has a function's module serves it." sep:"none" default:"python=python3" placeholder:"NAME=INTERPRETER"`
	Path         []string `help:"Folder of the functions' modules, the same files as the loaders'; may be repeated." type:"existingdir" sep:"none" default:"." placeholder:"DIR"`
	Workers      int      `help:"Worker processes of each environment; 0: one per core." default:"0"`
	WorkerMemory string   `help:"The most memory that a step may let a worker have, such as 4GiB: functions that may have more are not served. Default: what the step says." placeholder:"SIZE"`
	Network      bool     `help:"Let functions use the network whose step says network: true. Without it they are not served."`
	tlsFlags

	memory int64 // WorkerMemory
}

// Help is printed below the usage line.
func (*workersCmd) Help() string {
	return "A pool of worker processes for Python functions, on a machine with many cores, or with GPUs. Loaders that name it with --worker-pools, or whose job does, " +
		"send it batches beside their own workers. It serves a function if it has the very same module file, and the same versions of Python and NumPy. " +
		"It may come and go while jobs run: what it had runs elsewhere, and no byte depends on it. It prints `workers on HOST:PORT` when it is ready.\n\n" +
		"Example:\n  millrace workers --listen 10.0.0.9:7080 --path . --env train=.venv/bin/python --tls-cert me.pem --tls-key me.key --tls-ca ca.pem"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *workersCmd) Validate() (err error) {
	if c.WorkerMemory != "" {
		if c.memory, err = jobspec.ParseBytes(c.WorkerMemory); err != nil {
			return fmt.Errorf("--worker-memory: %w", err)
		}
	}
	return atLeast("--workers", int64(c.Workers), 0)
}

func (c *workersCmd) Run(ctx context.Context, log *slog.Logger) error {
	interpreters, err := interpretersOf(c.Env)
	if err != nil {
		return err
	}
	gpus := sync.OnceValue(func() *worker.GPUs { return functions.GPUs(log) })
	opt := pool.Options{
		Address: c.Listen, Advertise: c.Advertise, Security: c.security(), Interpreters: interpreters, Path: c.Path, Workers: cmp.Or(c.Workers, runtime.GOMAXPROCS(0)), Memory: c.memory, Network: c.Network, GPUs: gpus, Drain: drainTime, Log: log,
		Serving: func(address string) { fmt.Fprintf(stdout, "workers on %s\n", address) },
	}
	return pool.Run(ctx, opt)
}

// interpretersOf reads NAME=INTERPRETER.
func interpretersOf(env []string) (all []pool.Interpreter, err error) {
	for _, text := range env {
		name, path, ok := strings.Cut(text, "=")
		if !ok || name == "" || path == "" {
			return nil, fault.Userf("--env is %q: give NAME=INTERPRETER, such as train=.venv/bin/python", text)
		}
		if path, err = exec.LookPath(path); err != nil {
			return nil, fault.Userf("--env %s: %w: give the path of an interpreter", text, err)
		}
		if path, err = filepath.Abs(path); err != nil { // a link stays one: by its place Python knows its environment
			return nil, err
		}
		all = append(all, pool.Interpreter{Name: name, Path: path})
	}
	return all, nil
}
