package constructor

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc"

	"github.com/millrace-data/millrace/constructor/assemble"
	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/rpc"
	pb "github.com/millrace-data/millrace/proto"
)

// Batch implements the Constructor service.
func (c *Constructor) Batch(req *pb.BatchRequest, stream grpc.ServerStreamingServer[pb.Frame]) error {
	ctx, cancel := rpc.Early(stream.Context())
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, c.opts.Deadline)
	defer cancel()
	q := ask{rankOf(req.Rank), req.Generation, req.Step, req.Acked, req.Join}
	st, err := c.steps.answer(ctx, q)
	if err != nil {
		return rpc.ToStatus(err)
	}
	if id := c.steps.job.Identity; len(req.Identity) > 0 && !bytes.Equal(req.Identity, id) {
		return rpc.ToStatus(fault.Userf("%s asks for spec %x, this service runs %x", q.rank, req.Identity[:min(6, len(req.Identity))], id[:6]))
	}
	if st == nil {
		return rpc.SendBody(stream, &pb.BatchHeader{Step: req.Step, EndOfData: true}, nil, nil)
	}
	buf := c.bodies.get()
	header, body, err := c.part(st, q.rank, *buf)
	if err != nil {
		return rpc.ToStatus(err)
	}
	c.steps.delivered(len(body))
	*buf = body
	return rpc.SendBody(stream, header, body, func() { c.bodies.put(buf) })
}

// part assembles a rank's part of a step: its bucket's microbatches, cut for its
// pipeline stage and context-parallel rank.
func (c *Constructor) part(st *step, r rank, body []byte) (*pb.BatchHeader, []byte, error) {
	job, layout := c.steps.job, c.steps.layout
	header := &pb.BatchHeader{Step: st.number}
	body = body[:0]
	for m := range job.Microbatches {
		first := (m*job.Mesh.Dp + r.dp) * job.MicrobatchSize
		i, ok := slices.BinarySearchFunc(st.rows, first, func(row row, n uint32) int { return int(row.number) - int(n) })
		if !ok {
			return nil, nil, fmt.Errorf("step %d: row %d of %s is not here", st.number, first, r)
		}
		rows := st.rows[i : i+int(job.MicrobatchSize)]
		content := make([]batch.Row, len(rows))
		mb := &pb.Microbatch{}
		for k := range rows {
			content[k] = rows[k].Row
			mb.Rows = append(mb.Rows, rows[k].info)
		}
		var tensors []batch.Tensor
		var err error
		offset := batch.Aligned(len(body))
		if body, tensors, err = layout.Append(body, content, int(r.cp), int(r.pp)); err != nil {
			return nil, nil, err
		}
		if r.pp == 0 && len(c.steps.kept) > 0 {
			var kept []batch.Tensor
			body, kept = assemble.AppendKept(body, content, c.steps.kept)
			tensors = append(tensors, kept...)
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

func wireTensor(t batch.Tensor, offset int) *pb.Tensor {
	out := &pb.Tensor{Name: t.Name, Dtype: t.DType.String(), Offset: uint64(offset), Size: uint64(len(t.Data))}
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
