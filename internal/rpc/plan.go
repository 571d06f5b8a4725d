package rpc

import (
	"encoding/binary"
	"sync"

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
	putAhead     = 7       // bytes behind a column that put may write to before what comes next does
)

// planMemory lends the memory that plans are encoded into. gRPC's own pool clears what it lends, and lends 1 MiB for
// what takes a tenth of it. It holds as many buffers as are being sent at a time, until the garbage collector empties it.
var planMemory mem.BufferPool = &planPool{}

type planPool struct{ pool sync.Pool }

func (p *planPool) Get(n int) *[]byte {
	b, _ := p.pool.Get().(*[]byte)
	if b == nil || cap(*b) < n {
		fresh := make([]byte, n+n/8) // the next plan is not much larger
		b = &fresh
	}
	*b = (*b)[:n]
	return b
}

func (p *planPool) Put(b *[]byte) { p.pool.Put(b) }

// column is a packed field of numbers.
type column struct {
	field  protowire.Number
	values []uint32
	size   int  // bytes of all values
	long   bool // some take more than two
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
	buf := planMemory.Get(head + putAhead)
	b := protowire.AppendVarint(protowire.AppendTag((*buf)[:0], planField, protowire.BytesType), uint64(size))
	b = append(b, rest...)
	for i := range columns {
		b = columns[i].put(b)
	}
	*buf = b
	return mem.BufferSlice{mem.NewBuffer(buf, planMemory)}, nil
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
	if c.size, c.long = len(c.values)+more, all >= twoByteLimit; c.long {
		c.size = 0
		for _, v := range c.values {
			c.size += protowire.SizeVarint(uint64(v))
		}
	}
	return protowire.SizeTag(c.field) + protowire.SizeBytes(c.size)
}

// put appends a column to b, which has room for it and putAhead bytes more.
func (c *column) put(b []byte) []byte {
	if len(c.values) == 0 {
		return b
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, c.field, protowire.BytesType), uint64(c.size))
	if c.long {
		for _, v := range c.values {
			b = protowire.AppendVarint(b, uint64(v))
		}
		return b
	}
	at := len(b)
	b = b[:at+c.size+putAhead]
	values := c.values
	for ; len(values) >= 4; values = values[4:] {
		v0, more0 := twoBytes(values[0])
		v1, more1 := twoBytes(values[1])
		v2, more2 := twoBytes(values[2])
		v3, more3 := twoBytes(values[3])
		low, high := v0|v1<<((8+8*more0)&63), v2|v3<<((8+8*more2)&63)
		binary.LittleEndian.PutUint64(b[at:], low|high<<((16+8*(more0+more1))&63))
		at += int(4 + more0 + more1 + more2 + more3)
	}
	for _, v := range values {
		bytes, more := twoBytes(v)
		binary.LittleEndian.PutUint16(b[at:], uint16(bytes))
		at += int(1 + more)
	}
	return b[:at]
}

// twoBytes returns the bytes of a number below twoByteLimit, without a branch to mispredict, and 1 if it takes a second
// one.
func twoBytes(v uint32) (bytes uint64, more uint32) {
	more = (v + twoByteLimit - 1<<7) >> 14
	return uint64(v + v&^0x7f + more<<7), more
}
