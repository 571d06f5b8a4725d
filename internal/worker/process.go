package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// seatsEach is the batches in flight to one worker: one that it works on, and one that is
// there when it has done so.
const seatsEach = 2

const (
	forkTime = time.Minute     // a fork takes milliseconds; a machine that swaps takes its time
	killTime = time.Second     // for the fork server to end a worker, which takes milliseconds where no import keeps it
	exitTime = 5 * time.Second // to hear how a worker ended, which its socket told already
)

// process is a worker. Its goroutine reads answers; callers submit jobs.
type process struct {
	server *server
	pid    int
	exit   *exit
	wire   *wire
	out    *output
	seats  [seatsEach]*seat
	// release takes the seat of a job that nobody waits for.
	release  func(*seat)
	need     Need         // of GPUs, that it has
	base     atomic.Int64 // bytes of its own when it was set up
	idle     atomic.Int64 // bytes that it held, those that others share included, when it had done nothing, or was set up
	own      int64        // bytes of its own, as last measured; of who watches, as the next two
	seen     int          // calls when it was measured
	looks    int          // since it works no more
	kills    sync.WaitGroup
	draining bool // it gets no more jobs, as one is wanted that did none; of the environment's mu

	mu      sync.Mutex
	queue   []*job // submitted and not answered: it works on the first
	ready   map[string]bool
	cause   string // why we ended it
	died    string // why it ended
	slow    bool   // that is that it took too long
	big     bool   // that it held too much memory
	calls   int    // answered, without setups
	earlier bool   // for what an earlier job did: those in the queue are not to blame
	killed  bool   // we have begun to end it
	gone    bool
	asked   bool // it was given a job
}

// seat is a place for one batch in flight. Whoever has it owns its memory.
type seat struct {
	far     *far // a pool's, of a batch of size bytes, which has nothing of the fields below
	size    int
	process *process
	index   int
	in, out *memory
	beside  *seat // the other one of its process, where a call has both
}

// job is a frame that a worker answers.
type job struct {
	frame   any
	timeout time.Duration
	setup   bool
	use     []any
	done    chan answer // takes one
	seat    *seat
	left    bool // nobody waits for the answer; of the process's mu
}

// answer is what a worker said, or how it was lost.
type answer struct {
	reply Reply
	death *Death
}

// Reply is all that a worker says.
type Reply struct {
	Bytes          int // of the batch that it gives
	Rows           int // that it worked on; 0: all
	Errors         []RowError
	Raised, Broken string
	Setup          bool // that is what is broken
	// Of a setup: bytes that its worker holds after it, those that no other process shares, and the most that it ever held.
	Held, Own, Peak int64
	Errno           int // what is broken is that its machine has no more of something; 0: it is not
}

// RowError is why a row of a batch was not mapped.
type RowError struct {
	Row  int
	Text string
}

// Death is the end of a worker as one of its jobs saw it.
type Death struct {
	Why     string
	Printed string // what it printed last, as the end of a message
	Working bool   // on this very job
	Setup   bool   // on the setup for this job
	Outside bool   // something ended it that neither it nor we did
	Slow    bool   // it took too long
	Big     bool   // it held too much memory
	Fresh   bool   // it had done nothing before
	Idle    int64  // bytes that it held when it had done nothing, or was set up
}

// fork returns a new worker, with a share of a GPU if it owns one.
func (s *server) fork(ctx context.Context, own *share) (p *process, err error) {
	p = &process{server: s, ready: map[string]bool{}, need: own.need()}
	defer func() {
		if err != nil {
			p.close()
			err = usedUp(err)
		}
	}()
	var socket *os.File
	if p.wire, socket, err = wires(); err != nil {
		return p, err
	}
	defer socket.Close()
	if p.out, err = newOutput(s.opt.Log); err != nil {
		return p, err
	}
	files := []*os.File{socket, p.out.writer}
	for i := range p.seats {
		p.seats[i] = &seat{process: p, index: i}
		for _, m := range []**memory{&p.seats[i].in, &p.seats[i].out} {
			if *m, err = newMemory(); err != nil {
				return p, err
			}
			files = append(files, (*m).file)
		}
	}
	frame, err := s.request(ctx, forkTime, ask{Op: "fork", Environ: own.environ()}, files...)
	if err == nil && frame.Errno != 0 {
		err = fmt.Errorf("forking: %w", syscall.Errno(frame.Errno))
	}
	p.pid, p.exit = frame.PID, frame.exit
	p.idle.Store(memoryOf(p.pid))
	return p, err
}

