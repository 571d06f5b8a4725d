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
	"google.golang.org/protobuf/proto"

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
	err := rpc.Hold(stream, req.Hears, c.steps.Fetchers(), reason, func() (err error) {
		got, end, err = c.steps.Get(ctx, caller, req.Step)
		return err
	})
	if err != nil {
		return refusal(err)
	}
	if end != nil {
		return rpc.SendBody(stream, &pb.BatchHeader{Step: req.Step, EndOfData: true, Topology: end.Topology}, nil, nil)
	}
	begun := time.Now()
	table, body, done, err := c.bodyOf(got, caller.Rank, false)
	if err != nil {
		return rpc.ToStatus(err)
	}
	header, err := headerOf(table)
	if err != nil {
		return rpc.ToStatus(err)
	}
	c.steps.Delivered(caller.Rank, deliver.Way{Name: deliver.Calls}, len(body))
	head, err := proto.Marshal(header)
	if err != nil {
		return rpc.ToStatus(err)
	}
	size := len(body)
	err = sendPart(stream, nil, head, body, done)
	c.traceDelivery(caller.Rank, got, begun, size, "call")
	return err
}

// bodyOf assembles a rank's part of a step. done gives the body's memory back.
func (c *Constructor) bodyOf(got *deliver.Step, r deliver.Rank, copies bool) (t *batch.Table, body []byte, done func(), err error) {
	buf := c.bodies.get()
	if t, body, err = c.partOf(got, r, copies, *buf); err != nil {
		return nil, nil, nil, err
	}
	*buf = body
	return t, body, func() { c.bodies.put(buf) }, nil
}

// partOf assembles a rank's part of a step in the memory of buf, if it has room there. With copies, labels may
// travel as copies of the tokens.
func (c *Constructor) partOf(got *deliver.Step, r deliver.Rank, copies bool, buf []byte) (t *batch.Table, body []byte, err error) {
	begun := time.Now()
	defer func() { c.steps.Assembled(time.Since(begun)) }()
	if t, body, err = got.Content.(*step).part(r, copies, buf); err == nil {
		t.Generation = got.Generation
	}
	return t, body, err
}

// sendPart sends a batch.
func sendPart(stream grpc.ServerStream, pace *rpc.Pace, head, body []byte, done func()) error {
	if failpoint.Enabled && failpoint.Tear(failpoint.FrameMiddle) {
		_ = rpc.SendPart(stream, pace, head, body[:len(body)/2], nil)
		time.Sleep(10 * time.Millisecond) // the transport writes when it likes
		failpoint.Die()
	}
	return rpc.SendPart(stream, pace, head, body, done)
}

// Ack implements the Constructor service.
func (c *Constructor) Ack(_ context.Context, req *pb.AckRequest) (*pb.AckReply, error) {
	caller := c.callerOf(req)
	caller.Leaves = req.Leaves
	if err := c.steps.Ack(caller); err != nil {
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
	GetWaitedUs() uint64
}) deliver.Caller {
	if c.steps.Serves(req.GetIdentity()) {
		c.epochs.Hear(req.GetEpoch())
	}
	return deliver.Caller{
		Rank: deliver.RankOf(req.GetRank()), Generation: req.GetGeneration(), Join: req.GetJoin(), Acked: req.GetAcked(), Identity: req.GetIdentity(), Waited: req.GetWaitedUs(),
	}
}

