package constructor

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/constructor/assemble"
	"github.com/millrace-data/millrace/internal/constructor/deliver"
	"github.com/millrace-data/millrace/internal/failpoint"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// Batch implements the Constructor service.
func (c *Constructor) Batch(req *pb.BatchRequest, stream grpc.ServerStreamingServer[pb.Frame]) error {
	ctx, cancel := rpc.Early(stream.Context())
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, c.opts.Deadline)
	defer cancel()
	caller := c.callerOf(req)
	var got *deliver.Step
	var end *pb.EndOfData
	reason := func() *pb.Waiting { return c.steps.Waits(caller.Rank, req.Step) }
	err := rpc.Hold(stream, req.Hears, reason, func() (err error) {
		got, end, err = c.steps.Get(ctx, caller, req.Step)
		return err
	})
	if err != nil {
		return refusal(err)
	}
	if end != nil {
		return rpc.SendBody(stream, &pb.BatchHeader{Step: req.Step, EndOfData: true, Topology: end.Topology}, nil, nil)
	}
	st := got.Content.(*step)
	buf := c.bodies.get()
	header, body, err := st.part(caller.Rank, *buf)
	if err != nil {
		return rpc.ToStatus(err)
	}
	header.Generation = got.Generation
	c.steps.Delivered(len(body))
	*buf = body
	if failpoint.Enabled && failpoint.Tear(failpoint.FrameMiddle) {
		_ = rpc.SendBody(stream, header, body[:len(body)/2], nil)
		time.Sleep(10 * time.Millisecond) // the transport writes when it likes
		failpoint.Die()
	}
	return rpc.SendBody(stream, header, body, func() { c.bodies.put(buf) })
}

// Ack implements the Constructor service.
func (c *Constructor) Ack(_ context.Context, req *pb.AckRequest) (*pb.AckReply, error) {
	if err := c.steps.Ack(c.callerOf(req)); err != nil {
		return nil, refusal(err)
	}
	return &pb.AckReply{}, nil
}

// refusal is the status of a rank's request that is refused, with a code of its own where the
// rank can do something about it by itself.
func refusal(err error) error {
	switch {
	case errors.Is(err, deliver.ErrJoinAgain):
		return status.Error(codes.Aborted, err.Error())
	case errors.Is(err, deliver.ErrJoinedSince):
		return status.Error(codes.AlreadyExists, err.Error())
	case errors.Is(err, deliver.ErrMoved):
		return status.Error(codes.OutOfRange, err.Error())
	}
	return rpc.ToStatus(err)
}

// callerOf is what every request of a rank says of it. A rank may have heard of another planner
// than this constructor.
func (c *Constructor) callerOf(req interface {
	GetIdentity() []byte
	GetGeneration() uint64
	GetAcked() uint64
	GetRank() *pb.Coordinates
	GetJoin() uint64
	GetEpoch() uint64
}) deliver.Caller {
	if c.steps.Serves(req.GetIdentity()) {
		c.epochs.Hear(req.GetEpoch())
	}
	return deliver.Caller{
		Rank: deliver.RankOf(req.GetRank()), Generation: req.GetGeneration(), Join: req.GetJoin(), Acked: req.GetAcked(), Identity: req.GetIdentity(),
	}
}

// part assembles a rank's part of a step: its bucket's microbatches, cut for its
// pipeline stage and context-parallel rank, and the images that it encodes.
func (st *step) part(r deliver.Rank, body []byte) (*pb.BatchHeader, []byte, error) {
	layout, sources := st.from.layout, &st.from
	layout.SequenceLength = st.length
	header := &pb.BatchHeader{Step: st.number, Joined: sources.joined, SequenceLength: uint32(st.length), Rows: st.total}
	body = body[:0]
	for rows := range st.microbatches(r) {
		content := make([]batch.Row, len(rows))
		mb := &pb.Microbatch{}
		for k := range rows {
			content[k] = rows[k].Row
			mb.Rows = append(mb.Rows, rows[k].info)
		}
		var tensors []batch.WireTensor
		var err error
		offset := batch.Aligned(len(body))
		cut, cp := layout, int(r.CP)
		if first := &rows[0]; layout.Split {
			cut, cp = layout.Over(int(first.width)), int(sources.inPool(r)-first.rank)
		}
		if body, tensors, err = cut.Append(body, content, cp, int(r.PP)); err != nil {
			return nil, nil, err
		}
		if r.PP == 0 && len(sources.columns) > 0 {
			var kept []batch.Tensor
			body, kept = assemble.AppendKept(body, content, sources.columns)
			for _, t := range kept {
				tensors = append(tensors, batch.WireTensor{Tensor: t})
			}
		}
		var images []batch.Tensor
		body, images = st.appendImages(body, r, rows)
		for _, t := range images {
			tensors = append(tensors, batch.WireTensor{Tensor: t})
		}
		for _, t := range tensors {
			mb.Tensors = append(mb.Tensors, wireTensor(t, offset))
			offset = batch.Aligned(offset + len(t.Data))
		}
		header.Microbatches = append(header.Microbatches, mb)
	}
	header.BodySize = uint64(len(body))
	return header, body, nil
}

// inPool is the number of a rank where all DP x CP ranks are one pool.
func (c *content) inPool(r deliver.Rank) uint32 { return r.DP*c.mesh.Cp + r.CP }

// microbatches walks over the rows of a rank, a microbatch at a time.
func (s *step) microbatches(r deliver.Rank) iter.Seq[[]row] {
	if s.from.layout.Split {
		return s.shared(s.from.inPool(r))
	}
	return func(yield func([]row) bool) {
		for rest := s.rows; len(rest) > 0; {
			n := 1
			for n < len(rest) && rest[n].rank == rest[0].rank && rest[n].microbatch == rest[0].microbatch {
				n++
			}
			if rest[0].rank == r.DP && !yield(rest[:n]) {
				return
			}
			rest = rest[n:]
		}
	}
}

// shared walks over the rows that a rank of the pool has a part of, one a microbatch.
func (s *step) shared(rank uint32) iter.Seq[[]row] {
	return func(yield func([]row) bool) {
		for i := range s.rows {
			if r := &s.rows[i]; r.rank <= rank && rank < r.rank+r.width && !yield(s.rows[i:i+1]) {
				return
			}
		}
	}
}

func wireTensor(t batch.WireTensor, offset int) *pb.Tensor {
	out := &pb.Tensor{Name: t.Name, Dtype: t.DType.String(), Wire: t.Wire.String(), Offset: uint64(offset), Size: uint64(len(t.Data))}
	for _, n := range t.Shape {
		out.Shape = append(out.Shape, uint64(n))
	}
	return out
}

// bodies reuses the memory of batch bodies: fresh pages cost more than copying
// into old ones.
type bodies struct{ pool sync.Pool }

func (b *bodies) get() *[]byte {
	if buf, ok := b.pool.Get().(*[]byte); ok {
		return buf
	}
	return new([]byte)
}

func (b *bodies) put(buf *[]byte) { b.pool.Put(buf) }