// close gives up what the loader holds of a worker. No seat is in use any more.
func (p *process) close() {
	if p.wire != nil {
		_ = p.wire.conn.Close()
	}
	if p.out != nil {
		p.out.end()
		p.out.wait()
	}
	for _, s := range p.seats {
		if s != nil {
			s.close()
		}
	}
}

// taken is the first bytes of what its worker wrote, as many as that says.
func (s *seat) taken(n int) ([]byte, error) {
	if n < 0 || n > MaxBatch {
		return nil, fmt.Errorf("a batch of %d bytes", n)
	}
	if err := s.out.view(n); err != nil {
		return nil, usedUp(err)
	}
	return s.out.data[:n], nil
}

func (s *seat) close() {
	for _, m := range []*memory{s.in, s.out} {
		if m != nil {
			m.close()
		}
	}
}

// errGone is that a worker has ended before a job was submitted.
var errGone = errors.New("the worker is gone")

// submit queues a job, and before it the setup of its function if that is due. Both are
// answered, by the worker or by its end.
func (p *process) submit(setup string, jobs ...*job) error {
	<-p.wire.turn
	defer func() { p.wire.turn <- struct{}{} }()
	p.mu.Lock()
	if p.gone {
		p.mu.Unlock()
		return errGone
	}
	if setup != "" && p.ready[setup] {
		jobs = jobs[1:]
	}
	p.ready[setup] = true
	p.asked = true
	p.queue = append(p.queue, jobs...)
	if len(p.queue) == len(jobs) {
		p.begin()
	}
	p.mu.Unlock()
	for _, j := range jobs {
		_ = p.wire.write(j.frame) // a worker that does not read is ended by its reader
	}
	return nil
}

// begin notes that the worker works on the first job from now on. The caller has mu.
func (p *process) begin() {
	p.wire.patience(p.queue[0].timeout)
	p.out.uses(p.queue[0].use)
}

// next takes the answered job off the queue; nil if there is none.
func (p *process) next() *job {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return nil
	}
	j := p.queue[0]
	p.queue = p.queue[1:]
	if !j.setup {
		p.calls++
	}
	if len(p.queue) > 0 {
		p.begin()
	} else {
		p.wire.patience(0)
	}
	return j
}

// takeBack has a job count as not answered.
func (p *process) takeBack(j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = slices.Insert(p.queue, 0, j)
	if !j.setup {
		p.calls--
	}
}

// busy is the number of jobs of a worker.
func (p *process) busy() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue)
}

// ended reports whether it is gone.
func (p *process) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}

// tried reports whether it was ever given a job.
func (p *process) tried() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// read answers jobs until the worker ends, or has to.
func (p *process) read() {
	read := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { p.hangUp(read) })
	defer p.kills.Wait() // begun by lost at the latest
	defer watch.Wait()
	defer close(read)
	for {
		var reply Reply
		if err := p.wire.receive(&reply); err != nil {
			p.lost(err)
			return
		}
		j := p.next()
		if j == nil {
			p.retire("it answers without a question")
			continue
		}
		if j.setup {
			p.settled(&reply)
		}
		if p.server.opt.MemoryDecides && p.tooLarge(j, &reply) {
			p.takeBack(j)
			p.lost(net.ErrClosed)
			return
		}
		p.answer(j, answer{reply: reply})
	}
}

// hangUp ends the reading of a worker that has ended, if its socket does not say so: what it started in another
// session may have that, too.
func (p *process) hangUp(read <-chan struct{}) {
	select {
	case <-p.exit.told:
	case <-p.server.gone:
	case <-read:
		return
	}
	late := time.NewTimer(outputTime)
	defer late.Stop()
	select {
	case <-late.C:
		_ = p.wire.conn.CloseRead()
	case <-read:
	}
}

// answer answers a job that is in the queue no more.
func (p *process) answer(j *job, a answer) {
	if j.left {
		p.release(j.seat)
		return
	}
	j.done <- a
}

// leave gives up waiting for a job. It reports false if the answer is there already.
func (p *process) leave(j *job) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.queue, j) {
		return false // whoever answers it reads left without the lock
	}
	j.left = true
	return true
}

