package constructor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/constructor/deliver"
	"github.com/millrace-data/millrace/internal/failpoint"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/hostmem"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

const (
	// ticketTime is how long a ticket is good: the rank dials as soon as it has it.
	ticketTime = 10 * time.Second
	// mostTickets that nobody has used: one for each rank of a large job.
	mostTickets = 8192
	// helloTime is how long a line may take to say who it is, and mostUnknown how many lines may be at that.
	helloTime   = 5 * time.Second
	mostUnknown = 64
	// lastWord is how long lines have to tell their ranks that the constructor ends.
	lastWord = time.Second
)

// sharing is how a constructor shares memory with ranks of its machine.
type sharing struct {
	machine string
	socket  *hostmem.Listener // nil: it does not
	why     string            // it does not
	rings   atomic.Uint64     // made so far
	lines   sync.WaitGroup
	files   func(enough int) files

	mu      sync.Mutex // guards the fields below
	tickets map[hostmem.Ticket]ticket
	groups  map[sharer]*sharers

	shortTill                   time.Time // no lines are given for lack of descriptors
	shortLogged, notTakenLogged time.Time
}

// ticket is whom a ticket is for.
type ticket struct {
	rank deliver.Rank
	join uint64
	till time.Time
}

// openLines has ranks of the same machine served, unless the options say otherwise, until close is called. That is
// when nothing more is served.
func (c *Constructor) openLines() (end func()) {
	s := &sharing{machine: hostmem.Machine(), files: openFiles, tickets: map[hostmem.Ticket]ticket{}, groups: map[sharer]*sharers{}}
	c.sharing = s
	if c.opts.SharedDir == hostmem.None || !c.opts.Security.Local() {
		s.why = "sharing memory is switched off for the constructor"
		return func() {}
	}
	var err error
	if s.socket, err = hostmem.Listen(c.opts.SharedDir); err != nil {
		s.why = fmt.Sprintf("the constructor shares no memory: %v", err)
		c.opts.Log.Info("no memory is shared with ranks of this machine", "err", err)
		return func() {}
	}
	cut, stop := context.WithCancel(context.Background())
	s.lines.Go(func() { c.serveLines(cut) })
	return func() {
		_ = s.socket.Close() // then nothing is taken any more
		defer time.AfterFunc(lastWord, stop).Stop()
		s.lines.Wait()
		stop()
	}
}

// Share implements the Constructor service.
func (c *Constructor) Share(_ context.Context, req *pb.ShareRequest) (*pb.ShareReply, error) {
	s := c.sharing
	switch {
	case s.socket == nil:
		return &pb.ShareReply{Reason: s.why}, nil
	case req.Machine != s.machine:
		return &pb.ShareReply{Reason: "the constructor is on another machine"}, nil
	}
	if why := c.crowded(); why != "" {
		return &pb.ShareReply{Reason: why}, nil
	}
	t, err := s.issue(ticket{deliver.RankOf(req.Rank), req.Join, time.Now().Add(ticketTime)})
	if err != nil {
		return nil, refusal(err)
	}
	return &pb.ShareReply{Socket: s.socket.Path, Ticket: t[:], Listens: uint32(rpc.RoundsAmong(c.steps.Fetchers()))}, nil
}

// issue makes a ticket.
func (s *sharing) issue(of ticket) (hostmem.Ticket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tickets) >= mostTickets {
		s.forget()
	}
	if len(s.tickets) >= mostTickets {
		return hostmem.Ticket{}, fault.Lostf("%d tickets for lines are not used yet, which is the limit max_tickets: try again later", mostTickets)
	}
	t := hostmem.NewTicket()
	s.tickets[t] = of
	return t, nil
}

// forget takes away tickets that are not good any more. The lock is held.
func (s *sharing) forget() {
	maps.DeleteFunc(s.tickets, func(_ hostmem.Ticket, of ticket) bool { return time.Now().After(of.till) })
}

// void takes away the tickets of a rank that has come another way: its line may still be taken, and nobody is at its end.
func (s *sharing) void(rank deliver.Rank, join uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.tickets, func(_ hostmem.Ticket, of ticket) bool { return of.rank == rank && of.join == join })
}

// admit takes the ticket of a line, which is good once.
func (s *sharing) admit(hello []byte) (*pb.DeliverRequest, error) {
	if len(hello) < hostmem.TicketSize {
		return nil, errTicket
	}
	t := hostmem.Ticket(hello[:hostmem.TicketSize])
	s.mu.Lock()
	of, known := s.tickets[t]
	delete(s.tickets, t)
	s.mu.Unlock()
	if !known || time.Now().After(of.till) {
		return nil, errTicket
	}
	m := &pb.DeliverRequest{}
	if err := proto.Unmarshal(hello[hostmem.TicketSize:], m); err != nil {
		return nil, fault.Userf("reading who the line is for: %w", err)
	}
	if deliver.RankOf(m.Rank) != of.rank || m.Join != of.join {
		return nil, errTicket
	}
	return m, nil
}

// serveLines takes lines until the socket is closed, and serves them until ctx ends.
func (c *Constructor) serveLines(ctx context.Context) {
	unknown := make(chan struct{}, mostUnknown)
	for {
		unknown <- struct{}{}
		conn, err := c.sharing.socket.Accept()
		switch {
		case err == nil:
			c.sharing.lines.Go(func() { c.serveLine(ctx, conn, func() { <-unknown }) })
		case errors.Is(err, net.ErrClosed):
			return
		default:
			c.notTaken(err)
			time.Sleep(ackAgain) // there may be no descriptors left
			<-unknown
		}
	}
}

