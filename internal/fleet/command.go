package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// commandTime is how long a command may take: the slowest that was seen, kubectl against a cluster that is busy, needs
	// some ten seconds.
	commandTime = time.Minute
	// The pause after a command that failed doubles from firstPause to lastPause: a scaler decides every few seconds, and
	// who asks the same machine for hours should not fill its log.
	firstPause = time.Second
	lastPause  = time.Minute
	// mostOutput of a command is kept for messages.
	mostOutput = 2 << 10
)

// Command is a fleet that has a command of the user's do what it is asked for: it is run by the shell with the environment
// variables ROLE, COUNT and DRAINED (names separated by spaces), each time one of them changed, and again, with pauses that grow, while fewer
// members are there than it was asked for. A command that fails, or
// takes more than a minute, which ends all that it started, is run again after a pause that grows, with what is wanted by then. It never ends a job.
type Command struct {
	text  string
	log   *slog.Logger
	time  time.Duration
	pause time.Duration

	mu      sync.Mutex // guards the fields below
	wanted  map[Role]want
	done    map[Role]want // by commands that ended well; none of a role whose last one failed
	short   map[Role]*short
	problem string
	token   chan struct{} // something is to be done, or changed
	watch   []chan struct{}
}

type want struct {
	count   int
	drained string
}

// NewCommand returns a fleet that runs a command.
func NewCommand(text string, log *slog.Logger) *Command {
	return &Command{text: text, log: log, time: commandTime, pause: firstPause, wanted: map[Role]want{}, done: map[Role]want{}, short: map[Role]*short{}, token: make(chan struct{}, 1)}
}

// Run runs the command whenever something else is wanted, until ctx ends.
func (c *Command) Run(ctx context.Context) error {
	pause := c.pause
	for {
		select {
		case <-c.token:
		case <-ctx.Done():
			return nil
		}
		for role, w := c.next(); role != ""; role, w = c.next() {
			err := c.run(ctx, role, w)
			if ctx.Err() != nil {
				return nil
			}
			c.ended(role, w, err)
			if err == nil {
				pause = c.pause
				continue
			}
			c.log.Warn("the command that scales a role failed and is run again", "role", string(role), "count", w.count, "err", err, "pause", pause)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return nil
			}
			pause = min(2*pause, lastPause)
		}
	}
}

// next is a role of which something else is wanted than was done, as far as is known, or there; "" if there is none.
func (c *Command) next() (Role, want) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for role, w := range c.wanted {
		if done, ok := c.done[role]; !ok || done != w || c.short[role] != nil && c.short[role].due {
			return role, w
		}
	}
	return "", want{}
}

func (c *Command) ended(role Role, w want, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ran(role)
	if c.problem = ""; err != nil {
		c.problem = fmt.Sprintf("the command for %d members of role %s: %v", w.count, role, err)
		delete(c.done, role) // it may have done a part of it, or all
		return
	}
	c.done[role] = w
	for _, token := range c.watch {
		nudge(token)
	}
}

// run runs the command once.
func (c *Command) run(ctx context.Context, role Role, w want) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.time, fmt.Errorf("it took longer than %v", c.time))
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", c.text)
	cmd.Env = append(os.Environ(), "ROLE="+string(role), "COUNT="+strconv.Itoa(w.count), "DRAINED="+w.drained)
	out := &tail{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what it started ends with it, and not after the next run
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // what left the group may hold its output
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, exec.ErrWaitDelay): // it ended well, and what it left in the background has its output
		err = nil
	}
	if text := strings.TrimSpace(strings.ToValidUTF8(out.String(), "?")); err != nil && text != "" { // a status is UTF-8, and a tail may begin within a letter
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// tail keeps the end of what is written to it. The buffer is no embedded field: its ReadFrom, which io.Copy prefers to
// Write, would take all that a command prints.
type tail struct{ end bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	t.end.Write(p[max(len(p)-mostOutput, 0):])
	t.end.Next(max(t.end.Len()-mostOutput, 0))
	return n, nil
}

func (t *tail) String() string { return t.end.String() }

// Scale implements Fleet.
func (c *Command) Scale(_ context.Context, role Role, n int) error {
	if n < 0 {
		return errors.New("a role cannot have fewer than 0 members")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.wanted[role]
	w.count = n
	c.wanted[role] = w
	nudge(c.token)
	return nil
}

// Draining implements Fleet.
func (c *Command) Draining(role Role, names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, asked := c.wanted[role]
	w.drained = strings.Join(slices.Sorted(slices.Values(names)), " ")
	if asked {
		c.wanted[role] = w
		nudge(c.token)
	}
}

// Members implements Fleet: who runs is known to whoever the command asks. A member has no name before it joins the job.
func (c *Command) Members(ctx context.Context, changed func([]Member)) {
	token := make(chan struct{}, 1)
	nudge(token)
	c.mu.Lock()
	c.watch = append(c.watch, token)
	c.mu.Unlock()
	for {
		select {
		case <-token:
			changed(c.members())
		case <-ctx.Done():
			return
		}
	}
}

func (c *Command) members() (all []Member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for role, w := range c.done {
		for range w.count {
			all = append(all, Member{Role: role})
		}
	}
	return all
}

// Problem implements Fleet.
func (c *Command) Problem() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.problem
}

// nudge puts a token into a channel that holds one.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
