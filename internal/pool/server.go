package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/worker"
)

// Options say what a pool is.
type Options struct {
	Address, Advertise string
	Security           rpc.Security
	Interpreters       []Interpreter       // at least one; the first that has a function's module serves it
	Path               []string            // folders of modules
	Workers            int                 // processes of each environment
	Memory             int64               // the most that a step may let a worker have, in bytes; 0: what it says
	Network            bool                // functions that want the network may have it
	Drain              time.Duration       // for batches under way when the pool stops
	GPUs               func() *worker.GPUs // nil: there are none
	Log                *slog.Logger
	Serving            func(address string) // called once it serves
}

// Interpreter is a Python that a pool has.
type Interpreter struct{ Name, Path string }

const (
	// bufferBytes is what batches on the way in may take, and those on the way out: workers of a machine with
	// a hundred cores have two of the default size each. A larger batch goes alone.
	bufferBytes = 256 << 20
	// pieceBytes is a message of a batch: large enough to cost little, and small beside the buffer.
	pieceBytes = 512 << 10
	// maxHandles bounds the functions that one loader opens: no job has a thousand.
	maxHandles = 4096
	// restartTries and restartPause bound the wait for a fork server that is being started again.
	restartTries = 50
	restartPause = 200 * time.Millisecond
	// refusedPause is between two looks whether a function can be served that could not be for lack of something of this
	// machine: that may take an interpreter's start, and trainers go on without the pool meanwhile.
	refusedPause = 2 * time.Second
)

// Server is a pool. Its methods are safe for concurrent use.
type Server struct {
	pb.UnimplementedWorkersServer
	opt     Options
	leases  leases
	in, out *semaphore.Weighted
	life    context.Context // ends when the pool has stopped
	stopped chan struct{}   // closed when streams are to end
	leaving chan struct{}   // closed when it stops
	running sync.WaitGroup  // batches under way

	mu      sync.Mutex // guards the fields below
	left    bool       // no batch begins any more
	handles map[uint64]*handle
	last    uint64
}

// handle is a function that a loader opened.
type handle struct {
	lease    *lease
	function string
}

// Run serves until ctx ends. Batches under way then have Options.Drain to end.
func Run(ctx context.Context, opt Options) error {
	s := &Server{
		opt: opt, in: semaphore.NewWeighted(bufferBytes), out: semaphore.NewWeighted(bufferBytes),
		stopped: make(chan struct{}), leaving: make(chan struct{}), handles: map[uint64]*handle{},
	}
	s.leases.open = s.environment
	var sweeping sync.WaitGroup
	defer sweeping.Wait()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	s.life = life
	sweeping.Go(func() { s.leases.run(life) })
	register := func(r grpc.ServiceRegistrar) { pb.RegisterWorkersServer(r, s) }
	return rpc.Run(ctx, opt.Address, opt.Advertise, opt.Security, rpc.MaxPiece, register, func(ctx context.Context, address string) error {
		if opt.Serving != nil {
			opt.Serving(address)
		}
		<-ctx.Done()
		s.drain()
		end()
		return ctx.Err()
	})
}

// drain waits for batches under way, but takes no others, and ends all streams.
func (s *Server) drain() {
	s.mu.Lock()
	s.left = true
	s.mu.Unlock()
	close(s.leaving)
	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }() // batches end with their streams at the latest
	late := time.NewTimer(s.opt.Drain)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
	}
	close(s.stopped)
}

// begin counts a batch; false: the pool stops.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.left {
		s.running.Add(1)
	}
	return !s.left
}

// Serve implements the Workers service.
func (s *Server) Serve(stream grpc.BidiStreamingServer[pb.PoolRequest, pb.PoolReport]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.Protocol != worker.Protocol {
		return rpc.ToStatus(fault.Userf("this pool speaks version %d of the workers' protocol, the loader %d: run the same release of Millrace on both", worker.Protocol, first.Protocol))
	}
	l := &serving{server: s, stream: stream, send: rpc.NewSender(stream.Send)}
	life, end := context.WithCancel(stream.Context())
	defer end()
	l.life = life
	ended := make(chan error, 1)
	go func() { ended <- l.listen() }()
	err = l.beat(ended)
	end()
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.opens.Wait()
	for _, h := range l.handles {
		s.give(h)
	}
	return err
}

// serving is a loader's stream.
type serving struct {
	server *Server
	stream grpc.BidiStreamingServer[pb.PoolRequest, pb.PoolReport]
	send   *rpc.Sender[*pb.PoolReport]
	life   context.Context // ends with the stream
	opens  sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	asked   int
	over    bool // nothing more is opened
	handles []uint64
}

// beat says what the pool does until the stream ends.
func (l *serving) beat(ended <-chan error) error {
	ticks := time.NewTicker(rpc.BeatEvery)
	defer ticks.Stop()
	leaving := l.server.leaving
	for left := false; ; {
		busy, waiting := l.server.leases.busy()
		if err := l.send.Send(&pb.PoolReport{Report: &pb.PoolReport_Beat{Beat: &pb.PoolBeat{Busy: uint32(busy), Waiting: uint32(waiting), Leaving: left}}}); err != nil {
			return err
		}
		select {
		case <-ticks.C:
		case <-leaving:
			left, leaving = true, nil
		case <-l.server.stopped:
			return nil
		case err := <-ended:
			return err
		case <-l.stream.Context().Done():
			return l.stream.Context().Err()
		}
	}
}

// listen opens functions as the loader asks, until the stream ends.
func (l *serving) listen() error {
	for {
		request, err := l.stream.Recv()
		if err != nil {
			return err
		}
		o := request.GetOpen()
		if o == nil {
			continue
		}
		if err := l.begin(o); err != nil {
			return err
		}
	}
}

