package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/hostmem"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// shareTime is how long the question for a socket may take, whose answer waits for nothing.
const shareTime = 3 * time.Second

// unsharedError says why a rank cannot map memory of its constructor's. There are other ways.
type unsharedError struct{ reason string }

func (e *unsharedError) Error() string { return e.reason }

func unshared(text string, args ...any) error {
	return &unsharedError{fmt.Sprintf(text, args...)}
}

// local is a line on the same machine. Bodies lie in memory that is mapped, or follow on the socket where none
// was free.
type local struct {
	c       *Client
	at      *joined
	conn    *hostmem.Conn
	watch   *rpc.Watch
	taken   bool // something came: the constructor has taken the line
	silence atomic.Pointer[error]
	ring    *ring // the last one that came

	mu    sync.Mutex // guards freed
	freed []uint64   // steps that the constructor has not been told of
}

// ring is memory of the constructor's.
type ring struct {
	number uint64
	view   *hostmem.View

	mu    sync.Mutex // guards the fields below
	users int        // batches that lie in it, and the line, while it may bring more
}

// leave counts one user less. Nobody can read memory that the last one has left.
func (r *ring) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users--; r.users == 0 {
		_ = r.view.Close() // there is nothing to do about memory that cannot be unmapped
	}
}

// slot is where a step lies.
type slot struct {
	line *local
	ring *ring
	step uint64
}

// free gives the slot back. The constructor hears of it with the next word of the rank.
func (s *slot) free() {
	if s == nil {
		return
	}
	s.line.mu.Lock()
	s.line.freed = append(s.line.freed, s.step)
	s.line.mu.Unlock()
	s.ring.leave()
}

// openShared opens a line on the same machine, with a ticket that the constructor gives for it by a call.
func (c *Client) openShared(ctx context.Context, s *stream, hello *pb.DeliverRequest) error {
	reply, err := c.askToShare(ctx, s.at, hello)
	if err != nil {
		return err
	}
	path := reply.Socket
	if dir := c.sharedDir(); dir != "" {
		path = filepath.Join(dir, filepath.Base(path))
	}
	conn, err := hostmem.Dial(ctx, path)
	if err != nil {
		return unshared("the socket of the constructor cannot be reached from here: %v", err)
	}
	hello.Listens = reply.Listens
	raw, err := proto.Marshal(hello)
	if err == nil {
		err = conn.Send(hostmem.Hello, 0, func(b []byte) []byte { return append(append(b, reply.Ticket...), raw...) }, nil)
	}
	if err != nil {
		return errors.Join(fault.As(fault.Lost, err), conn.Close())
	}
	l := &local{c: c, at: s.at, conn: conn}
	l.watch = rpc.NewWatch(s.at.reply.Constructor, rpc.Rounds(reply.Listens), func() bool { return c.owed(s) }, func(err error) {
		l.silence.Store(&err)
		_ = conn.Close() // whoever receives says why
	})
	s.line = l
	return nil
}

// askToShare asks for a ticket.
func (c *Client) askToShare(ctx context.Context, at *joined, hello *pb.DeliverRequest) (*pb.ShareReply, error) {
	machine := hostmem.Machine()
	switch {
	case c.sharedDir() == hostmem.None || !c.opts.Security.Local():
		return nil, unshared("sharing memory is switched off for the rank")
	case machine == "":
		return nil, unshared("this system has no memory that can be shared: it takes Linux")
	}
	ctx, cancel := rpc.Prompt(ctx, shareTime)
	defer cancel()
	reply, err := pb.NewConstructorClient(at.data).Share(ctx, &pb.ShareRequest{Rank: hello.Rank, Join: hello.Join, Machine: machine})
	switch err = rpc.FromStatus(err); {
	case rpc.Unknown(err):
		return nil, unshared("the constructor is of a version that shares none")
	case err != nil:
		return nil, err
	case reply.Socket == "":
		return nil, unshared("%s", reply.Reason)
	}
	return reply, nil
}

func (c *Client) sharedDir() string {
	if c.opts.SharedDir != "" {
		return c.opts.SharedDir
	}
	return os.Getenv(hostmem.EnvDir)
}

func (l *local) tell(m *pb.DeliverRequest) error {
	l.mu.Lock()
	p := hostmem.Position{Acked: m.Acked, Until: m.Until, Epoch: m.Epoch, Waited: m.WaitedUs, Freed: l.freed}
	l.freed = nil
	l.mu.Unlock()
	return l.conn.Send(hostmem.Where, 0, p.Append, nil)
}

func (l *local) end() {
	_ = l.conn.Close() // whoever receives meets it
	l.watch.End()
}

func (l *local) drop() {
	l.end()
	l.conn.Drop()
	if l.ring != nil {
		l.ring.leave()
		l.ring = nil
	}
}

func (l *local) receive(sources []string, m *memory) (*Batch, error) {
	for {
		b, err := l.next(sources, m)
		if silence := l.silence.Load(); err != nil && silence != nil {
			return nil, l.silent(*silence)
		}
		if b != nil || err != nil {
			return b, err
		}
	}
}