// serveLine serves one line. known is called when it has said who it is, or ended.
func (c *Constructor) serveLine(ctx context.Context, conn *hostmem.Conn, known func()) {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	l := &socket{c: c, conn: conn, held: map[uint64]*part{}}
	hello, err := l.hello()
	known()
	if err == nil {
		l.listens = rpc.Rounds(hello.Listens)
		l.group = c.sharing.enter(c, sharer{deliver.RankOf(hello.Rank), hello.Copies}, int(min(hello.Until-min(hello.Acked, hello.Until)+moreSlots, mostSlots)))
		err = c.deliver(ctx, hello, l)
		l.leave()
	}
	if err != nil {
		s, _ := status.FromError(refusal(err))
		_ = conn.Send(hostmem.Refusal, uint32(s.Code()), func(b []byte) []byte { return append(b, s.Message()...) }, nil) // the rank may have left
	}
	_ = conn.Close() // what was sent, the rank reads
}

// socket is a rank's line on the same machine.
type socket struct {
	c     *Constructor
	conn  *hostmem.Conn
	group *sharers
	ring  uint64 // that the rank has
	why   string // the last body lay in none, as part has it

	listens int // rounds without a word that the rank waits for

	mu   sync.Mutex       // guards held
	held map[uint64]*part // by step, what the rank has not given back
}

// hello is who the line is for.
func (l *socket) hello() (*pb.DeliverRequest, error) {
	if err := l.conn.Deadline(helloTime); err != nil {
		return nil, err
	}
	m, err := l.conn.Receive()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, fault.Lostf("the rank did not say within %v who it is: %w", helloTime, err) // it may have been stopped, and try again
	}
	if err != nil {
		return nil, err
	}
	if m.Kind != hostmem.Hello {
		return nil, fault.Userf("a line begins with a message of kind %d", m.Kind)
	}
	hello, err := l.c.sharing.admit(m.Payload)
	return hello, errors.Join(err, l.conn.Deadline(0))
}

func (l *socket) way() deliver.Way {
	if l.why != "" {
		return deliver.Way{Name: deliver.Socket, Reason: l.why}
	}
	return deliver.Way{Name: deliver.Shared}
}

// arrived implements line: a place in memory arrives whole.
func (l *socket) arrived(int, time.Duration) {}

// Recv implements line, and takes back the slots that the rank is done with.
func (l *socket) Recv() (*pb.DeliverRequest, error) {
	m, err := l.conn.Receive()
	if err != nil {
		l.conn.Drop()
		return nil, io.EOF // of a rank that was killed, too
	}
	p, err := hostmem.ReadPosition(m.Payload)
	if err != nil || m.Kind != hostmem.Where {
		return nil, fault.Userf("a message of kind %d came on the line: %w", m.Kind, err)
	}
	for _, step := range p.Freed {
		if part := l.taken(step); part != nil {
			l.group.free(part.ring, part.slot)
		}
	}
	return &pb.DeliverRequest{Acked: p.Acked, Until: p.Until, Epoch: p.Epoch, WaitedUs: p.Waited}, nil
}

// taken takes a step off those that the rank has; nil if it is none.
func (l *socket) taken(step uint64) *part {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.held[step]
	delete(l.held, step)
	return p
}

// leave ends what the rank has.
func (l *socket) leave() {
	l.mu.Lock()
	held := l.held
	l.held = map[uint64]*part{}
	l.mu.Unlock()
	l.group.leave(held, l.c.sharing.leave(l.group))
}

func (l *socket) hold(reason func() *pb.Waiting, wait func() error) error {
	return rpc.Holding(l.listens, reason, func(w *pb.Waiting) error {
		raw, err := proto.Marshal(w)
		if err != nil {
			return err
		}
		return l.conn.Send(hostmem.Waits, 0, func(b []byte) []byte { return append(b, raw...) }, nil)
	}, wait)
}

func (l *socket) send(got *deliver.Step, r deliver.Rank) (int, error) {
	p, err := l.group.take(got, r, l.ring)
	if err != nil {
		return 0, err
	}
	if l.why = p.why; p.ring == nil {
		defer p.done()
		return p.size, l.tear(hostmem.InLine, uint32(len(p.head)), func(b []byte) []byte { return append(b, p.head...) }, p.body)
	}
	l.mu.Lock()
	l.held[got.Number] = p
	l.mu.Unlock()
	if p.fd >= 0 {
		err = l.conn.SendMemory(hostmem.Place{Ring: p.ring.number, Size: uint64(p.ring.bytes())}, p.fd)
		if err = errors.Join(err, unix.Close(p.fd)); err != nil {
			return 0, err
		}
		l.ring = p.ring.number
	}
	return p.size, l.tear(hostmem.InRing, 0, func(b []byte) []byte { return append(p.place.Append(b), p.head...) }, nil)
}

// tear sends a step. A failpoint has the process die in the middle of it.
func (l *socket) tear(kind hostmem.Kind, number uint32, payload func([]byte) []byte, body []byte) error {
	if failpoint.Enabled && failpoint.Tear(failpoint.FrameMiddle) {
		_ = l.conn.Half(kind, number, payload, body)
		failpoint.Die()
	}
	return l.conn.Send(kind, number, payload, body)
}

func (l *socket) finish(head []byte) error {
	return l.conn.Send(hostmem.InLine, uint32(len(head)), func(b []byte) []byte { return append(b, head...) }, nil)
}
