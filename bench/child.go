package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"syscall"

	"github.com/millrace-data/millrace/internal/planner/scaling"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/sizing"
	"github.com/millrace-data/millrace/internal/telemetry/export"
	"github.com/millrace-data/millrace/jobspec"
)

// child runs one of the processes of a measurement. It prints reports as lines of
// JSON on stdout, and ends when stdin does.
func child(ctx context.Context, role string, args []string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	var arg string
	if len(args) > 0 {
		arg = args[0]
	}
	switch role {
	case "serve":
		return serveRole(ctx, arg)
	case "consume":
		return consumeRole(ctx, arg)
	case "bare-serve":
		return bareServe(ctx, arg)
	case "bare-consume":
		return bareConsume(ctx, arg)
	case "clients":
		return clientsRole(ctx, arg)
	case "cycle-plan":
		return cyclePlanRole(ctx, arg)
	case "cycle-load":
		return cycleLoadRole(ctx, arg)
	}
	return fmt.Errorf("unknown role %q", role)
}

// emit prints v as the child's line.
func emit(v any) error { return json.NewEncoder(os.Stdout).Encode(v) }

// serveArgs are the arguments of the role serve: `millrace serve SPEC`
// with all roles in this process, and optionally a profile.
type serveArgs struct {
	Spec    string
	Profile string
	// As in service.Options.
	Layout  *sizing.Layout
	Workers int
	Scale   scaling.Options
	LogDir  string

	Telemetry bool // it shows itself, at an address of its choice that it prints after its own, and as the environment says
}

func serveRole(ctx context.Context, arg string) error {
	var a serveArgs
	if err := json.Unmarshal([]byte(arg), &a); err != nil {
		return err
	}
	job, err := jobspec.Load(a.Spec)
	if err != nil {
		return err
	}
	defer profiled(a.Profile)()
	opts := service.Options{Job: job, Layout: a.Layout, Workers: a.Workers, Scale: a.Scale, LogDir: a.LogDir}
	service.LimitMemory(opts.Budget())
	shown, err := a.show(ctx, &opts)
	if err != nil {
		return err
	}
	defer shown.Close()
	return service.Run(ctx, opts, func(ctx context.Context, address string) error {
		err := emit(address)
		if err == nil && shown != nil {
			err = emit(shown.Addresses()[0].String())
		}
		if err != nil {
			return err
		}
		<-ctx.Done()
		if a.Profile == "" {
			return nil
		}
		return heapProfile(a.Profile + ".heap")
	})
}

// show opens the telemetry of a service; nil without.
func (a *serveArgs) show(ctx context.Context, opts *service.Options) (x *export.Exporter, err error) {
	if a.Telemetry {
		x, opts.Telemetry, err = export.Open(ctx, export.Options{Address: "127.0.0.1:0", Role: "serve"})
	}
	return x, err
}

// heapProfile writes a profile of the live heap.
func heapProfile(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	runtime.GC() // the profile is as of the last collection
	return errors.Join(pprof.WriteHeapProfile(file), file.Close())
}

// profiled profiles this process's CPU until the function it returns is called;
// "" profiles nothing. If the file cannot be made, stderr says so and nothing is profiled.
func profiled(path string) func() {
	if path == "" {
		return func() {}
	}
	file, err := os.Create(path)
	if err == nil {
		err = pprof.StartCPUProfile(file)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: no profile: %v\n", err)
		return func() {}
	}
	return func() {
		pprof.StopCPUProfile()
		file.Close()
	}
}

// process is a running child.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	out   *bufio.Reader
}

// start starts this binary in a role, with args as JSON.
func start(ctx context.Context, role string, args any) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	arg, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self, "-role", role, string(arg))}
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt arrives through stdin
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	return p, p.cmd.Start()
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// receive reads the child's next line into v.
func (p *process) receive(v any) error {
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the %s process ended early (%w): see its message above", p.cmd.Args[2], err)
	}
	return json.Unmarshal(line, v)
}

// stop ends the child.
func (p *process) stop() error {
	p.stdin.Close()
	io.Copy(io.Discard, p.out)
	return p.cmd.Wait()
}
