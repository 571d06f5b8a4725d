package worker

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// canLimit says whether memoryOf knows, canIsolate whether attributes can take the network away.
const canLimit, canIsolate = true, true

// attributes have the kernel end the fork server with its loader, in a group of its own and,
// if alone, without network. Root needs no other user for that, and keeps its files.
func attributes(alone bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if !alone {
		return a
	}
	a.Cloneflags = syscall.CLONE_NEWNET
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	}
	return a
}

// expendable has the kernel end a process, or one that it starts, before the loader where their group runs
// out of memory.
func expendable(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("500"), 0) // without it the kernel chooses by size alone
}

// memoryOf is the memory of a process and its children in bytes, with what it shares with
// the fork server; 0 if it is gone.
func memoryOf(pid int) int64 {
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	fields := strings.Fields(string(statm))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	sum := pages * int64(os.Getpagesize())
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, child := range strings.Fields(string(children)) {
		if n, err := strconv.Atoi(child); err == nil {
			sum += memoryOf(n)
		}
	}
	return sum
}

// peakOf is the most memory that a process held, without its children, in bytes; 0 if it is gone. It knows what was
// given back between two looks.
func peakOf(pid int) int64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, peak, _ := bytes.Cut(status, []byte("VmHWM:"))
	fields := strings.Fields(string(peak[:min(len(peak), 32)]))
	if len(fields) == 0 {
		return 0
	}
	kb, _ := strconv.ParseInt(fields[0], 10, 64)
	return kb << 10
}

// privateOf is the memory of a process in bytes that no other one shares; 0 if it is gone.
func privateOf(pid int) (sum int64) {
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(rollup) {
		if fields := strings.Fields(string(line)); len(fields) == 3 && strings.HasPrefix(fields[0], "Private_") {
			kb, _ := strconv.ParseInt(fields[1], 10, 64)
			sum += kb << 10
		}
	}
	return sum
}
