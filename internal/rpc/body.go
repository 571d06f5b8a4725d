package rpc

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"unsafe"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// frameBytes is the most that the body of one frame has (see Pace). A message of up to 1 MiB stays in
// grpc-go's pooled buffers; a few bytes of header must fit beside it.
const frameBytes = 1_048_000

// MaxBody bounds a bulk answer (one rank's step, one fetch): 64 GiB is beyond
// any host's share of a step and catches a broken header.
const MaxBody = 64 << 30

// firstBody is the most that is set aside on a header's word alone. A larger
// body grows as it comes, so that a broken header cannot take all memory.
const firstBody = 256 << 20

// SendBody sends header (a FetchHeader or BatchHeader that announces body_size)
// and body as frames. The transport reads body after SendBody returned: it
// belongs to SendBody until done is called, once, from any goroutine (done may
// be nil). If the stream breaks, done may never be called.
func SendBody(stream grpc.ServerStream, header proto.Message, body []byte, done func()) error {
	head, err := proto.Marshal(header)
	if err != nil {
		return fmt.Errorf("encoding a frame header: %w", err)
	}
	return SendPart(stream, nil, head, body, done)
}

// SendPart is SendBody for one of several bodies of a stream, whose header is head. pace is kept from one to the
// next; nil is that of a stream which has one.
func SendPart(stream grpc.ServerStream, pace *Pace, head, body []byte, done func()) error {
	if pace == nil {
		pace = &Pace{}
	}
	pace.begin()
	pool := &countdown{done: done}
	pool.left.Store(1) // SendPart itself
	for first := true; first || len(body) > 0; first = false {
		n := min(len(body), pace.piece())
		pool.left.Add(1)
		if err := stream.SendMsg(&outgoing{head, body[:n], pool}); err != nil {
			return err
		}
		pace.sent(n)
		head, body = nil, body[n:]
	}
	pool.Put(nil)
	return nil
}

// countdown calls done when the last of a body's frames was written. To gRPC it
// is the pool that the frames' memory goes back to.
type countdown struct {
	left atomic.Int64
	done func()
}

func (c *countdown) Get(n int) *[]byte { b := make([]byte, n); return &b }

func (c *countdown) Put(*[]byte) {
	if c.left.Add(-1) == 0 && c.done != nil {
		c.done()
	}
}

// SendWritten is SendBody for a body that write writes, which has the size that header announces. No more
// of it than some frames is in memory at a time: write waits while the receiver takes no more.
func SendWritten(stream grpc.ServerStream, header proto.Message, write func(io.Writer) error) error {
	head, err := proto.Marshal(header)
	if err != nil {
		return fmt.Errorf("encoding a frame header: %w", err)
	}
	w := &frameWriter{stream: stream, head: head}
	w.pace.begin()
	if err := write(w); err != nil {
		return err
	}
	if w.open != nil || w.head != nil {
		return w.flush()
	}
	return nil
}

// frameWriter sends what is written to it.
type frameWriter struct {
	stream grpc.ServerStream
	pace   Pace
	head   []byte // nil once it was sent
	open   *frame // nil: empty
	size   int    // that open is sent with
}

// frame is the memory of one frame, and the pool that it goes back to.
type frame struct {
	n      int
	memory []byte
	home   *sync.Pool
}

var (
	frames = sync.Pool{New: func() any { return &frame{memory: make([]byte, frameBytes)} }}
	pieces = sync.Pool{New: func() any { return &frame{memory: make([]byte, pieceBytes)} }}
)

// frameOf is empty memory for a frame of some size.
func frameOf(size int) *frame {
	home := &frames
	if size <= pieceBytes {
		home = &pieces
	}
	f := home.Get().(*frame)
	f.n, f.home = 0, home
	return f
}

func (f *frame) Get(n int) *[]byte { b := make([]byte, n); return &b }

func (f *frame) Put(*[]byte) {
	if f.home != nil {
		f.home.Put(f)
	}
}

func (w *frameWriter) Write(p []byte) (written int, err error) {
	for len(p) > 0 {
		if w.open == nil {
			w.size = w.pace.piece()
			w.open = frameOf(w.size)
		}
		n := copy(w.open.memory[w.open.n:w.size], p)
		w.open.n += n
		written, p = written+n, p[n:]
		if w.open.n == w.size {
			if err := w.flush(); err != nil {
				return written, err
			}
		}
	}
	return written, nil
}

