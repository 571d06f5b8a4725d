package pool

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/worker"
)

// session is a stream with a pool, from its first word to its last.
type session struct {
	pool   *pool
	calls  pb.WorkersClient
	life   context.Context         // ends with the session, and batches on the way with it
	cut    context.CancelCauseFunc // ends it
	stream grpc.BidiStreamingClient[pb.PoolRequest, pb.PoolReport]
	worked bool // the pool has said something

	mu     sync.Mutex
	asked  []*use // by the number of the request
	places map[*worker.Environment]*place
}

// session talks with the pool until it, or the way to it, ends. worked says that it was there.
func (p *pool) session(ctx context.Context) (worked bool, err error) {
	conn, err := rpc.Dial(p.address, p.client.sec)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	s := &session{pool: p, calls: pb.NewWorkersClient(conn), places: map[*worker.Environment]*place{}}
	s.life, s.cut = context.WithCancelCause(ctx)
	attention := rpc.Attend(rpc.BeatEvery, silentRounds, func(int) {
		s.cut(fault.Lostf("it has said nothing for %v", silentRounds*rpc.BeatEvery))
	})
	defer attention.End()
	var asking sync.WaitGroup
	defer asking.Wait()
	defer s.leave()
	defer func() { s.cut(err) }()
	if s.stream, err = s.calls.Serve(s.life); err == nil {
		err = s.stream.Send(&pb.PoolRequest{Protocol: worker.Protocol})
	}
	if err == nil || errors.Is(err, io.EOF) { // who receives hears why
		asking.Go(s.ask)
		err = s.listen(attention)
	}
	if why := context.Cause(s.life); why != nil && ctx.Err() == nil {
		err = why
	}
	return s.worked, err
}

// ask asks for functions, those that come later included, until the session ends.
func (s *session) ask() {
	for asked := 0; ; {
		for _, u := range s.pool.client.from(asked) {
			asked++
			s.mu.Lock()
			s.asked = append(s.asked, u)
			s.mu.Unlock()
			if s.stream.Send(&pb.PoolRequest{Open: u.open}) != nil {
				return // who listens hears why
			}
		}
		select {
		case <-s.pool.more:
		case <-s.life.Done():
			return
		}
	}
}

// listen takes in what the pool says until the session ends.
func (s *session) listen(attention *rpc.Attention) error {
	for {
		m, err := s.stream.Recv()
		if errors.Is(err, io.EOF) {
			return fault.Lostf("it has stopped")
		}
		if err != nil {
			return err
		}
		attention.Heard()
		if b := m.GetBeat(); b != nil {
			s.worked = true
			s.pool.here(b)
			if b.Leaving {
				s.leave()
			}
		}
		if o := m.GetOpened(); o != nil {
			s.opened(o)
		}
	}
}

// opened lends the pool's workers to the environment of a function: at once, or once the pool can serve it after all.
func (s *session) opened(o *pb.FunctionOpened) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(o.Id) >= len(s.asked) || s.places == nil {
		return
	}
	u := s.asked[o.Id]
	if o.Refused != "" || o.Workers == 0 {
		s.pool.refuses(u, o.Refused)
		return
	}
	s.pool.serves(u)
	at := s.places[u.env]
	if at == nil {
		at = &place{session: s, env: u.env, handles: map[string]uint64{}}
		s.places[u.env] = at
	}
	at.mu.Lock()
	at.handles[u.open.Function] = o.Handle
	at.mu.Unlock()
	u.env.Join(at, u.open.Function, int(o.Workers))
}

// leave has the pool get no more batches.
func (s *session) leave() {
	s.mu.Lock()
	places := s.places
	s.places = nil // none joins any more
	s.mu.Unlock()
	for env, at := range places {
		env.Leave(at)
	}
}

// place is the workers of a pool as an environment has them for a session. It implements worker.Pool.
type place struct {
	session *session
	env     *worker.Environment

	mu      sync.Mutex
	handles map[string]uint64 // by function
}

// Name implements worker.Pool.
func (at *place) Name() string { return at.session.pool.address }

// Run implements worker.Pool. What fails here ends the session: the pool gets nothing more until it says that it
// is there again.
func (at *place) Run(ctx context.Context, a worker.Attempt) (worker.Outcome, error) {
	s := at.session
	attempt, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(s.life, end)()
	o, err := at.run(attempt, a)
	if ctx.Err() != nil {
		return o, ctx.Err()
	}
	s.pool.count(at.env, err != nil)
	if err == nil {
		return o, nil
	}
	if why := context.Cause(s.life); why != nil {
		err = why
	}
	err = rpc.FromStatus(err)
	s.cut(err)
	return o, fault.As(fault.Lost, err)
}

func (at *place) run(ctx context.Context, a worker.Attempt) (worker.Outcome, error) {
	at.mu.Lock()
	handle := at.handles[a.Use.Name]
	at.mu.Unlock()
	stream, err := at.session.calls.Run(ctx)
	if err != nil {
		return worker.Outcome{}, err
	}
	head := &pb.RunHead{
		Handle: handle, Seed: a.Use.Seed, Source: a.Use.Source, Step: a.Use.Step, File: int64(a.File), Most: uint64(a.Most), Fresh: a.Fresh, Bytes: uint64(len(a.Batch)),
	}
	err = stream.Send(&pb.RunRequest{Head: head})
	if err == nil {
		err = pieces(a.Batch, func(piece []byte) error { return stream.Send(&pb.RunRequest{Piece: piece}) })
	}
	if err == nil {
		err = stream.CloseSend()
	}
	if err != nil && !errors.Is(err, io.EOF) { // who receives hears why
		return worker.Outcome{}, err
	}
	first, err := stream.Recv()
	if err != nil {
		return worker.Outcome{}, err
	}
	t := first.GetHead()
	if t.GetBytes() > worker.MaxBatch {
		return worker.Outcome{}, fault.Lostf("it announces a batch of %d bytes", t.GetBytes())
	}
	batch, err := joined(int(t.GetBytes()), func() ([]byte, error) { r, err := stream.Recv(); return r.GetPiece(), err })
	if err != nil {
		return worker.Outcome{}, err
	}
	_, _ = stream.Recv() // the end of the stream
	return outcomeOf(t, batch), nil
}
