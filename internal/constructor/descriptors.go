package constructor

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A process may have a limited number of files open, connections among them. A rank needs a connection, and a line takes two
// descriptors more, so lines are given only as long as the connections of all ranks fit beside them: a rank
// without a line has a stream, one without a connection has nothing.

const (
	// lineFiles are the descriptors of a line: its socket, and the memory that its rank maps.
	lineFiles = 2
	// spareFiles are left for all else that a constructor opens: connections to loaders and to the planner, and
	// ranks that connect again before the connection before is closed.
	spareFiles = 16
	// With a limit of rankFiles for each rank and otherFiles beside, nobody counts those that are open: of the ranks
	// of a large job each would have thousands counted.
	rankFiles, otherFiles = 4, 4096
	// shortTime is how long no lines are given after one could not be taken for lack of descriptors.
	shortTime = 10 * time.Second
	// shortLogEvery is how often the log says so: ranks go on without.
	shortLogEvery = time.Minute
)

// files are the descriptors of a process.
type files struct {
	limit     uint64
	free      int  // of them
	uncounted bool // there are more than enough, or nobody knows how many are open
}

// openFiles counts descriptors, unless the limit is enough for all that may be opened.
func openFiles(enough int) files {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return files{uncounted: true}
	}
	f := files{limit: uint64(limit.Cur)}
	if f.limit >= uint64(enough) {
		f.uncounted = true
		return f
	}
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		f.uncounted = !outOfFiles(err)
		return f
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	f.uncounted, f.free = err != nil, int(f.limit)-(len(names)-1) // dir itself is among them
	return f
}

// short says why no more lines are given for lack of descriptors, where some ranks have yet to come, or to come again;
// "" if they are. The lock is held.
func (s *sharing) short(of files, away int) string {
	if !time.Now().Before(s.shortTill) {
		if of.uncounted {
			return ""
		}
		s.forget()
		if of.free > away+spareFiles+lineFiles*len(s.tickets) {
			return ""
		}
	}
	// It has no numbers that change: ranks that say the same are shown as one.
	return fmt.Sprintf("the constructor has too few file descriptors left (its limit is %d): raise the limit (ulimit -n)", of.limit)
}

// outOfFiles says whether an error is that of a process, or a machine, without descriptors.
func outOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// crowded returns why no more lines are given, and logs it once in a while; "" if they are.
func (c *Constructor) crowded() string {
	s, away := c.sharing, 0
	of := s.files(rankFiles*c.steps.Fetchers() + otherFiles)
	if !of.uncounted {
		away = c.steps.Away()
	}
	s.mu.Lock()
	why := s.short(of, away)
	log := why != "" && time.Since(s.shortLogged) >= shortLogEvery
	if log {
		s.shortLogged = time.Now()
	}
	s.mu.Unlock()
	if log {
		c.opts.Log.Warn("memory is not shared with more ranks of this machine, which get their steps by streams", "why", why)
	}
	return why
}

// notTaken notes that a line could not be taken.
func (c *Constructor) notTaken(err error) {
	s := c.sharing
	s.mu.Lock()
	if outOfFiles(err) {
		s.shortTill = time.Now().Add(shortTime)
	}
	log := time.Since(s.notTakenLogged) >= shortLogEvery
	if log {
		s.notTakenLogged = time.Now()
	}
	s.mu.Unlock()
	if log {
		c.opts.Log.Warn("a line of a rank cannot be taken: without one it gets its steps by a stream", "err", err)
	}
}