// flush sends the open frame, which is the transport's then.
func (w *frameWriter) flush() error {
	f := w.open
	if f == nil {
		f = &frame{}
	}
	n := f.n // of memory that is another's after it was sent
	out := &outgoing{w.head, f.memory[:n], f}
	w.head, w.open = nil, nil
	if err := w.stream.SendMsg(out); err != nil {
		return err
	}
	w.pace.sent(n)
	return nil
}

// sized is a frame header that announces a body.
type sized interface {
	proto.Message
	GetBodySize() uint64
}

// ReceiveBody reads a bulk answer: it fills header and returns the joined body.
// The body starts at a multiple of 64 bytes and belongs to the caller; buf is
// used for it if it is large enough; a body returned may be given as buf again.
func ReceiveBody(stream grpc.ServerStreamingClient[pb.Frame], header sized, buf []byte) ([]byte, error) {
	in := incoming{buf: buf, open: func(head []byte) (uint64, error) {
		if err := proto.Unmarshal(head, header); err != nil {
			return 0, fmt.Errorf("decoding a frame header: %w", err)
		}
		if header.GetBodySize() > MaxBody {
			return 0, fmt.Errorf("a body of %d bytes is announced; the most is %d", header.GetBodySize(), int64(MaxBody))
		}
		return header.GetBodySize(), nil
	}}
	for {
		err := stream.RecvMsg(&in)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, in.why(err)
		}
	}
	if in.header == nil {
		return nil, fmt.Errorf("the stream ended before its header came: %w", io.ErrUnexpectedEOF)
	}
	if uint64(len(in.body)) != in.size {
		return nil, fmt.Errorf("%d of %d bytes came before the stream ended: %w", len(in.body), in.size, io.ErrUnexpectedEOF)
	}
	return in.body, nil
}

// Receiver is the receiving side of a stream: *grpc.ClientStream is one.
type Receiver interface{ RecvMsg(m any) error }

// ReceivePart reads one of several bodies of a stream, whose header open reads: it returns the
// body's size. The body is as ReceiveBody's. io.EOF says that the stream ended before it began.
func ReceivePart(stream Receiver, open func(head []byte) (uint64, error), buf []byte) ([]byte, error) {
	in := incoming{buf: buf, open: open}
	for in.header == nil || uint64(len(in.body)) < in.size {
		err := stream.RecvMsg(&in)
		if errors.Is(err, io.EOF) && in.header != nil {
			return nil, fmt.Errorf("%d of %d bytes came before the stream ended: %w", len(in.body), in.size, io.ErrUnexpectedEOF)
		}
		if err != nil {
			return nil, in.why(err)
		}
	}
	return in.body, nil
}

// whole says whether all of a body is there.
func (in *incoming) whole() bool { return in.header != nil && uint64(len(in.body)) == in.size }

// why is the error of a stream that broke, with what the server said last that it waits for.
func (in *incoming) why(err error) error {
	s, ok := status.FromError(err)
	if _, silent := Silent(err); in.waiting.GetReason() == "" || in.header != nil || !ok || silent {
		return err
	}
	return status.Errorf(s.Code(), "%s; the server waited for this: %s", s.Message(), in.waiting.Reason)
}

// Alignment of bodies and of the tensors in them, in bytes: a cache line, and
// what Arrow and NumPy ask for.
const Alignment = 64

// Aligned returns an empty slice with room for n bytes at an aligned address, in
// buf's memory if it fits there; new memory has an eighth to spare, so that a
// somewhat larger body fits the next time. All of the room can be used again.
func Aligned(buf []byte, n int) []byte {
	if skip := misaligned(buf); cap(buf) > 0 && cap(buf)-skip >= n {
		return buf[skip:skip]
	}
	buf = make([]byte, 0, n+n/8+Alignment)
	skip := misaligned(buf)
	return buf[skip:skip]
}

// misaligned is how many bytes lie between buf's start and an aligned address.
func misaligned(buf []byte) int {
	address := uintptr(unsafe.Pointer(unsafe.SliceData(buf)))
	return int((Alignment - address%Alignment) % Alignment)
}
