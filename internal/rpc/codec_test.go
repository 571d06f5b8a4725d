package rpc

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// wireOf marshals v with the codec and returns the bytes.
func wireOf(t *testing.T, v any) []byte {
	t.Helper()
	data, err := Codec().Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	defer data.Free()
	return data.Materialize()
}

// scattered cuts data into buffers of up to n bytes, as a transport does.
func scattered(data []byte, n int) mem.BufferSlice {
	var out mem.BufferSlice
	for len(data) > 0 {
		k := min(n, len(data))
		out = append(out, mem.SliceBuffer(data[:k]))
		data = data[k:]
	}
	return out
}

// collect returns an incoming stream whose header is taken as it is and
// announces size bytes.
func collect(size uint64) *incoming {
	return &incoming{open: func([]byte) (uint64, error) { return size, nil }}
}

func random(n int) []byte {
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(rng.Uint32())
	}
	return out
}

// TestOutgoingIsProtobuf reads with plain protobuf what the codec sends.
func TestOutgoingIsProtobuf(t *testing.T) {
	for _, size := range []int{0, 1, 127, 128, 1023, 1024, 1025, 70_000, frameBytes} {
		for _, header := range [][]byte{nil, {}, []byte("head"), random(300)} {
			body := random(size)
			wire := wireOf(t, &outgoing{header, body, &countdown{}})
			var frame pb.Frame
			if err := proto.Unmarshal(wire, &frame); err != nil {
				t.Fatalf("header of %d bytes, body of %d: %v", len(header), size, err)
			}
			if !bytes.Equal(frame.Header, header) || !bytes.Equal(frame.Body, body) {
				t.Errorf("header of %d bytes, body of %d: plain protobuf reads %d and %d", len(header), size, len(frame.Header), len(frame.Body))
			}
		}
	}
}

// TestIncomingIsProtobuf reads with the codec what plain protobuf sends, in
// pieces of all kinds.
func TestIncomingIsProtobuf(t *testing.T) {
	for _, size := range []int{0, 1, 128, 70_000} {
		for _, piece := range []int{1, 2, 3, 100, 16 << 10, 1 << 20} {
			if size/piece > 10_000 {
				continue
			}
			want := &pb.Frame{Header: []byte("head"), Body: random(size)}
			wire, err := proto.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			in := collect(uint64(size))
			if err := Codec().Unmarshal(scattered(wire, piece), in); err != nil {
				t.Fatalf("%d bytes in pieces of %d: %v", size, piece, err)
			}
			if !bytes.Equal(in.header, want.Header) || !bytes.Equal(in.body, want.Body) {
				t.Errorf("%d bytes in pieces of %d: other bytes came", size, piece)
			}
		}
	}
}

// TestOtherMessages checks that all but Frames go the ordinary way.
func TestOtherMessages(t *testing.T) {
	want := &pb.BlockRead{Source: 3, Seq: 1 << 40, Lengths: []uint32{1, 2, 3}}
	wire := wireOf(t, want)
	plain, err := proto.Marshal(want)
	if err != nil || !bytes.Equal(wire, plain) {
		t.Errorf("the codec wrote %x, protobuf writes %x (%v)", wire, plain, err)
	}
	got := &pb.BlockRead{}
	if err := Codec().Unmarshal(scattered(wire, 2), got); err != nil || !proto.Equal(got, want) {
		t.Errorf("got %v (%v), want %v", got, err, want)
	}
	if Codec().Name() != "proto" {
		t.Errorf("the codec is called %q", Codec().Name())
	}
}

