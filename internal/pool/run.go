package pool

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/worker"
)

// Run implements the Workers service: a batch is taken in as far as there is room, run, and its answer sent.
func (s *Server) Run(stream grpc.BidiStreamingServer[pb.RunRequest, pb.RunReply]) error {
	if !s.begin() {
		return rpc.ToStatus(errStops)
	}
	defer s.running.Done()
	ctx := stream.Context()
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	h := first.GetHead()
	if h.GetBytes() > worker.MaxBatch {
		return rpc.ToStatus(fmt.Errorf("a batch of %d bytes; the most is %d", h.GetBytes(), int64(worker.MaxBatch)))
	}
	s.mu.Lock()
	handle := s.handles[h.GetHandle()]
	s.mu.Unlock()
	if handle == nil {
		return rpc.ToStatus(fault.Lostf("this pool has opened no function %d", h.GetHandle()))
	}
	o, err := s.attempt(ctx, handle, h, func() (*pb.RunRequest, error) { return stream.Recv() })
	if err != nil {
		return rpc.ToStatus(err)
	}
	room, err := reserve(ctx, s.out, len(o.Batch))
	if err != nil {
		return err
	}
	defer room()
	if err := stream.Send(&pb.RunReply{Head: tailOf(o)}); err != nil {
		return err
	}
	return pieces(o.Batch, func(piece []byte) error { return stream.Send(&pb.RunReply{Piece: piece}) })
}

// attempt takes a batch in and runs it.
func (s *Server) attempt(ctx context.Context, handle *handle, h *pb.RunHead, next func() (*pb.RunRequest, error)) (worker.Outcome, error) {
	room, err := reserve(ctx, s.in, int(h.Bytes))
	if err != nil {
		return worker.Outcome{}, err
	}
	defer room()
	batch, err := joined(int(h.Bytes), func() ([]byte, error) { r, err := next(); return r.GetPiece(), err })
	if err != nil {
		return worker.Outcome{}, err
	}
	return handle.lease.env.Run(ctx, worker.Attempt{
		Use:  worker.Use{Name: handle.function, Seed: h.Seed, Source: h.Source, Step: h.Step},
		File: int(h.File), Most: int(h.Most), Fresh: h.Fresh, Batch: batch,
	})
}

// reserve takes room for bytes, all of it for more than there is, and returns what gives it back.
func reserve(ctx context.Context, room *semaphore.Weighted, bytes int) (release func(), err error) {
	n := min(int64(bytes), bufferBytes)
	if err := room.Acquire(ctx, n); err != nil {
		return nil, err
	}
	return func() { room.Release(n) }, nil
}

// pieces sends a batch.
func pieces(batch []byte, send func(piece []byte) error) error {
	for len(batch) > 0 {
		n := min(len(batch), pieceBytes)
		if err := send(batch[:n]); err != nil {
			return err
		}
		batch = batch[n:]
	}
	return nil
}

// firstBytes is what is set aside for a batch on its head's word: more than most have.
const firstBytes = 16 << 20

// joined takes a batch in. It believes what was said of its size as far as there are bytes.
func joined(size int, next func() ([]byte, error)) ([]byte, error) {
	batch := make([]byte, 0, min(size, firstBytes))
	for len(batch) < size {
		piece, err := next()
		if errors.Is(err, io.EOF) {
			return nil, fault.Lostf("%d of %d bytes of a batch came", len(batch), size)
		}
		if err != nil {
			return nil, err
		}
		if len(piece) == 0 || len(piece) > size-len(batch) {
			return nil, fmt.Errorf("a piece of %d bytes after %d of %d", len(piece), len(batch), size)
		}
		batch = append(batch, piece...)
	}
	return batch, nil
}

// tailOf and outcomeOf write what became of an attempt as a message, and read it.
func tailOf(o worker.Outcome) *pb.RunTail {
	r := o.Reply
	t := &pb.RunTail{Bytes: uint64(len(o.Batch)), Rows: uint64(max(r.Rows, 0)), Raised: r.Raised, Broken: r.Broken, Setup: r.Setup}
	for _, e := range r.Errors {
		t.Errors = append(t.Errors, &pb.RowError{Row: uint32(e.Row), Text: e.Text})
	}
	if d := o.Death; d != nil {
		t.Death = &pb.WorkerDeath{
			Why: d.Why, Printed: d.Printed, Working: d.Working, Setup: d.Setup, Outside: d.Outside, Slow: d.Slow, Big: d.Big, Fresh: d.Fresh, Idle: d.Idle,
		}
	}
	return t
}

func outcomeOf(t *pb.RunTail, batch []byte) worker.Outcome {
	o := worker.Outcome{Batch: batch, Reply: worker.Reply{
		Bytes: len(batch), Rows: int(t.GetRows()), Raised: t.GetRaised(), Broken: t.GetBroken(), Setup: t.GetSetup(),
	}}
	for _, e := range t.GetErrors() {
		o.Reply.Errors = append(o.Reply.Errors, worker.RowError{Row: int(e.Row), Text: e.Text})
	}
	if d := t.GetDeath(); d != nil {
		o.Death = &worker.Death{
			Why: d.Why, Printed: d.Printed, Working: d.Working, Setup: d.Setup, Outside: d.Outside, Slow: d.Slow, Big: d.Big, Fresh: d.Fresh, Idle: d.Idle,
		}
	}
	return o
}
