package worker

import (
	"os"

	"golang.org/x/sys/unix"
)

// memoryFile makes a file in memory that nobody can shrink under the other's feet.
func memoryFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("millrace-batch", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "millrace-batch")
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// punch gives pages back to the kernel. They read as zeros after it.
func punch(file *os.File, at, size int64) {
	_ = unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, size)
}
