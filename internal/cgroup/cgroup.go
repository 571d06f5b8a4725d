// Package cgroup reads how much memory and processor time the kernel gives this process: the limits of its
// control group and of all groups above it, of which the tightest holds.
//
// It owns the files of both versions of control groups, and what a container sees of them. It never changes a
// limit, and never decides what to do with one. Go's own runtime follows the limit of processor time (GOMAXPROCS,
// since Go 1.25), so that everything that is one for each core does, too.
package cgroup

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// Limits are what a process may take. A zero Limits has none.
type Limits struct {
	Memory     int64   // bytes, of all processes of the group together; 0: no limit
	MemoryFile string  // that says so
	CPUs       float64 // processors' worth of time; 0: no limit
	CPUFile    string  // that says so
}

// Read returns the limits of this process; none where there are no control groups, as on macOS.
func Read() (Limits, error) { return ReadFrom(os.DirFS("/")) }

// ReadFrom is Read of a tree of files with proc/self and what is mounted. What cannot be
// read is no limit, but for proc/self itself.
func ReadFrom(root fs.FS) (l Limits, err error) {
	groups, err := read(root, "proc/self/cgroup")
	if err != nil || groups == "" {
		return l, err
	}
	mounts, err := read(root, "proc/self/mountinfo")
	if err != nil {
		return l, err
	}
	for line := range strings.Lines(mounts) {
		m, ok := parseMount(line)
		if !ok {
			continue
		}
		if at, ok := m.place(groups); ok {
			for _, dir := range upTo(at, m.point) {
				l.group(root, dir, m.version)
			}
		}
	}
	return l, nil
}

// read returns a file; "" if there is none.
func read(root fs.FS, name string) (string, error) {
	text, err := fs.ReadFile(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(text), err
}

// mount is a hierarchy of groups in the file system.
type mount struct {
	version     int
	controllers []string // of version 1
	root, point string   // the group that is mounted, and where
}

// parseMount reads a line of mountinfo (proc_pid_mountinfo(5)); ok if it is of control groups.
func parseMount(line string) (m mount, ok bool) {
	before, after, _ := strings.Cut(line, " - ")
	place, kind := strings.Fields(before), strings.Fields(after)
	if len(place) < 5 || len(kind) < 3 {
		return m, false
	}
	m = mount{root: unescape(place[3]), point: strings.TrimPrefix(unescape(place[4]), "/")}
	switch kind[0] {
	case "cgroup2":
		m.version = 2
	case "cgroup":
		m.version, m.controllers = 1, strings.Split(kind[2], ",")
	}
	return m, m.version > 0
}

// unescape undoes how mountinfo writes spaces and the like.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// place is the folder of this process's group, from lines of proc/self/cgroup. A group that is
// not below the one that is mounted is in another name space, where only what is mounted can be seen.
func (m *mount) place(groups string) (dir string, ok bool) {
	for line := range strings.Lines(groups) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 || !m.has(fields[1]) {
			continue
		}
		below, inside := strings.CutPrefix(path.Clean(fields[2]), strings.TrimSuffix(m.root, "/"))
		if !inside || below != "" && !strings.HasPrefix(below, "/") || strings.HasPrefix(below, "/..") {
			below = ""
		}
		return path.Join(m.point, below), true
	}
	return "", false
}

// has says whether a line with these controllers is about the hierarchy.
func (m *mount) has(controllers string) bool {
	if m.version == 2 {
		return controllers == ""
	}
	for _, name := range strings.Split(controllers, ",") {
		for _, mine := range m.controllers {
			if name == mine && (name == "memory" || name == "cpu") {
				return true
			}
		}
	}
	return false
}

// upTo are a folder and those above it, up to another one.
func upTo(dir, top string) (all []string) {
	for dir = path.Clean(dir); ; dir = path.Dir(dir) {
		if all = append(all, dir); dir == path.Clean(top) || dir == "." {
			return all
		}
	}
}

// group takes in the limits of one group.
func (l *Limits) group(root fs.FS, dir string, version int) {
	if version == 2 {
		l.memory(root, path.Join(dir, "memory.max"), "")
		l.memory(root, path.Join(dir, "memory.high"), "") // beyond it processes are slowed down until little goes on
		l.cpuMax(root, path.Join(dir, "cpu.max"))
		return
	}
	l.memory(root, path.Join(dir, "memory.limit_in_bytes"), "")
	l.memory(root, path.Join(dir, "memory.stat"), "hierarchical_memory_limit") // of groups above what is mounted, too
	l.quota(root, dir)
}

// unlimited is what version 1 writes for no limit, rounded down to pages of any size.
const unlimited = math.MaxInt64 &^ (1<<20 - 1)

// memory takes in a file with a number of bytes or, with a key, a line of a file.
func (l *Limits) memory(root fs.FS, file, key string) {
	text, err := read(root, file)
	if err != nil {
		return
	}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if key != "" && (len(fields) != 2 || fields[0] != key) || len(fields) == 0 {
			continue
		}
		n, err := strconv.ParseInt(fields[len(fields)-1], 10, 64) // "max" is no number
		if err == nil && n > 0 && n < unlimited && (l.Memory == 0 || n < l.Memory) {
			l.Memory, l.MemoryFile = n, "/"+file
		}
	}
}

// cpuMax takes in "QUOTA PERIOD", both in microseconds.
func (l *Limits) cpuMax(root fs.FS, file string) {
	text, err := read(root, file)
	if fields := strings.Fields(text); err == nil && len(fields) == 2 {
		l.time(fields[0], fields[1], file)
	}
}

// quota takes in the two files of version 1.
func (l *Limits) quota(root fs.FS, dir string) {
	file := path.Join(dir, "cpu.cfs_quota_us")
	quota, err := read(root, file)
	if err != nil {
		return
	}
	if period, err := read(root, path.Join(dir, "cpu.cfs_period_us")); err == nil {
		l.time(strings.TrimSpace(quota), strings.TrimSpace(period), file)
	}
}

// time takes in a quota of each period; "max" and -1 are no limit.
func (l *Limits) time(quota, period, file string) {
	q, err := strconv.ParseInt(quota, 10, 64)
	p, wrong := strconv.ParseInt(period, 10, 64)
	if err != nil || wrong != nil || q <= 0 || p <= 0 {
		return
	}
	if cpus := float64(q) / float64(p); l.CPUs == 0 || cpus < l.CPUs {
		l.CPUs, l.CPUFile = cpus, "/"+file
	}
}
