package hostmem

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// EnvDir is the variable of the environment that says in which folder constructors put their sockets, and
// ranks look for them. client/python reads the same.
const EnvDir = "MILLRACE_SHARED_DIR"

// None, in place of a folder, is no shared memory.
const None = "none"

// Listener takes lines of processes of the same user.
type Listener struct {
	socket *net.UnixListener
	Path   string
}

// stale is how old a socket has to be that nobody listens on before it is removed: one that is being made
// is younger.
const stale = time.Minute

// Listen makes a socket in a folder: dir, or that of the environment, or one of this user's. An error says
// why lines are not possible here.
func Listen(dir string) (*Listener, error) {
	if err := supported(); err != nil {
		return nil, err
	}
	dir, err := folder(dir)
	if err != nil {
		return nil, err
	}
	sweep(dir)
	path := filepath.Join(dir, fmt.Sprintf("millrace-%d-%s.sock", os.Getpid(), rand.Text()[:8]))
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if errors.Is(err, syscall.EINVAL) {
		return nil, fmt.Errorf("a socket at %s: %w: the path is too long for one; name a shorter folder", path, err)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil { // meanwhile another user is refused by who it is
		return nil, errors.Join(err, socket.Close())
	}
	return &Listener{socket, path}, nil
}

// folder is where sockets are put.
func folder(dir string) (string, error) {
	if dir == "" {
		dir = os.Getenv(EnvDir)
	}
	if dir != "" {
		return dir, os.MkdirAll(dir, 0o700)
	}
	dir = filepath.Join(os.TempDir(), fmt.Sprintf("millrace-%d", os.Geteuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || ok && int(sys.Uid) != os.Geteuid() {
		return "", fmt.Errorf("%s is not a folder of this user's", dir)
	}
	return dir, nil
}

// sweep removes the sockets of processes that were killed.
func sweep(dir string) {
	files, _ := filepath.Glob(filepath.Join(dir, "millrace-*.sock")) // the pattern is right
	for _, file := range files {
		info, err := os.Lstat(file)
		if err != nil || time.Since(info.ModTime()) < stale {
			continue
		}
		c, err := net.Dial("unix", file)
		if err == nil {
			_ = c.Close()
		} else if errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.Remove(file) // another one may have
		}
	}
}

// Accept waits for a line of a process of the same user; it refuses others. After Close it fails.
func (l *Listener) Accept() (*Conn, error) {
	for {
		socket, err := l.socket.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if sameUser(socket) == nil {
			c := newConn(socket, mostUp)
			c.control = nil // no rank sends descriptors: the kernel closes those that come
			return c, nil
		}
		_ = socket.Close() // it does not hear why
	}
}

// Close removes the socket. Lines stay.
func (l *Listener) Close() error { return l.socket.Close() }

// Deadline is how long the first message of a line may take.
func (c *Conn) Deadline(d time.Duration) error {
	if d == 0 {
		return c.socket.SetReadDeadline(time.Time{})
	}
	return c.socket.SetReadDeadline(time.Now().Add(d))
}

// TicketSize is the size of a ticket: nobody guesses one.
const TicketSize = 16

// Ticket is good for one line.
type Ticket [TicketSize]byte

// NewTicket returns one that nobody has.
func NewTicket() (t Ticket) {
	rand.Read(t[:]) // it never fails
	return t
}
