package rig

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Spec is a role's process: how each of its lives is started.
type Spec struct {
	ID   string // such as loader-0
	Args func(life int) []string
	Env  func(life int) []string // beside the rig's own; nil: none
	// Delay is the time between an end and the next life.
	Delay func(life int) time.Duration
}

// Death is the end of a life that the rig did not ask for.
type Death struct {
	ID      string
	Life    int
	At      time.Time
	Lived   time.Duration
	Signal  syscall.Signal // that ended it; 0 if it ended by itself
	Code    int            // its exit code, if it ended by itself
	Message string         // its last line on standard error
}

// process keeps one role running: when a life ends, the next one begins. It is safe for
// concurrent use.
type process struct {
	rig  *Rig
	spec Spec

	mu      sync.Mutex // guards the fields below, never held while waiting
	running *os.Process
	life    int
}

// keep runs lives until ctx ends.
func (p *process) keep(ctx context.Context) error {
	for life := 1; ; life++ {
		death, err := p.live(ctx, life)
		p.mu.Lock()
		p.running = nil
		p.mu.Unlock()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := p.rig.died(death); err != nil {
			return err
		}
		select {
		case <-time.After(p.spec.Delay(life)):
		case <-ctx.Done():
			return nil
		}
	}
}

// live runs one life to its end.
func (p *process) live(ctx context.Context, life int) (Death, error) {
	runtime.LockOSThread() // the kernel ties the child's life to this thread, not to the process
	defer runtime.UnlockOSThread()
	d := Death{ID: p.spec.ID, Life: life}
	log, err := os.OpenFile(p.rig.LogOf(p.spec.ID), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return d, err
	}
	defer log.Close()
	begin := time.Now()
	args := p.spec.Args(life)
	fmt.Fprintf(log, "---- %s life %d: %s\n", begin.Format(time.StampMicro), life, strings.Join(args, " "))
	cmd := exec.Command(p.rig.opts.Binary, args...)
	cmd.Env = append(os.Environ(), p.rig.opts.Env...)
	if p.spec.Env != nil {
		cmd.Env = append(cmd.Env, p.spec.Env(life)...)
	}
	cmd.Stderr = log
	cmd.SysProcAttr = dieWithParent()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = p.start(cmd, life)
	}
	if err != nil {
		return d, fmt.Errorf("starting %s: %w", p.spec.ID, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	p.listen(out)
	err = cmd.Wait()
	d.At, d.Lived, d.Message = time.Now(), time.Since(begin), lastLine(log.Name())
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if d.Code = cmd.ProcessState.ExitCode(); status.Signaled() {
		d.Signal = status.Signal()
	}
	fmt.Fprintf(log, "---- %s life %d ended: %v\n", d.At.Format(time.StampMicro), life, err)
	return d, nil
}

// start starts the process of a life.
func (p *process) start(cmd *exec.Cmd, life int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	p.running, p.life = cmd.Process, life
	return nil
}

// listen reads what the process prints to its end. Only planners print: that they serve.
func (p *process) listen(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		p.rig.serves(p.spec.ID)
	}
}

// signal sends the process of the present life a signal; it reports whether there is one.
func (p *process) signal(s syscall.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running != nil && p.running.Signal(s) == nil
}

// lastLine is the last line of a log that a process wrote.
func lastLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-4096), io.SeekStart)
	}
	text, _ := io.ReadAll(f)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	last := lines[len(lines)-1]
	if strings.HasPrefix(last, "---- ") {
		return ""
	}
	return last
}

// LogOf is the file of what a role printed on standard error, in all its lives.
func (r *Rig) LogOf(id string) string { return filepath.Join(r.opts.Dir, id+".log") }