func TestDamagedFrames(t *testing.T) {
	field := func(number protowire.Number, data ...byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), data)
	}
	overlong := bytes.Repeat([]byte{0x80}, 10)
	for _, c := range []struct {
		name string
		wire []byte
		want string
	}{
		{"body before any header", field(2, 1), "more than the 0 bytes"},
		{"more body than announced", append(field(1, 9), field(2, 1, 2, 3, 4, 5)...), "more than the 4 bytes"},
		{"two headers", append(field(1, 9), field(1, 9)...), "second frame header"},
		{"a field that frames do not have", field(4, 1), "unknown field"},
		{"what is waited for, damaged", field(3, 1), "what a server waits for"},
		{"a number where bytes belong", []byte{1 << 3, 1, 0}, "unknown field"},
		{"tag cut off", []byte{0x80}, "unexpected EOF"},
		{"length missing", field(1, 9)[:1], "unexpected EOF"},
		{"field cut off", field(1, 9, 9, 9)[:4], "field of 3 bytes in 2"},
		{"length of 2^63", protowire.AppendVarint([]byte{1<<3 | 2}, 1<<63), "unexpected EOF"},
		{"endless varint", append(overlong, 1), "64 bits"},
		{"varint of 65 bits", append([]byte{0x8a}, append(bytes.Repeat([]byte{0x80}, 8), 2)...), "64 bits"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Codec().Unmarshal(scattered(c.wire, 1), collect(4))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// TestHeaderRefused checks that what a header's reader says is passed on.
func TestHeaderRefused(t *testing.T) {
	broken := errors.New("broken")
	in := &incoming{open: func([]byte) (uint64, error) { return 0, broken }}
	if err := in.read(scattered([]byte{1<<3 | 2, 1, 7}, 1)); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

// TestBodyGrows sends a body that was not set aside at once: its start stays
// where NumPy wants it, and no byte is lost on the way.
func TestBodyGrows(t *testing.T) {
	in := collect(300_000)
	if err := in.read(scattered([]byte{1<<3 | 2, 0}, 1)); err != nil {
		t.Fatal(err)
	}
	in.body = Aligned(nil, 1000) // as if firstBody were 1000
	var want []byte
	for len(want) < 300_000 {
		part := random(min(7001, 300_000-len(want)))
		want = append(want, part...)
		if err := in.read(scattered(wireOf(t, &outgoing{nil, part, &countdown{}}), 4096)); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(in.body, want) || !isAligned(in.body) {
		t.Errorf("%d of %d bytes came, aligned: %v", len(in.body), len(want), isAligned(in.body))
	}
}

// FuzzIncoming feeds frames of any bytes: no panic, never more than was
// announced, and nothing is accepted that protobuf would refuse.
func FuzzIncoming(f *testing.F) {
	for _, frame := range []*pb.Frame{{}, {Header: []byte{8, 4}}, {Header: []byte{1}, Body: []byte("body")}, {Body: random(200)}} {
		wire, err := proto.Marshal(frame)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire, uint16(4), uint8(3))
		f.Add(append(wire, wire...), uint16(400), uint8(1))
	}
	f.Add([]byte{0x8a, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2, 0}, uint16(4), uint8(1))
	f.Fuzz(func(t *testing.T, wire []byte, announced uint16, piece uint8) {
		in := collect(uint64(announced))
		err := in.read(scattered(wire, int(piece)+1))
		if len(in.body) > int(announced) {
			t.Fatalf("%d bytes of %d announced", len(in.body), announced)
		}
		if err != nil {
			return
		}
		if err := proto.Unmarshal(wire, &pb.Frame{}); err != nil {
			t.Fatalf("protobuf refuses what was accepted: %v", err)
		}
	})
}

func TestReadVarint(t *testing.T) {
	for _, v := range []uint64{0, 1, 127, 128, 1<<32 - 1, 1 << 63, 1<<64 - 1} {
		r := bytes.NewReader(protowire.AppendVarint(nil, v))
		if got, err := readVarint(r); err != nil || got != v || r.Len() != 0 {
			t.Errorf("%d came back as %d (%v)", v, got, err)
		}
	}
	if _, err := readVarint(strings.NewReader("")); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("nothing to read: %v", err)
	}
}
