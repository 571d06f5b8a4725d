package checkpoint

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// holder names the process that has the log in a folder open, where the system says it. It reads what the kernel lists: to open
// the file and close it would let go of a lock of this process.
func holder(dir string) string {
	const unknown = "this or another process"
	info, err := os.Stat(filepath.Join(dir, "LOCK"))
	if err != nil {
		return unknown
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	locks, err := os.ReadFile("/proc/locks")
	if !ok || err != nil {
		return unknown
	}
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(uint64(stat.Dev)), unix.Minor(uint64(stat.Dev)), stat.Ino)
	return holderIn(locks, file, unknown)
}

// holderIn finds the process that locks a file in a list such as "1: POSIX  ADVISORY  WRITE 4711 00:2a:123 0 EOF"; a process
// of another container has the number 0 there.
func holderIn(locks []byte, file, unknown string) string {
	for line := range bytes.Lines(locks) {
		words := bytes.Fields(line)
		if len(words) > 5 && string(words[3]) == "WRITE" && string(words[5]) == file && string(words[4]) > "0" {
			return "process " + string(words[4])
		}
	}
	return unknown
}
