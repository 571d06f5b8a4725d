package rpc

import (
	"encoding/binary"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// A plan of a large step is nearly all columns of numbers that take one or two bytes, in no order that a
// processor could foresee. The general encoder has a branch or two for each, twice; the codec encodes
// columns without. What is sent is the same message.

const (
	planField    = 4       // of a plan in an order
	smallPlan    = 4096    // samples: the general encoder is fast enough for fewer
	twoByteLimit = 1 << 14 // what takes more bytes than two
)

// column is a packed field of numbers.
type column struct {
	field  protowire.Number
	values []uint32
	size   int // bytes of all values
}

// planBuffers encodes an order that is a part of a large plan; nil if it is none.
func planBuffers(order *pb.ConstructorOrder) (mem.BufferSlice, error) {
	plan := order.GetPlan()
	if plan == nil || len(plan.SampleIndex) < smallPlan || len(plan.ProtoReflect().GetUnknown())+len(order.ProtoReflect().GetUnknown()) > 0 {
		return nil, nil
	}
	columns := [...]column{
		{field: 4, values: plan.Rows}, {field: 5, values: plan.RowSamples}, {field: 6, values: plan.SampleBlock},
		{field: 7, values: plan.SampleIndex}, {field: 8, values: plan.SampleLength}, {field: 9, values: plan.RowRank},
		{field: 10, values: plan.RowMicrobatch}, {field: 15, values: plan.RowWidth},
	}
	rest, err := proto.Marshal(&pb.StepPlan{
		Generation: plan.Generation, Step: plan.Step, Blocks: plan.Blocks, SequenceLength: plan.SequenceLength,
		Microbatches: plan.Microbatches, GlobalRows: plan.GlobalRows, Images: plan.Images,
	})
	if err != nil {
		return nil, err
	}
	size := len(rest)
	for i := range columns {
		size += columns[i].measure()
	}
	head := protowire.SizeTag(planField) + protowire.SizeBytes(size)
	pool := mem.DefaultBufferPool()
	buf := pool.Get(head + 1) // put writes a byte further than it says
	b := protowire.AppendVarint(protowire.AppendTag((*buf)[:0], planField, protowire.BytesType), uint64(size))
	b = append(b, rest...)
	for i := range columns {
		b = columns[i].put(b)
	}
	*buf = b
	return mem.BufferSlice{mem.NewBuffer(buf, pool)}, nil
}

// measure returns the bytes that a column takes.
func (c *column) measure() int {
	if len(c.values) == 0 {
		return 0
	}
	all, more := uint32(0), 0
	for _, v := range c.values {
		all |= v
		more += int((v + twoByteLimit - 1<<7) >> 14) // 1 if it takes a second byte
	}
	if c.size = len(c.values) + more; all >= twoByteLimit {
		c.size = 0
		for _, v := range c.values {
			c.size += protowire.SizeVarint(uint64(v))
		}
	}
	return protowire.SizeTag(c.field) + protowire.SizeBytes(c.size)
}

// put appends a column to b, which has room for it and a byte more.
func (c *column) put(b []byte) []byte {
	if len(c.values) == 0 {
		return b
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, c.field, protowire.BytesType), uint64(c.size))
	at := len(b)
	b = b[:at+c.size+1]
	for _, v := range c.values {
		if v >= twoByteLimit {
			at += binary.PutUvarint(b[at:], uint64(v))
			continue
		}
		more := (v + twoByteLimit - 1<<7) >> 14
		binary.LittleEndian.PutUint16(b[at:], uint16(v&0x7f|more<<7|v>>7<<8)) // no branch to mispredict
		at += 1 + int(more)
	}
	return b[:at]
}
