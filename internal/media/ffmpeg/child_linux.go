package ffmpeg

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// inputPath is where the child finds its input, the first file beside the usual three.
const inputPath = "/proc/self/fd/3"

// inMemory is a file in memory without a name.
func inMemory(data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("millrace-input", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return spool(os.NewFile(uintptr(fd), "millrace-input"), data)
}

// attributes have the kernel end the child with the loader, in a group of its own.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// expendable has the kernel end the child before the loader where their group runs out of memory.
func expendable(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("500"), 0) // without it the kernel chooses by size alone
}

// memoryOf is the memory of a process in bytes, and what of it is no page of a file; 0 if it is gone.
func memoryOf(pid int) (resident, own int64) {
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	fields := strings.Fields(string(statm))
	if err != nil || len(fields) < 3 {
		return 0, 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	ofFiles, _ := strconv.ParseInt(fields[2], 10, 64)
	return pages * int64(os.Getpagesize()), (pages - ofFiles) * int64(os.Getpagesize())
}

// memoryBounded reports whether a process here may be refused memory that others would get: where nothing is bounded, only what
// is far more than the machine has is refused.
func memoryBounded() bool {
	for _, resource := range []int{unix.RLIMIT_AS, unix.RLIMIT_DATA} {
		var limit unix.Rlimit
		if err := unix.Getrlimit(resource, &limit); err == nil && limit.Cur != unix.RLIM_INFINITY {
			return true
		}
	}
	mode, _ := os.ReadFile("/proc/sys/vm/overcommit_memory")
	return strings.TrimSpace(string(mode)) == "2"
}
