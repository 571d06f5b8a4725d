package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// selfCPU is the user and system time of this process so far.
func selfCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// clockTick is the unit of /proc/PID/stat: USER_HZ is 100 on every Linux.
const clockTick = 10 * time.Millisecond

// processCPU is the user and system time of another process so far, to 10 ms.
func processCPU(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the command in parentheses and may hold spaces.
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("process %d: %d fields in stat", pid, len(fields))
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("process %d: stat: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// machineIdle is the idle time of all cores so far.
func machineIdle() (time.Duration, error) { return machineTime(4) }

// machineStolen is the time so far that the host withheld a virtual machine's cores
// while they had work.
func machineStolen() (time.Duration, error) { return machineTime(8) }

// machineTime is a time of all cores together: cpu user nice system idle iowait irq
// softirq steal, counted from 0.
func machineTime(field int) (time.Duration, error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(data))
	if len(fields) <= field {
		return 0, fmt.Errorf("reading /proc/stat: %d fields", len(fields))
	}
	ticks, err := strconv.ParseInt(fields[field], 10, 64)
	return time.Duration(ticks) * clockTick, err
}

// kilobytes reads one field, such as VmHWM or Pss, of a file of /proc/PID.
func kilobytes(pid int, file, field string) (int64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		if name != field {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
		return n << 10, err
	}
	return 0, fmt.Errorf("process %d: no %s in %s", pid, field, file)
}

// memory is the memory of a process, in bytes.
type memory struct {
	RSS  int64 `json:"rss"`
	PSS  int64 `json:"pss"`
	Peak int64 `json:"peak_rss"`
}

func memoryOf(pid int) (memory, error) {
	var m memory
	for _, f := range []struct {
		file, field string
		to          *int64
	}{
		{"smaps_rollup", "Rss", &m.RSS}, {"smaps_rollup", "Pss", &m.PSS}, {"status", "VmHWM", &m.Peak},
	} {
		var err error
		if *f.to, err = kilobytes(pid, f.file, f.field); err != nil {
			return m, err
		}
	}
	return m, nil
}

// childrenPSS is that of the processes which a process started, together.
func childrenPSS(pid int) (pss int64, err error) {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		data, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(data)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				return 0, fmt.Errorf("%s has %q", list, field)
			}
			m, err := memoryOf(child)
			if err != nil {
				return 0, err
			}
			pss += m.PSS
		}
	}
	return pss, err
}

// unnamedFiles counts the open files of a process that have no name any more, and
// their bytes.
func unnamedFiles(pid int) (size int64, files int, err error) {
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range open {
		to, err := os.Readlink(fd)
		if err != nil || !strings.HasSuffix(to, " (deleted)") {
			continue // it was closed just now, or has a name
		}
		if info, err := os.Stat(fd); err == nil {
			size, files = size+info.Size(), files+1
		}
	}
	return size, files, err
}