// part assembles a rank's part of a step: its bucket's microbatches, cut for its
// pipeline stage and context-parallel rank, and the images that it encodes.
func (st *step) part(r deliver.Rank, copies bool, body []byte) (*batch.Table, []byte, error) {
	t := &batch.Table{Step: st.number, Joined: st.from.joined, SequenceLength: uint32(st.length), Rows: st.total}
	body = body[:0]
	for rows := range st.microbatches(r) {
		for k := range rows {
			t.Lines = append(t.Lines, batch.Line{Microbatch: t.Microbatches, Number: rows[k].number, Origins: rows[k].origins})
		}
		offset := batch.Aligned(len(body))
		var tensors []batch.WireTensor
		var err error
		if body, tensors, err = st.appendRows(body, r, copies, rows); err != nil {
			return nil, nil, err
		}
		for _, x := range tensors {
			t.Tensors = append(t.Tensors, batch.Placed{
				Microbatch: t.Microbatches, Name: x.Name, DType: x.DType, Wire: x.Wire, Shape: x.Shape, Offset: uint64(offset), Size: uint64(len(x.Data)),
			})
			offset = batch.Aligned(offset + len(x.Data))
		}
		t.Microbatches++
	}
	t.Body = uint64(len(body))
	return t, body, nil
}

// appendRows appends the tensors of a microbatch to body.
func (st *step) appendRows(body []byte, r deliver.Rank, copies bool, rows []row) ([]byte, []batch.WireTensor, error) {
	layout, sources := st.from.layout, &st.from
	layout.SequenceLength, layout.Copies = st.length, copies
	content := make([]batch.Row, len(rows))
	for k := range rows {
		content[k] = rows[k].Row
	}
	cut, cp := layout, int(r.CP)
	if first := &rows[0]; layout.Split {
		cut, cp = layout.Over(int(first.width)), int(sources.inPool(r)-first.rank)
	}
	body, tensors, err := cut.Append(body, content, cp, int(r.PP))
	if err != nil {
		return nil, nil, err
	}
	var more []batch.Tensor
	if r.PP == 0 && len(sources.columns) > 0 {
		body, more = assemble.AppendKept(body, content, sources.columns)
	}
	body, images := st.appendImages(body, r, rows)
	for _, t := range append(more, images...) {
		tensors = append(tensors, batch.WireTensor{Tensor: t})
	}
	return body, tensors, nil
}

// headerOf is a table as Batch and Peek give it.
func headerOf(t *batch.Table) (*pb.BatchHeader, error) {
	h := &pb.BatchHeader{
		Step: t.Step, EndOfData: t.End, BodySize: t.Body, Topology: t.Topology, SequenceLength: t.SequenceLength, Rows: t.Rows, Generation: t.Generation, Joined: t.Joined,
	}
	for range t.Microbatches {
		h.Microbatches = append(h.Microbatches, &pb.Microbatch{})
	}
	for _, p := range t.Tensors {
		out := &pb.Tensor{Name: p.Name, Dtype: p.DType.String(), Wire: p.Wire.String(), Offset: p.Offset, Size: p.Size}
		for _, n := range p.Shape {
			out.Shape = append(out.Shape, uint64(n))
		}
		mb := h.Microbatches[p.Microbatch]
		mb.Tensors = append(mb.Tensors, out)
	}
	for _, l := range t.Lines {
		info := &pb.RowInfo{Row: l.Number}
		for _, o := range l.Documents() {
			info.Lengths, info.Sources = append(info.Lengths, o.Length), append(info.Sources, o.Source)
			info.Seqs, info.Indices = append(info.Seqs, o.Seq), append(info.Indices, o.Index)
		}
		raw, err := proto.Marshal(info)
		if err != nil {
			return nil, err
		}
		mb := h.Microbatches[l.Microbatch]
		mb.Rows = append(mb.Rows, raw)
	}
	return h, nil
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

// shared walks over the rows that a rank of the pool has a part of, a microbatch at a time. Rows
// of one microbatch follow each other and have the same ranks.
func (s *step) shared(rank uint32) iter.Seq[[]row] {
	return func(yield func([]row) bool) {
		for rest := s.rows; len(rest) > 0; {
			r, n := &rest[0], 1
			for n < len(rest) && rest[n].rank == r.rank && rest[n].microbatch == r.microbatch {
				n++
			}
			if r.rank <= rank && rank < r.rank+r.width && !yield(rest[:n]) {
				return
			}
			rest = rest[n:]
		}
	}
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
