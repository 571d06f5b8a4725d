package worker

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	frameMagic = "MRW1"
	frameHead  = 8        // the magic and the length of the JSON behind it
	maxFrame   = 16 << 20 // bytes: a row's error is short, and a batch's errors are cut to a quarter of this
)

// Protocol is the version of frames and batches that workers and loaders speak; _worker.PROTOCOL is the same.
const Protocol = 2

// wire is frames on a stream socket. One goroutine reads; turn is taken to write.
type wire struct {
	conn *net.UnixConn
	in   *bufio.Reader // a frame comes whole: its head and body are one read
	turn chan struct{} // holds one while nobody writes
	buf  []byte
}

// readAhead is the bytes of a read: of nearly all frames more than there are.
const readAhead = 4 << 10

// wires returns our end of a new socket pair, and the file of the other.
func wires() (*wire, *os.File, error) {
	fds, err := socketPair()
	if err != nil {
		return nil, nil, fmt.Errorf("making a socket pair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "worker"), os.NewFile(uintptr(fds[1]), "loader")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, nil, err
	}
	return newWire(conn.(*net.UnixConn)), theirs, nil
}

// socketPair returns sockets that no other child of this process gets, whose copy would keep them open when all else is gone.
func socketPair() (fds [2]int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if fds, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); err != nil {
		return fds, err
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	return fds, nil
}

func newWire(conn *net.UnixConn) *wire {
	w := &wire{conn: conn, in: bufio.NewReaderSize(conn, readAhead), turn: make(chan struct{}, 1)}
	w.turn <- struct{}{}
	return w
}

// send writes a frame with files beside it. Others wait for their turn.
func (w *wire) send(frame any, files ...*os.File) error {
	<-w.turn
	defer func() { w.turn <- struct{}{} }()
	return w.write(frame, files...)
}

// write is send for whoever has the turn.
func (w *wire) write(frame any, files ...*os.File) error {
	body, err := json.Marshal(frame)
	if err != nil {
		return err
	}
	data := append(binary.LittleEndian.AppendUint32([]byte(frameMagic), uint32(len(body))), body...)
	if len(files) == 0 {
		_, err = w.conn.Write(data)
		return err
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	n, _, err := w.conn.WriteMsgUnix(data, unix.UnixRights(fds...), nil)
	if err == nil && n < len(data) {
		_, err = w.conn.Write(data[n:])
	}
	return err
}

// receive reads a frame.
func (w *wire) receive(frame any) error {
	head := make([]byte, frameHead)
	if err := w.fill(head); err != nil {
		return err
	}
	size := binary.LittleEndian.Uint32(head[4:])
	if string(head[:4]) != frameMagic || size > maxFrame {
		return fmt.Errorf("a frame begins with %q and has %d bytes", head[:4], size)
	}
	if cap(w.buf) < int(size) {
		w.buf = make([]byte, size)
	}
	body := w.buf[:size]
	if err := w.fill(body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, frame); err != nil {
		return fmt.Errorf("a frame of %d bytes: %w", size, err)
	}
	return nil
}

func (w *wire) fill(data []byte) error {
	_, err := io.ReadFull(w.in, data)
	return err
}

// patience has receive fail after d; 0 has it wait.
func (w *wire) patience(d time.Duration) {
	until := time.Time{}
	if d > 0 {
		until = time.Now().Add(d)
	}
	_ = w.conn.SetReadDeadline(until)
}
