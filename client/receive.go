package client

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// Row is the lineage of one row: its number in the global batch, and for each
// document its tokens, source and place in the source's order.
type Row struct {
	Number  int
	Lengths []int
	Sources []string
	Blocks  []uint64
	Indices []uint32
}

// Microbatch is one microbatch of a rank: the tensors of its pipeline stage and
// context-parallel slice.
type Microbatch struct {
	Tensors []Tensor

	rows    [][]byte     // of each a RowInfo; of a service that knows no tables
	lines   []batch.Line // in place of them
	sources []string
}

// Rows returns the lineage of the microbatch's rows, decoded at each call. An error means
// that the service speaks another version of the protocol.
func (m *Microbatch) Rows() ([]Row, error) {
	if m.lines != nil {
		return rowsOf(m.lines, m.sources), nil
	}
	rows := make([]Row, len(m.rows))
	for i, raw := range m.rows {
		info := &pb.RowInfo{}
		if err := proto.Unmarshal(raw, info); err != nil {
			return nil, fmt.Errorf("reading where row %d of a microbatch comes from: %w", i, err)
		}
		rows[i] = lineage(info, m.sources)
	}
	return rows, nil
}

// rowsOf is the lineage of lines.
func rowsOf(lines []batch.Line, sources []string) []Row {
	rows := make([]Row, len(lines))
	for i, l := range lines {
		rows[i].Number = int(l.Number)
		for _, o := range l.Documents() {
			rows[i].Lengths, rows[i].Sources = append(rows[i].Lengths, int(o.Length)), append(rows[i].Sources, nameOf(o.Source, sources))
			rows[i].Blocks, rows[i].Indices = append(rows[i].Blocks, o.Seq), append(rows[i].Indices, o.Index)
		}
	}
	return rows
}

func lineage(r *pb.RowInfo, sources []string) Row {
	out := Row{Number: int(r.Row), Blocks: r.Seqs, Indices: r.Indices}
	for k, n := range r.Lengths {
		out.Lengths = append(out.Lengths, int(n))
		source := ^uint32(0)
		if k < len(r.Sources) {
			source = r.Sources[k]
		}
		out.Sources = append(out.Sources, nameOf(source, sources))
	}
	return out
}

// nameOf is the name of a source; empty if it is none.
func nameOf(source uint32, sources []string) string {
	if int64(source) >= int64(len(sources)) {
		return ""
	}
	return sources[source]
}

// receive reads the answer to a request for a step into m. sources are those of the job
// when it started.
func receive(stream grpc.ServerStreamingClient[pb.Frame], sources []string, m *memory) (*Batch, error) {
	header := &pb.BatchHeader{}
	var err error
	if m.body, err = rpc.ReceiveBody(stream, header, m.body); err != nil {
		return nil, rpc.FromStatus(err)
	}
	if header.EndOfData {
		return nil, ended(header.Step, header.Topology)
	}
	b := &Batch{Step: int64(header.Step), Rows: int(header.Rows), SequenceLength: int(header.SequenceLength), generation: header.Generation}
	parts := make([][]batch.WireTensor, len(header.Microbatches))
	sources = slices.Concat(sources, header.Joined)
	for i, wire := range header.Microbatches {
		b.Microbatches = append(b.Microbatches, Microbatch{rows: wire.Rows, sources: sources})
		for _, t := range wire.Tensors {
			tensor, err := view(t, m.body)
			if err != nil {
				return nil, fmt.Errorf("step %d: %w", b.Step, err)
			}
			parts[i] = append(parts[i], tensor)
		}
	}
	b.Received = len(m.body)
	return b.widen(parts, m)
}

// receivePart reads the next step of a stream into m.
func receivePart(stream rpc.Receiver, sources []string, m *memory) (*Batch, error) {
	var t *batch.Table
	open := func(head []byte) (size uint64, err error) {
		if t, err = batch.ReadTable(head); err != nil {
			return 0, err
		}
		if t.Body > rpc.MaxBody {
			return 0, fmt.Errorf("a body of %d bytes is announced; the most is %d", t.Body, int64(rpc.MaxBody))
		}
		return t.Body, nil
	}
	body, err := rpc.ReceivePart(stream, open, m.body)
	if errors.Is(err, io.EOF) {
		return nil, fault.Lostf("the constructor has ended the stream")
	}
	if err != nil {
		return nil, rpc.FromStatus(err)
	}
	m.body = body
	return batchOf(t, body, sources, m)
}

// batchOf makes a batch of a table and its body. It is the error of a step that does not exist.
func batchOf(t *batch.Table, body []byte, sources []string, m *memory) (*Batch, error) {
	if t.End {
		return nil, ended(t.Step, t.Topology)
	}
	b := &Batch{Step: int64(t.Step), Rows: int(t.Rows), SequenceLength: int(t.SequenceLength), Microbatches: make([]Microbatch, t.Microbatches), generation: t.Generation}
	parts := make([][]batch.WireTensor, t.Microbatches)
	for _, p := range t.Tensors {
		tensor, err := p.Tensor(body)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", b.Step, err)
		}
		parts[p.Microbatch] = append(parts[p.Microbatch], tensor)
	}
	sources = slices.Concat(sources, t.Joined)
	for i := range b.Microbatches {
		b.Microbatches[i].sources, b.Microbatches[i].lines = sources, []batch.Line{}
	}
	for _, l := range t.Lines {
		mb := &b.Microbatches[l.Microbatch]
		mb.lines = append(mb.lines, l)
	}
	if b, err := b.widen(parts, m); err != nil {
		return b, err
	}
	b.Received = len(body)
	return b, nil
}

// ended is the error of a step that does not exist.
func ended(step uint64, topology string) error {
	if topology == "" {
		return io.EOF
	}
	return &TopologyError{Step: int64(step), Topology: topology}
}

// widen gives the microbatches their tensors: views of m, or widened into it.
func (b *Batch) widen(parts [][]batch.WireTensor, m *memory) (*Batch, error) {
	wide := 0
	for _, tensors := range parts {
		wide = batch.Aligned(wide) + batch.WideSize(tensors)
	}
	if wide > rpc.MaxBody {
		return nil, fmt.Errorf("step %d: its tensors have %d bytes; the most is %d", b.Step, wide, int64(rpc.MaxBody))
	}
	m.wide = rpc.Aligned(m.wide, wide)
	b.memory = m
	for i, tensors := range parts {
		if err := batch.CheckCopies(tensors); err != nil {
			return nil, fmt.Errorf("step %d: %w", b.Step, err)
		}
		mb := &b.Microbatches[i]
		m.wide, mb.Tensors = batch.Widen(m.wide, tensors)
		for _, t := range mb.Tensors {
			b.Bytes += len(t.Data)
		}
	}
	return b, nil
}

// view returns the tensor that t describes, as it lies in body.
func view(t *pb.Tensor, body []byte) (batch.WireTensor, error) {
	var out batch.WireTensor
	var err error
	if out.DType, err = batch.ParseDType(t.Dtype); err != nil {
		return out, err
	}
	if out.Wire, err = batch.ParseWire(t.Wire); err != nil {
		return out, err
	}
	if t.Offset > uint64(len(body)) || t.Size > uint64(len(body))-t.Offset {
		return out, fmt.Errorf("tensor %s lies outside the batch's %d bytes", t.Name, len(body))
	}
	out.Name, out.Data = t.Name, body[t.Offset:t.Offset+t.Size]
	for _, n := range t.Shape {
		out.Shape = append(out.Shape, int(n))
	}
	return out, out.Check()
}