// retire ends a worker for what it did in a job that is answered.
func (p *process) retire(why string) {
	p.mu.Lock()
	p.earlier = true
	p.mu.Unlock()
	p.kill(why)
}

// renew ends a worker that has done something and has nothing to do, so that a new one takes its place. It says
// whether it did.
func (p *process) renew(why string) bool {
	p.mu.Lock()
	used := p.calls > 0 && len(p.queue) == 0
	p.earlier = p.earlier || used
	p.mu.Unlock()
	if used {
		p.kill(why)
	}
	return used
}

// kill has a worker and all that it started end. It waits for nothing.
func (p *process) kill(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cause == "" {
		p.cause = why
	}
	if p.killed {
		return
	}
	p.killed = true
	p.kills.Go(func() { _ = p.server.wire.send(ask{Op: "kill", PID: p.pid}) })
	p.kills.Go(p.killLate)
}

// killLate ends a worker that the fork server does not end in time, as it reads nothing during an import.
func (p *process) killLate() {
	late := time.NewTimer(killTime)
	defer late.Stop()
	select {
	case <-p.exit.told:
	case <-p.server.gone:
	case <-late.C:
		killGroup(p.pid)
	}
}

// lost ends what is left of a worker whose socket ended, and answers its jobs.
func (p *process) lost(err error) {
	p.kill(p.reason(err))
	end := p.end()
	p.out.end()
	p.out.wait()
	p.mu.Lock()
	p.gone = true
	jobs, cause, earlier := p.queue, p.cause, p.earlier
	end.Slow, end.Big, end.Fresh, end.Idle = p.slow, p.big, p.calls == 0, p.idle.Load()
	p.queue = nil
	p.mu.Unlock()
	if cause != "" {
		end.Why, end.Outside = cause, false
	}
	end.Printed = p.out.last()
	p.mu.Lock()
	p.died = end.Why
	p.mu.Unlock()
	for i, j := range jobs {
		d := end
		d.Working = i == 0 && !earlier
		d.Setup = i == 1 && jobs[0].setup && !earlier
		p.answer(j, answer{death: &d})
	}
}

// reason is why a worker is ended whose socket gave this error; "" if it ended by itself.
func (p *process) reason(err error) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && len(p.queue) > 0:
		p.slow = true
		return fmt.Sprintf("it took longer than %v", p.queue[0].timeout)
	case errors.Is(err, net.ErrClosed):
		return ""
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET):
		if len(p.queue) > 0 && peakOf(p.pid) > 0 { // a process that ends has no memory any more when its files are closed
			return closedWhy
		}
		return ""
	}
	return fmt.Sprintf("its worker sent garbage (%v)", err)
}

// closedWhy is why a worker is ended that closed its socket, closedStatus with what it ends if it finds that first.
const (
	closedWhy    = "it closed the connection of its worker, as os.closerange and os.exec do: have it close what it opened itself"
	closedStatus = 113
)

// fromOutside are signals that nothing but another process sends, or a function that means it. An abort may be
// either: as with all others, a row is to blame only if it brings one again, alone in a new worker.
var fromOutside = []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT}

// end waits for the server to say how the worker ended.
func (p *process) end() Death {
	late := time.NewTimer(exitTime)
	defer late.Stop()
	select {
	case <-p.exit.told:
		if p.exit.frame.Signal == 0 && p.exit.frame.Code == closedStatus {
			return Death{Why: closedWhy}
		}
		if p.exit.frame.Signal == 0 {
			return Death{Why: fmt.Sprintf("its worker ended with exit status %d", p.exit.frame.Code)}
		}
		signal := syscall.Signal(p.exit.frame.Signal)
		return Death{Why: fmt.Sprintf("its worker ended by signal %d (%v)", p.exit.frame.Signal, signal), Outside: slices.Contains(fromOutside, signal)}
	case <-p.server.gone:
		killGroup(p.pid)
		return Death{Why: "the fork server ended", Outside: true}
	case <-late.C:
		killGroup(p.pid)
		return Death{Why: "its worker is gone", Outside: true}
	}
}

// killGroup ends a process and all in its group.
func killGroup(pid int) {
	if pid > 1 {
		_ = unix.Kill(-pid, unix.SIGKILL)
	}
}
