package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/internal/constructor"
	"github.com/millrace-data/millrace/internal/handover"
	"github.com/millrace-data/millrace/internal/nvml"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/sourceloader"
)

// sidecarCmd is the constructor of a trainers' node, with loaders for what the node has idle
// (arXiv 2504.09844, section 6.2).
type sidecarCmd struct {
	plannerFlags
	Listen    string  `help:"Address to listen on, HOST:PORT or unix:PATH; trainers connect to it. Loaders take a free port of the same host." default:"127.0.0.1:0"`
	Advertise string  `help:"Host that peers connect to, if not the listen address. Default for a wildcard address: this machine's name." placeholder:"HOST"`
	ID        string  `help:"Name in logs and status; default: the address." placeholder:"NAME"`
	Node      *uint32 `help:"Number of this node among those of the trainers, from 0 on: its constructor serves the DP ranks that begin there, as --ranks-per-node of the planner says." placeholder:"K" env:"MILLRACE_NODE,SLURM_NODEID,JOB_COMPLETION_INDEX"`
	Loaders   int     `help:"Source loaders beside the constructor." default:"1"`
	Workers   int     `help:"Blocks that each loader reads concurrently; 0: one for every four cores." default:"0"`
	scratchFlag
	sharedFlag
	memoryFlag
	telemetryFlags
	tlsFlags
}

// Help is printed below the usage line.
func (*sidecarCmd) Help() string {
	return "Runs beside the trainers of a node: a constructor, which serves them, and loaders for the cores that the trainers leave idle, in one process. " +
		"Start one on each node, and the planner with --ranks-per-node and a --loaders of as many as are needed. More loaders may run elsewhere.\n\n" +
		"Example, on each node:\n  millrace sidecar --planner 10.0.0.1:7070 --listen 0.0.0.0:0 --node 3 --tls-cert me.pem --tls-key me.key --tls-ca ca.pem"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *sidecarCmd) Validate() error {
	if host, port, err := net.SplitHostPort(c.Advertise); err == nil && host != "" && port != "" {
		return errors.New("--advertise of a sidecar is a host alone, as each of its roles has a port of its own")
	}
	return cmp.Or(c.memoryFlag.check(), c.scratchFlag.check(), atLeast("--loaders", int64(c.Loaders), 0), atMost("--loaders", c.Loaders, service.MaxLoaders), atLeast("--workers", int64(c.Workers), 0))
}

func (c *sidecarCmd) Run(ctx context.Context, log *slog.Logger, names extensions) error {
	names.functions.Secure(c.security())
	board, hide, err := c.show(ctx, "sidecar", c.ID, c.security(), log)
	if err != nil {
		return err
	}
	defer hide()
	exchange := new(handover.Exchange)
	all := float64(2*c.Loaders + 1) // a loader has twice what the constructor has, as by default
	memory := c.memory(service.Roles{Loader: 2 / all, Constructor: 1 / all}, log)
	gpus, library := new(nvml.Watch), nvml.Open(log)
	defer library.Close()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { gpus.Run(ctx, library); return nil })
	g.Go(func() error {
		return constructor.Run(ctx, constructor.Options{
			ID: c.ID, Node: c.Node, Planner: c.Planner, Patience: c.PlannerWait, Address: c.Listen, Advertise: c.Advertise, Security: c.security(), Log: log,
			Drain: drainTime, Fit: memory.Constructor, Exchange: exchange, SharedDir: c.SharedDir, Telemetry: board, GPUs: gpus.Last,
		})
	})
	for i := range c.Loaders {
		g.Go(func() error {
			return sourceloader.Run(ctx, sourceloader.Options{
				ID: c.loaderID(i), Planner: c.Planner, Patience: c.PlannerWait, Address: c.loaderAddress(i), Advertise: c.Advertise, Security: c.security(), Log: log,
				Workers: cmp.Or(c.Workers, max(runtime.GOMAXPROCS(0)/4, 1)), Scratch: c.ScratchDir, Drain: drainTime, Fit: memory.Loader, Exchange: exchange,
				OnWorkers: names.functions.Default, Functions: names.functions.Open, Environments: names.functions.Environments, Telemetry: board,
			})
		})
	}
	return g.Wait()
}

// loaderID is the name of a loader of a sidecar that has one.
func (c *sidecarCmd) loaderID(i int) string {
	if c.ID == "" {
		return ""
	}
	return fmt.Sprintf("%s-loader-%d", c.ID, i)
}

// loaderAddress is where a loader listens: beside the constructor.
func (c *sidecarCmd) loaderAddress(i int) string {
	if path, ok := strings.CutPrefix(c.Listen, "unix:"); ok {
		return fmt.Sprintf("unix:%s.loader-%d", path, i)
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return c.Listen // the constructor says what is wrong with it
	}
	return net.JoinHostPort(host, "0")
}
