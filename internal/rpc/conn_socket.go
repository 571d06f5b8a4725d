package rpc

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/millrace-data/millrace/internal/fault"
)

// socket is a unix socket that is listened on. Closing it removes its path, unless another socket has that by now.
type socket struct {
	*net.UnixListener
	path   string
	file   os.FileInfo // of the path, when it was made
	remove sync.Once
}

// Close implements net.Listener.
func (s *socket) Close() error {
	s.remove.Do(func() { // while it is open, no other file is the same
		if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.file) {
			_ = os.Remove(s.path) // a path that is left is abandoned
		}
	})
	return s.UnixListener.Close()
}

// listenUnix makes a socket that only its user can connect to, in place of one that was abandoned. Others that do so
// at the same time wait meanwhile: they would take a socket that is made, and not listened on yet, for abandoned.
func listenUnix(path string) (net.Listener, error) {
	defer lockSocket(path + ".millrace-lock")()
	at := &net.UnixAddr{Name: path, Net: "unix"}
	l, err := net.ListenUnix("unix", at)
	if errors.Is(err, syscall.EADDRINUSE) && abandoned(path) {
		if err = os.Remove(path); err == nil {
			l, err = net.ListenUnix("unix", at)
		}
	}
	if errors.Is(err, syscall.EINVAL) {
		return nil, fault.Userf("listening on unix:%s: %w: the path has %d bytes, which is too long for a socket; choose one of at most 103", path, err, len(path))
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fault.Userf("listening on unix:%s: %w; is another service using it? choose another path", path, err)
	}
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) {
		return nil, fault.Userf("listening on unix:%s: %w: there is no folder %s; make it, or choose another path", path, err, filepath.Dir(path))
	}
	if err != nil {
		return nil, fault.Userf("listening on unix:%s: %w; choose another path, in a folder that this user can write to", path, err)
	}
	l.SetUnlinkOnClose(false)
	file, err := os.Lstat(path)
	s := &socket{UnixListener: l, path: path, file: file}
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		return nil, errors.Join(fault.Userf("closing unix:%s to other users: %w; choose another path", path, err), s.Close())
	}
	return s, nil
}

// abandoned says whether a path is a socket that nobody listens on: one that a process which was killed left there.
func abandoned(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return false
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// lockSocket waits until no other process has the lock of this name, and takes it. Its file is there for that long.
// Where none can be made or locked there is no lock: whether the folder can be used at all, listening there says.
func lockSocket(name string) (unlock func()) {
	for {
		file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return func() {}
		}
		for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
			err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		}
		if err != nil || isAt(file, name) {
			return func() {
				_ = os.Remove(name) // whoever waits for the lock sees that its file is gone
				_ = file.Close()
			}
		}
		_ = file.Close() // who had the lock removed it
	}
}

// isAt says whether a file that is open is still the one of a name.
func isAt(file *os.File, name string) bool {
	held, err := file.Stat()
	now, err2 := os.Lstat(name)
	return err == nil && err2 == nil && os.SameFile(held, now)
}
