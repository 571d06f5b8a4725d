package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
)

// server is a fork server: the process, and the socket to it.
type server struct {
	opt   Options
	wire  *wire
	cmd   *exec.Cmd
	out   *output
	alone bool // it has no network

	asking  chan struct{} // holds one while no request waits for its answer
	replies chan serverFrame
	tasks   sync.WaitGroup
	gone    chan struct{} // closed when the process has ended
	ended   error         // how
	outside bool          // something else ended it

	answered atomic.Bool // a request

	mu      sync.Mutex
	workers []*process
}

// serverFrame is all that a fork server says.
type serverFrame struct {
	Op        string
	Protocol  int
	Python    string
	NumPy     string
	Functions []struct {
		Description
		Error   string
		Changed bool // its module's file is not the one that was imported
	}
	Threads []string
	PID     int
	Errno   int // of "forked": why there is no worker
	Signal  int
	Code    int

	exit *exit // of "forked"
}

// exit is the end of a worker as the server saw it.
type exit struct {
	told  chan struct{} // closed when it has
	frame serverFrame
}

// ask is all that a fork server is asked.
type ask struct {
	Op        string   `json:"op"`
	Functions []string `json:"functions,omitzero"`
	PID       int      `json:"pid,omitempty"`
	// Environ are variables of the worker, beside those of the server.
	Environ map[string]string `json:"environ,omitempty"`
}

// program is what the interpreter runs.
const program = "from millrace._worker import main; main()"

// startServer starts a fork server, whose run ends when it does.
func startServer(opt Options) (*server, error) {
	ours, theirs, err := wires()
	if err != nil {
		return nil, usedUp(err)
	}
	defer theirs.Close()
	s := &server{
		opt: opt, wire: ours, asking: make(chan struct{}, 1), replies: make(chan serverFrame, 1),
		gone: make(chan struct{}),
	}
	s.asking <- struct{}{}
	if s.out, err = newOutput(opt.Log); err != nil {
		return nil, errors.Join(usedUp(err), ours.conn.Close())
	}
	started := make(chan error)
	s.tasks.Go(func() { s.live(theirs, started) })
	if err := <-started; err != nil {
		s.tasks.Wait()
		s.out.end()
		s.out.wait()
		return nil, errors.Join(unstarted(err), ours.conn.Close())
	}
	s.tasks.Go(s.read)
	return s, nil
}

// unstarted is the error of an interpreter that was not started: the path's, if nothing is lacking.
func unstarted(err error) error {
	err = fmt.Errorf("starting Python: %w", err)
	if lacks := usedUp(err); fault.ClassOf(lacks) == fault.Lost {
		return lacks
	}
	return fault.Userf("%w: give the interpreter's path", err)
}

// live starts the process and waits for its end. The kernel ends a child when the *thread*
// that started it ends, so that one stays.
func (s *server) live(socket *os.File, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var err error
	for _, s.alone = range []bool{!s.opt.Network && canIsolate, false} {
		s.cmd = exec.Command(s.opt.Python, "-c", program)
		if s.cmd.Env = s.opt.environ(); s.alone {
			s.cmd.Env = append(s.cmd.Env, noNetwork)
		}
		s.cmd.ExtraFiles = []*os.File{socket}
		s.cmd.Stdout, s.cmd.Stderr = s.out.writer, s.out.writer
		s.cmd.SysProcAttr = attributes(s.alone)
		if err = s.cmd.Start(); err == nil || errors.Is(err, exec.ErrNotFound) || !s.alone {
			break
		}
	}
	if err == nil {
		expendable(s.cmd.Process.Pid)
	}
	started <- err
	if err != nil {
		return
	}
	err = s.cmd.Wait()
	s.out.end()
	s.out.wait() // for the line that says why
	s.ended = fmt.Errorf("the fork server ended (%s)%s", describeEnd(err), s.out.last())
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status, signals := exit.Sys().(syscall.WaitStatus)
		s.outside = signals && status.Signaled() && slices.Contains(fromOutside, status.Signal())
	}
	close(s.gone)
}

func describeEnd(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// read hands on what the server says, until it is gone. A process number belongs to the worker that was forked with it
// last: a server reports an end before its next fork, which is the first that may get the same number.
func (s *server) read() {
	exits := map[int]*exit{} // of the workers that have not ended
	for {
		var frame serverFrame
		if err := s.wire.receive(&frame); err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) { // stop closes it, and lets the server end what it has
				killGroup(s.cmd.Process.Pid)
			}
			return
		}
		switch frame.Op {
		case "forked":
			if frame.Errno != 0 {
				break
			}
			frame.exit = &exit{told: make(chan struct{})}
			exits[frame.PID] = frame.exit
		case "exited":
			if e := exits[frame.PID]; e != nil {
				e.frame = frame
				close(e.told)
				delete(exits, frame.PID)
			}
			continue
		}
		select {
		case s.replies <- frame:
		case <-s.gone:
			return
		}
	}
}

// enter notes a worker that processes lists, until it leaves.
func (s *server) enter(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workers = append(s.workers, p)
}

func (s *server) leave(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workers = slices.DeleteFunc(s.workers, func(other *process) bool { return other == p })
}

func (s *server) processes() []*process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.workers)
}

// ErrRestarting is part of the error of a request that no fork server has begun with: one is being started again.
var ErrRestarting = errors.New("the fork server is being started again")

// unasked is the error of a request that a server which is gone has not begun with.
func (s *server) unasked() error {
	return fault.As(fault.Lost, fmt.Errorf("%w: %w", ErrRestarting, s.ended))
}

// request asks and waits for the answer. A server that does not answer in time is ended.
func (s *server) request(ctx context.Context, within time.Duration, a ask, files ...*os.File) (serverFrame, error) {
	select {
	case <-s.asking:
	case <-s.gone:
		return serverFrame{}, s.unasked()
	case <-ctx.Done():
		return serverFrame{}, ctx.Err()
	}
	defer func() { s.asking <- struct{}{} }()
	if err := s.wire.send(a, files...); err != nil {
		<-s.gone
		return serverFrame{}, s.unasked()
	}
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case frame := <-s.replies:
		s.answered.Store(true)
		return frame, nil
	case <-s.gone:
		return serverFrame{}, fault.As(fault.Lost, s.ended)
	case <-ctx.Done(): // the answer would be taken for another's
		if a.Op == "fork" {
			_ = s.wire.conn.Close() // it imports nothing, so it ends at once, after what it has
		} else {
			killGroup(s.cmd.Process.Pid)
		}
		return serverFrame{}, ctx.Err()
	case <-late.C:
		killGroup(s.cmd.Process.Pid)
		return serverFrame{}, fault.Userf("importing %s did not end in %v%s", strings.Join(a.Functions, ", "), within, s.out.last())
	}
}

// stop ends the server, and so its workers, and waits for it.
func (s *server) stop() {
	_ = s.wire.conn.Close()
	late := time.NewTimer(stopTime)
	defer late.Stop()
	select {
	case <-s.gone:
	case <-late.C:
		killGroup(s.cmd.Process.Pid)
		<-s.gone
	}
	s.tasks.Wait()
}

// stopTime is for a server that ends its workers, which takes milliseconds.
const stopTime = 2 * time.Second
