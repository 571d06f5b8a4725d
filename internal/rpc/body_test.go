package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

func isAligned(b []byte) bool {
	return cap(b) == 0 || uintptr(unsafe.Pointer(unsafe.SliceData(b)))%Alignment == 0
}

// fetches is a Loader service that answers every Fetch with one function.
type fetches struct {
	pb.UnimplementedLoaderServer
	answer func(grpc.ServerStreamingServer[pb.Frame]) error
}

func (f *fetches) Fetch(_ *pb.FetchRequest, stream grpc.ServerStreamingServer[pb.Frame]) error {
	return f.answer(stream)
}

// serveFetch serves answer until the test ends and returns the address.
func serveFetch(t *testing.T, answer func(grpc.ServerStreamingServer[pb.Frame]) error) string {
	t.Helper()
	listener, err := Listen("unix:"+filepath.Join(t.TempDir(), "s"), Security{})
	if err != nil {
		t.Fatal(err)
	}
	server, err := NewServer(Security{})
	if err != nil {
		t.Fatal(err)
	}
	pb.RegisterLoaderServer(server, &fetches{answer: answer})
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, server, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	return Address(listener)
}

func fetch(t *testing.T, address string) grpc.ServerStreamingClient[pb.Frame] {
	t.Helper()
	conn, err := Dial(address, Security{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	stream, err := pb.NewLoaderClient(conn).Fetch(ctx, &pb.FetchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

var bodySizes = []int{0, 1, 64, 1000, 1024, 1025, frameBytes - 1, frameBytes, frameBytes + 1, 2*frameBytes + 500, 5_000_000}

// TestBodies sends bodies of all sizes over a socket: they come whole and
// aligned, and done is called once for each.
func TestBodies(t *testing.T) {
	for _, size := range bodySizes {
		body := random(size)
		var done atomic.Int32
		address := serveFetch(t, func(stream grpc.ServerStreamingServer[pb.Frame]) error {
			return SendBody(stream, &pb.FetchHeader{BodySize: uint64(size)}, body, func() { done.Add(1) })
		})
		for _, buf := range [][]byte{nil, make([]byte, 100), make([]byte, size+Alignment)} {
			done.Store(0)
			header := &pb.FetchHeader{}
			got, err := ReceiveBody(fetch(t, address), header, buf)
			if err != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
			if !bytes.Equal(got, body) || !isAligned(got) || header.BodySize != uint64(size) {
				t.Errorf("%d bytes: %d came, aligned: %v, header %v", size, len(got), isAligned(got), header)
			}
			waitFor(t, func() bool { return done.Load() > 0 })
			time.Sleep(time.Millisecond) // for a second call, if there were one
			if n := done.Load(); n != 1 {
				t.Errorf("%d bytes: done was called %d times", size, n)
			}
		}
	}
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(end) {
			t.Fatal("it did not happen in a minute")
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// TestBodyInGivenMemory checks that a large enough buffer is used.
func TestBodyInGivenMemory(t *testing.T) {
	body := random(10_000)
	address := serveFetch(t, func(stream grpc.ServerStreamingServer[pb.Frame]) error {
		return SendBody(stream, &pb.FetchHeader{BodySize: uint64(len(body))}, body, nil)
	})
	buf := make([]byte, len(body)+Alignment)
	got, err := ReceiveBody(fetch(t, address), &pb.FetchHeader{}, buf)
	if err != nil {
		t.Fatal(err)
	}
	got[0]++
	if !bytes.Contains(buf, got) {
		t.Error("the body lies elsewhere")
	}
}

// TestFrames reads a bulk answer with a client that knows protobuf only: every
// frame is an ordinary message of less than 1 MiB.
func TestFrames(t *testing.T) {
	for _, size := range bodySizes {
		body := random(size)
		checkFrames(t, body, func(stream grpc.ServerStreamingServer[pb.Frame]) error {
			return SendBody(stream, &pb.FetchHeader{BodySize: uint64(size)}, body, nil)
		})
		checkFrames(t, body, func(stream grpc.ServerStreamingServer[pb.Frame]) error {
			return SendWritten(stream, &pb.FetchHeader{BodySize: uint64(size)}, inPieces(body))
		})
	}
}

// inPieces writes a body in pieces of 1 byte, 7, 49 and so on, each in memory that it overwrites afterwards.
func inPieces(body []byte) func(io.Writer) error {
	return func(to io.Writer) error {
		rest := bytes.Clone(body)
		for n := 1; len(rest) > 0; n *= 7 {
			piece := rest[:min(n, len(rest))]
			if wrote, err := to.Write(piece); err != nil || wrote != len(piece) {
				return fmt.Errorf("%d of %d bytes: %w", wrote, len(piece), err)
			}
			clear(piece)
			rest = rest[len(piece):]
		}
		return nil
	}
}

// checkFrames checks what a client that knows protobuf only gets of a body.
func checkFrames(t *testing.T, body []byte, answer func(grpc.ServerStreamingServer[pb.Frame]) error) {
	t.Helper()
	size := len(body)
	address := serveFetch(t, answer)
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := pb.NewLoaderClient(conn).Fetch(t.Context(), &pb.FetchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var joined []byte
	frames := 0
	for ; ; frames++ {
		frame, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := len(frame.Header) + len(frame.Body); n >= 1<<20-16 {
			t.Errorf("a frame has %d bytes", n)
		}
		if frames > 0 && len(frame.Header) > 0 {
			t.Errorf("frame %d has a header", frames)
		}
		joined = append(joined, frame.Body...)
	}
	least, most := max((size+frameBytes-1)/frameBytes, 1), max((size+pieceBytes-1)/pieceBytes, 1)
	if frames < least || frames > most || !bytes.Equal(joined, body) {
		t.Errorf("%d bytes came as %d in %d frames, want %d to %d frames", size, len(joined), frames, least, most)
	}
}

// TestWrittenBodyFails: an error of whoever writes is the answer's.
func TestWrittenBodyFails(t *testing.T) {
	address := serveFetch(t, func(s grpc.ServerStreamingServer[pb.Frame]) error {
		return ToStatus(SendWritten(s, &pb.FetchHeader{BodySize: 4_000_000}, func(to io.Writer) error {
			if err := inPieces(random(2_000_000))(to); err != nil {
				return err
			}
			return fault.Lostf("the disk is away")
		}))
	})
	_, err := ReceiveBody(fetch(t, address), &pb.FetchHeader{}, nil)
	if err = FromStatus(err); fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), "the disk is away") {
		t.Errorf("error %v of class %v", err, fault.ClassOf(err))
	}
}

func TestBrokenBodies(t *testing.T) {
	lost := fault.Lostf("the disk is away")
	for _, c := range []struct {
		name   string
		answer func(grpc.ServerStreamingServer[pb.Frame]) error
		class  fault.Class
	}{
		{"no frame at all", func(grpc.ServerStreamingServer[pb.Frame]) error { return nil }, fault.Bug},
		{"short", func(s grpc.ServerStreamingServer[pb.Frame]) error {
			return SendBody(s, &pb.FetchHeader{BodySize: 10}, []byte("123"), nil)
		}, fault.Bug},
		{"long", func(s grpc.ServerStreamingServer[pb.Frame]) error {
			return SendBody(s, &pb.FetchHeader{BodySize: 2}, []byte("123"), nil)
		}, fault.Bug},
		{"beyond the limit", func(s grpc.ServerStreamingServer[pb.Frame]) error {
			return SendBody(s, &pb.FetchHeader{BodySize: MaxBody + 1}, nil, nil)
		}, fault.Bug},
		{"announced and never sent", func(s grpc.ServerStreamingServer[pb.Frame]) error {
			return SendBody(s, &pb.FetchHeader{BodySize: MaxBody}, nil, nil)
		}, fault.Bug},
		{"no header", func(s grpc.ServerStreamingServer[pb.Frame]) error {
			return s.Send(&pb.Frame{Body: []byte("123")})
		}, fault.Bug},
		{"a header that is none", func(s grpc.ServerStreamingServer[pb.Frame]) error {
			return s.Send(&pb.Frame{Header: []byte{0xff}})
		}, fault.Bug},
		{"an error in the middle", func(s grpc.ServerStreamingServer[pb.Frame]) error {
			return errors.Join(SendBody(s, &pb.FetchHeader{BodySize: 10}, []byte("123"), nil), ToStatus(lost))
		}, fault.Lost},
	} {
		t.Run(c.name, func(t *testing.T) {
			body, err := ReceiveBody(fetch(t, serveFetch(t, c.answer)), &pb.FetchHeader{}, nil)
			if err = FromStatus(err); err == nil || fault.ClassOf(err) != c.class {
				t.Errorf("%d bytes, error %v of class %v, want class %v", len(body), err, fault.ClassOf(err), c.class)
			}
		})
	}
}

// TestEmptyHeader sends a header whose fields are all zero: protobuf writes it
// as no bytes at all.
func TestEmptyHeader(t *testing.T) {
	address := serveFetch(t, func(s grpc.ServerStreamingServer[pb.Frame]) error {
		return SendBody(s, &pb.FetchHeader{}, nil, nil)
	})
	if body, err := ReceiveBody(fetch(t, address), &pb.FetchHeader{}, nil); err != nil || len(body) != 0 {
		t.Errorf("%d bytes, %v", len(body), err)
	}
}

func TestAligned(t *testing.T) {
	backing := make([]byte, 1000)
	for skip := range 130 {
		for _, n := range []int{0, 1, 63, 64, 500} {
			b := Aligned(backing[skip:skip:1000], n)
			if len(b) != 0 || cap(b) < n || !isAligned(b[:cap(b)]) {
				t.Fatalf("skip %d, n %d: cap %d, aligned %v", skip, n, cap(b), isAligned(b))
			}
		}
	}
}

func BenchmarkBody(b *testing.B) {
	body := make([]byte, 16<<20)
	listener, err := Listen("unix:"+filepath.Join(b.TempDir(), "s"), Security{})
	if err != nil {
		b.Fatal(err)
	}
	server, err := NewServer(Security{})
	if err != nil {
		b.Fatal(err)
	}
	pb.RegisterLoaderServer(server, &fetches{answer: func(s grpc.ServerStreamingServer[pb.Frame]) error {
		return SendBody(s, &pb.FetchHeader{BodySize: uint64(len(body))}, body, nil)
	}})
	ctx, cancel := context.WithCancel(b.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, server, listener) }()
	defer func() { cancel(); <-served }()
	conn, err := Dial(Address(listener), Security{})
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	buf := make([]byte, len(body)+Alignment)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		stream, err := pb.NewLoaderClient(conn).Fetch(ctx, &pb.FetchRequest{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := ReceiveBody(stream, &pb.FetchHeader{}, buf); err != nil {
			b.Fatal(err)
		}
	}
}

// TestAlignedReuse checks that a body's memory serves again, for shorter and
// equal bodies, without losing room on the way.
func TestAlignedReuse(t *testing.T) {
	first := Aligned(nil, 5000)
	at := unsafe.SliceData(first[:1])
	for _, n := range []int{5000, 10, 4999, 5000} {
		first = Aligned(first, n)
		if unsafe.SliceData(first[:1]) != at {
			t.Fatalf("%d bytes were not put where %d had been", n, 5000)
		}
		first = first[:n]
	}
	if again := Aligned(first, 50_000); unsafe.SliceData(again[:1]) == at {
		t.Error("50,000 bytes were put in the room of 5,000")
	}
}
