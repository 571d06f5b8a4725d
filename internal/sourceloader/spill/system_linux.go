package spill

import (
	"fmt"
	"math"
	"syscall"
)

// File systems whose files are memory, by their magic numbers (statfs(2)).
const (
	tmpfs = 0x01021994
	ramfs = 0x858458f6
)

// space returns the free bytes of a folder, and whether it is in memory.
func space(dir string) (free int64, inMemory bool, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, false, fmt.Errorf("%s: %w", dir, err)
	}
	return int64(min(s.Bavail*uint64(s.Bsize), math.MaxInt64)), uint32(s.Type) == tmpfs || uint32(s.Type) == ramfs, nil
}

// mostFiles returns a quarter of the process's limit of descriptors.
func mostFiles() int {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return leastFiles
	}
	return int(min(r.Cur/4, math.MaxInt32))
}

// leastFiles are possible on any system.
const leastFiles = 64
