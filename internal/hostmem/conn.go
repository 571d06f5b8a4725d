package hostmem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// bufferSize holds a message of usual size: the table of a step has some kilobytes.
const bufferSize = 32 << 10

// mostDescriptors of memory that came and were not taken yet: a constructor sends one with a message.
const mostDescriptors = 8

// Conn is one side of a line. One goroutine receives; any may send.
type Conn struct {
	socket   *net.UnixConn
	most     uint64        // bytes of a payload that comes
	turn     chan struct{} // holds one token: whose turn it is to send
	out      []byte        // its owner's
	in       []byte
	from, to int    // of in, what came and was not read
	control  []byte // nil: descriptors are not received
	came     []int  // descriptors, in order
}

func newConn(socket *net.UnixConn, most uint64) *Conn {
	c := &Conn{socket: socket, most: most, turn: make(chan struct{}, 1), in: make([]byte, bufferSize), control: make([]byte, unix.CmsgSpace(4*mostDescriptors))}
	c.turn <- struct{}{}
	return c
}

// Close ends the line: the other side meets the end of what was sent. It ends calls under way, and may be
// repeated.
func (c *Conn) Close() error { return c.socket.Close() }

// Drop closes the descriptors that nobody took. Whoever receives calls it at last.
func (c *Conn) Drop() {
	for _, fd := range c.came {
		_ = unix.Close(fd)
	}
	c.came = nil
}

// Send sends a message. payload says what, appending to a buffer; a body may follow, which is not copied.
func (c *Conn) Send(kind Kind, number uint32, payload func([]byte) []byte, body []byte) error {
	return c.sending(func() error {
		c.out = payload(append(c.out[:0], make([]byte, headSize)...))
		appendHead(c.out[:0], kind, number, len(c.out)-headSize+len(body))
		if len(body) == 0 {
			_, err := c.socket.Write(c.out)
			return err
		}
		both := net.Buffers{c.out, body}
		_, err := both.WriteTo(c.socket)
		return err
	})
}

// Half sends the first half of a message: a test has the process die then.
func (c *Conn) Half(kind Kind, number uint32, payload func([]byte) []byte, body []byte) error {
	return c.sending(func() error {
		all := append(payload(make([]byte, headSize)), body...)
		appendHead(all[:0], kind, number, len(all)-headSize)
		_, err := c.socket.Write(all[:len(all)/2])
		return err
	})
}

// SendMemory sends a place that is a whole memory, with its descriptor.
func (c *Conn) SendMemory(p Place, fd int) error {
	return c.sending(func() error {
		c.out = p.Append(appendHead(c.out[:0], NewRing, 0, placeSize))
		n, _, err := c.socket.WriteMsgUnix(c.out, unix.UnixRights(fd), nil)
		if err == nil && n < len(c.out) {
			_, err = c.socket.Write(c.out[n:])
		}
		return err
	})
}

func (c *Conn) sending(send func() error) error {
	<-c.turn
	defer func() { c.turn <- struct{}{} }()
	return send()
}

// Receive waits for the next message. io.EOF says that the other side has closed the line.
func (c *Conn) Receive() (m Message, err error) {
	if err = c.fill(headSize); err != nil {
		return m, err
	}
	head := c.take(headSize)
	m.Kind, m.Number = Kind(le.Uint32(head)), le.Uint32(head[4:])
	size := le.Uint64(head[8:])
	if m.Kind == InLine {
		if uint64(m.Number) > size {
			return m, fmt.Errorf("a message of %d bytes begins with a table of %d", size, m.Number)
		}
		m.Body, size = size-uint64(m.Number), uint64(m.Number)
	}
	if size > c.most {
		return m, fmt.Errorf("a message has %d bytes; the most is %d", size, c.most)
	}
	if err = c.fill(int(size)); err != nil {
		return m, whole(err)
	}
	m.Payload = c.take(int(size))
	return m, nil
}

// ReadBody fills body with what follows a message of InLine. heard is called as often as some of it comes.
func (c *Conn) ReadBody(body []byte, heard func()) error {
	n := copy(body, c.in[c.from:c.to])
	c.from += n
	for body = body[n:]; len(body) > 0; body = body[n:] {
		var err error
		if n, err = c.socket.Read(body); err != nil {
			return whole(err)
		}
		heard()
	}
	return nil
}

// Memory maps the memory that came with a message of NewRing.
func (c *Conn) Memory(size uint64) (*View, error) {
	if len(c.came) == 0 {
		return nil, errors.New("memory was announced, and no descriptor came with it")
	}
	fd := c.came[0]
	c.came = c.came[1:]
	v, err := mapMemory(fd, size)
	return v, errors.Join(err, unix.Close(fd))
}

// whole is the error of a message that was cut off.
func whole(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (c *Conn) take(n int) []byte {
	c.from += n
	return c.in[c.from-n : c.from : c.from]
}

// fill reads until n bytes are there.
func (c *Conn) fill(n int) error {
	if c.to-c.from >= n {
		return nil
	}
	if n > len(c.in) {
		c.in = append(make([]byte, 0, n+n/2), c.in[c.from:c.to]...)
		c.in = c.in[:cap(c.in)]
	} else {
		copy(c.in, c.in[c.from:c.to])
	}
	c.from, c.to = 0, c.to-c.from
	for c.to < n {
		got, descriptors, _, _, err := c.socket.ReadMsgUnix(c.in[c.to:], c.control)
		if got == 0 && (err == nil || errors.Is(err, io.EOF)) {
			if c.to > 0 {
				return io.ErrUnexpectedEOF
			}
			return io.EOF
		}
		if err = errors.Join(err, c.keep(c.control[:descriptors])); err != nil {
			return err
		}
		c.to += got
	}
	return nil
}

// keep keeps descriptors that came.
func (c *Conn) keep(control []byte) error {
	if len(control) == 0 {
		return nil
	}
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return err
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return err
		}
		c.came = append(c.came, fds...)
	}
	if len(c.came) > mostDescriptors {
		return fmt.Errorf("%d descriptors came that nothing was said of", len(c.came))
	}
	return nil
}

// Dial opens a line at a path, to a process of the same user.
func Dial(ctx context.Context, path string) (*Conn, error) {
	socket, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	c := socket.(*net.UnixConn)
	if err := sameUser(c); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return newConn(c, mostDown), nil
}

// sameUser refuses a peer that is another user's.
func sameUser(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	user, failed := -1, error(nil)
	if err := errors.Join(raw.Control(func(fd uintptr) { user, failed = userOf(int(fd)) }), failed); err != nil {
		return fmt.Errorf("asking whose the other side of the socket is: %w", err)
	}
	if user != os.Geteuid() {
		return fmt.Errorf("the other side of the socket is user %d, and this one %d", user, os.Geteuid())
	}
	return nil
}
