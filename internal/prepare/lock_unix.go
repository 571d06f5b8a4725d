//go:build unix

package prepare

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/millrace-data/millrace/internal/fault"
)

// lock keeps other processes out of a folder until the file is closed, by whoever ends this one.
func lock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, writing(path, err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fault.Userf("another process prepares into the folder of %s: wait for it, or end it", path)
	} else if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOLCK) || errors.Is(err, unix.ENOSYS) {
		err = nil // a file system without locks
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
