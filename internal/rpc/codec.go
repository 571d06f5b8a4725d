// Package rpc is what all roles share of gRPC: a codec that moves bulk bytes
// without extra copies, the frames they travel in, one mapping between fault
// classes and status codes, and the options every server and client is made with.
//
// It owns no connection and no policy of a role. On the wire everything stays
// ordinary protobuf, so that any client can speak it.
package rpc

import (
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec this one wraps
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// codec is the protobuf codec, but for Frames: it sends their bodies from where
// they lie and receives them straight into a caller's buffer. And it encodes plans faster.
type codec struct{ proto encoding.CodecV2 }

// Codec returns the codec that all servers and clients of Millrace use. Its name
// is "proto" and so is its wire format.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2("proto")} }

func (c codec) Name() string { return "proto" }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if out, ok := v.(*outgoing); ok {
		return out.buffers(), nil
	}
	if order, ok := v.(*pb.ConstructorOrder); ok {
		if out, err := planBuffers(order); out != nil || err != nil {
			return out, err
		}
	}
	return c.proto.Marshal(v)
}

// outgoing sends one Frame without copying its body.
type outgoing struct {
	header []byte // nil in all frames but the first
	body   []byte
	pool   mem.BufferPool // told when the transport is done with body
}

func (out *outgoing) buffers() mem.BufferSlice {
	var head []byte
	if out.header != nil { // an empty header is one, too
		head = protowire.AppendTag(head, 1, protowire.BytesType)
		head = protowire.AppendBytes(head, out.header)
	}
	if len(out.body) == 0 {
		out.pool.Put(nil)
		return mem.BufferSlice{mem.SliceBuffer(head)}
	}
	head = protowire.AppendTag(head, 2, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(len(out.body)))
	body := mem.NewBuffer(&out.body, out.pool)
	if mem.IsBelowBufferPoolingThreshold(len(out.body)) {
		// gRPC does not pool buffers this small: it would never call back. The
		// copy comes first, since Put lets others write to body.
		body = mem.SliceBuffer(append([]byte(nil), out.body...))
		out.pool.Put(nil)
	}
	return mem.BufferSlice{mem.SliceBuffer(head), body}
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if in, ok := v.(*incoming); ok {
		return in.read(data)
	}
	return c.proto.Unmarshal(data, v)
}

// incoming receives the Frames of one stream. Each body is copied once, from the
// transport's buffers to the end of what came before it.
type incoming struct {
	header  []byte                              // nil until the first frame is there
	buf     []byte                              // the caller's memory; used if the body fits
	body    []byte                              // what was received so far
	size    uint64                              // what the header announced
	waiting *pb.Waiting                         // what the server said last that it waits for; nil: nothing
	open    func(header []byte) (uint64, error) // reads the header, returns the size
}

func (in *incoming) read(data mem.BufferSlice) error {
	r := data.Reader()
	defer r.Close()
	for r.Remaining() > 0 {
		tag, err := readVarint(r)
		if err != nil {
			return err
		}
		size, err := readVarint(r)
		if err != nil {
			return err
		}
		if size > uint64(r.Remaining()) {
			return fmt.Errorf("frame field of %d bytes in %d: %w", size, r.Remaining(), io.ErrUnexpectedEOF)
		}
		if err := in.field(r, tag, int(size)); err != nil {
			return err
		}
	}
	return nil
}

func (in *incoming) field(r *mem.Reader, tag uint64, size int) error {
	switch tag {
	case 1<<3 | uint64(protowire.BytesType):
		return in.readHeader(r, size)
	case 2<<3 | uint64(protowire.BytesType):
		return in.readBody(r, size)
	case 3<<3 | uint64(protowire.BytesType):
		return in.readWaiting(r, size)
	}
	return fmt.Errorf("frame has an unknown field (tag %d)", tag)
}

func (in *incoming) readHeader(r *mem.Reader, size int) (err error) {
	if in.header != nil {
		return errors.New("a stream has a second frame header")
	}
	in.header = make([]byte, size)
	if _, err = io.ReadFull(r, in.header); err != nil {
		return err
	}
	in.size, err = in.open(in.header)
	in.body = Aligned(in.buf, int(min(in.size, firstBody)))
	return err
}

func (in *incoming) readWaiting(r *mem.Reader, size int) error {
	raw, waiting := make([]byte, size), &pb.Waiting{}
	if _, err := io.ReadFull(r, raw); err != nil {
		return err
	}
	if err := proto.Unmarshal(raw, waiting); err != nil {
		return fmt.Errorf("decoding what a server waits for: %w", err)
	}
	in.waiting = waiting
	return nil
}

func (in *incoming) readBody(r *mem.Reader, size int) error {
	n := len(in.body)
	if uint64(n)+uint64(size) > in.size {
		return fmt.Errorf("frames hold more than the %d bytes announced", in.size)
	}
	if n+size > cap(in.body) {
		in.body = append(Aligned(nil, int(min(in.size, uint64(2*cap(in.body)+size)))), in.body...)
	}
	in.body = in.body[:n+size]
	_, err := io.ReadFull(r, in.body[n:])
	return err
}

var errVarint = errors.New("frame holds a varint of more than 64 bits")

func readVarint(r io.ByteReader) (uint64, error) {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		b, err := r.ReadByte()
		if err != nil {
			return 0, io.ErrUnexpectedEOF
		}
		if shift == 63 && b > 1 {
			return 0, errVarint
		}
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, nil
		}
	}
	return 0, errVarint
}