// begin opens a function, beside others.
func (l *serving) begin(o *pb.OpenFunction) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked++; l.asked > maxHandles {
		return rpc.ToStatus(fault.Userf("a loader opens at most %d functions of a pool", maxHandles))
	}
	if !l.over {
		l.opens.Go(func() { l.open(o) })
	}
	return nil
}

// open answers a request. A function that cannot be served for lack of something of this machine, such as room for one more
// process, is refused, and served once it can be: the loader hears of both, once.
func (l *serving) open(o *pb.OpenFunction) {
	opened := &pb.FunctionOpened{Id: o.Id}
	var served *lease
	for refused := false; ; {
		var err error
		if served == nil {
			if served, err = l.server.find(l.life, o); err == nil {
				opened.Handle, opened.Workers = l.keep(&handle{served, o.Function}), uint32(served.env.Slots(o.Function))
			}
		}
		if err == nil {
			err = served.env.Unable(o.Function)
		}
		if opened.Refused = ""; err != nil {
			opened.Refused = err.Error()
		}
		if err == nil || !refused {
			_ = l.send.Send(&pb.PoolReport{Report: &pb.PoolReport_Opened{Opened: proto.CloneOf(opened)}}) // who listens hears why it failed
		}
		if refused = true; err == nil || fault.ClassOf(err) != fault.Lost {
			return
		}
		select {
		case <-time.After(refusedPause):
		case <-l.life.Done():
			return
		}
	}
}

// keep gives a function a handle, as long as the stream lives.
func (l *serving) keep(h *handle) uint64 {
	s := l.server
	s.mu.Lock()
	s.last++
	number := s.last
	s.handles[number] = h
	s.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handles = append(l.handles, number)
	return number
}

// give gives a function up.
func (s *Server) give(number uint64) {
	s.mu.Lock()
	h := s.handles[number]
	delete(s.handles, number)
	s.mu.Unlock()
	s.leases.release(h.lease)
}

// find returns an environment that has the very function, or says why there is none.
func (s *Server) find(ctx context.Context, o *pb.OpenFunction) (*lease, error) {
	switch {
	case o.Network && !s.opt.Network:
		return nil, fault.Userf("it gives functions no network: start it with --network, or leave `network` out of the step")
	case s.opt.Memory > 0 && (o.Memory <= 0 || o.Memory > s.opt.Memory):
		return nil, fault.Userf("it gives workers at most %d MiB, and the step allows %d: lower the step's `memory`, or raise --worker-memory", s.opt.Memory>>20, o.Memory>>20)
	}
	var why error
	lost := false // one of them may have it later
	for _, in := range s.opt.Interpreters {
		l, err := s.try(ctx, in, o)
		if err == nil {
			return l, nil
		}
		lost = lost || fault.ClassOf(err) == fault.Lost
		if err = fmt.Errorf("%s (%s): %w", in.Name, in.Path, err); why == nil {
			why = err
		} else {
			why = fmt.Errorf("%w; %w", why, err)
		}
	}
	if lost {
		why = fault.As(fault.Lost, why)
	}
	return nil, why
}

// try opens a function in an interpreter's environment, in a new one if the present one has imported another version of
// its module.
func (s *Server) try(ctx context.Context, in Interpreter, o *pb.OpenFunction) (*lease, error) {
	key := key{in, time.Duration(o.TimeoutMs) * time.Millisecond, time.Duration(o.StartMs) * time.Millisecond, o.Memory, o.MemoryDecides, o.Network}
	for again := false; ; again = true {
		l, isNew, err := s.leases.take(key, o.Function)
		if err != nil {
			return nil, err
		}
		d, err := s.describe(ctx, l.env, o.Function)
		switch {
		case errors.Is(err, worker.ErrChanged) && !again:
			s.leases.replace(l)
			s.leases.release(l)
			continue
		case err != nil:
		case d.Runtime() != o.Runtime:
			err = fault.Userf("it has %s, and the loader %s, which may compute something else: install the same versions", d.Runtime(), o.Runtime)
		case string(d.Digest[:]) != string(o.Digest):
			err = fault.Userf("its module of function %s is another file, or says another version (digest %x, the loader's is %x): copy the loader's there", o.Function, d.Digest[:4], o.Digest[:min(4, len(o.Digest))])
			if !isNew && !again {
				s.leases.replace(l)
				s.leases.release(l)
				continue
			}
		case l.env.Slots(o.Function) == 0:
			err = fault.Userf("function %s needs a GPU, and it has none that is free for it", o.Function)
		default:
			return l, nil
		}
		s.leases.release(l)
		return nil, err
	}
}

// describe waits for a fork server that is being started again, as long as ctx lasts. An import that has begun ends with
// the pool, not with ctx: what ends it ends all that other loaders have there, and Options.Start bounds it.
func (s *Server) describe(ctx context.Context, env *worker.Environment, function string) (d worker.Description, err error) {
	for range restartTries {
		if d, err = env.Describe(s.life, function); !errors.Is(err, worker.ErrRestarting) || ctx.Err() != nil {
			break
		}
		pause := time.NewTimer(restartPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
	return d, err
}

// environment starts one.
func (s *Server) environment(k key, function string) (*worker.Environment, error) {
	return worker.Open(s.life, worker.Options{
		Python: k.in.Path, Path: s.opt.Path, Functions: []string{function}, Workers: s.opt.Workers,
		Memory: k.memory, MemoryDecides: k.decides, Timeout: k.timeout, Start: k.start, Network: k.network, GPUs: s.opt.GPUs, Log: s.opt.Log,
	})
}