// silent is the error of a line on which nothing comes. If nothing ever came, it may be the line alone that is not taken,
// as by a constructor without descriptors: then a stream shows whether that says nothing at all. A rank that is to have
// memory joins again, and hears why there is none.
func (l *local) silent(err error) error {
	if l.taken || l.c.opts.Way == WayShared {
		return err
	}
	l.c.without(l.at, "the constructor has not taken the line to its socket")
	return fault.Lostf("the constructor at %s has not taken the line to its socket: %v", l.at.reply.Constructor, err)
}

// without has a rank get its steps by a stream for as long as this join lasts.
func (c *Client) without(at *joined, reason string) {
	c.opts.Log.Info("the rank maps no memory of its constructor, and gets its steps by a stream", "rank", c.opts.Rank.String(), "why", reason)
	at.unshared.Store(&reason)
}

// next takes the next message: a batch, or nothing yet.
func (l *local) next(sources []string, m *memory) (*Batch, error) {
	got, err := l.conn.Receive()
	if err != nil {
		return nil, fault.Lostf("the line to the constructor at %s broke: %v", l.at.reply.Constructor, err) // its EOF is not that of the data
	}
	l.taken = true
	l.watch.Heard(got.Kind == hostmem.InRing)
	switch got.Kind {
	case hostmem.NewRing:
		return nil, l.enter(got.Payload)
	case hostmem.InRing:
		return l.inRing(got.Payload, sources, m)
	case hostmem.InLine:
		return l.inLine(got, sources, m)
	case hostmem.Waits:
		w := &pb.Waiting{}
		if err := proto.Unmarshal(got.Payload, w); err != nil {
			return nil, fmt.Errorf("reading what the constructor waits for: %w", err)
		}
		l.c.hear(l.at.reply.Constructor, w)
		return nil, nil
	case hostmem.Refusal:
		return nil, rpc.FromStatus(status.Error(codes.Code(got.Number), string(got.Payload)))
	default:
		return nil, fmt.Errorf("a message of kind %d came on the line", got.Kind)
	}
}

// enter maps a ring. Where that fails steps come by a stream from then on.
func (l *local) enter(payload []byte) error {
	place, _, err := hostmem.ReadPlace(payload)
	if err != nil {
		return err
	}
	view, err := l.conn.Memory(place.Size)
	if err != nil {
		if l.c.opts.Way == WayShared {
			return fault.As(fault.User, err)
		}
		l.c.without(l.at, err.Error())
		return fault.As(fault.Lost, err)
	}
	if l.ring != nil {
		l.ring.leave()
	}
	l.ring = &ring{number: place.Ring, view: view, users: 1}
	return nil
}

// inRing makes a batch of a body that lies in the ring. What is not copied of it anyway it copies for a caller that
// does not release batches, or would never get the slot back.
func (l *local) inRing(payload []byte, sources []string, m *memory) (*Batch, error) {
	place, table, err := hostmem.ReadPlace(payload)
	if err != nil {
		return nil, err
	}
	m.head = append(m.head[:0], table...)
	t, err := batch.ReadTable(m.head)
	if err != nil {
		return nil, err
	}
	if l.ring == nil || l.ring.number != place.Ring || t.Body != place.Size || place.Offset > uint64(len(l.ring.view.Bytes)) || place.Size > uint64(len(l.ring.view.Bytes))-place.Offset {
		return nil, fmt.Errorf("step %d lies at %d bytes from %d of ring %d, which is none", t.Step, place.Size, place.Offset, place.Ring)
	}
	end := place.Offset + place.Size
	body := l.ring.view.Bytes[place.Offset:end:end]
	at := &slot{l, l.ring, t.Step}
	l.ring.mu.Lock()
	l.ring.users++
	l.ring.mu.Unlock()
	viewed := slices.ContainsFunc(t.Tensors, func(p batch.Placed) bool { return p.Wire == batch.AsIs && p.Size > 0 })
	if viewed && !l.c.releases.Load() {
		m.body = append(rpc.Aligned(m.body, len(body)), body...)
		body, viewed = m.body, false
	}
	b, err := batchOf(t, body, sources, m)
	if err == nil && viewed {
		m.slot = at
	} else {
		at.free()
	}
	return b, err
}

// inLine makes a batch of a body that follows on the socket.
func (l *local) inLine(got hostmem.Message, sources []string, m *memory) (*Batch, error) {
	m.head = append(m.head[:0], got.Payload...)
	t, err := batch.ReadTable(m.head)
	if err != nil {
		return nil, err
	}
	if t.Body != got.Body || t.Body > rpc.MaxBody {
		return nil, fmt.Errorf("step %d comes with %d bytes, and its table says %d", t.Step, got.Body, t.Body)
	}
	m.body = rpc.Aligned(m.body, int(t.Body))[:t.Body]
	if err := l.conn.ReadBody(m.body, func() { l.watch.Heard(false) }); err != nil {
		return nil, fault.Lostf("the line to the constructor at %s broke: %v", l.at.reply.Constructor, err) // its EOF is not that of the data
	}
	l.watch.Heard(true)
	return batchOf(t, m.body, sources, m)
}
