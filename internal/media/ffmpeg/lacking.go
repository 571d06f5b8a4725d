package ffmpeg

import (
	"errors"
	"fmt"
	"regexp"
	"syscall"

	"github.com/millrace-data/millrace/internal/fault"
)

// What this machine has no more of is no file's fault: a record that is bad here has to be bad on every machine.

// limits are what a system says when there is no more of something, and where to look then.
var limits = []struct {
	errno syscall.Errno
	look  string
}{
	{syscall.EFBIG, "the limit on the size of files (ulimit -f) is below the file of a record: raise it"},
	{syscall.EMFILE, "this process has as many files open as it may (ulimit -n): raise that"},
	{syscall.ENFILE, "all processes of this machine have as many files open as they may: raise fs.file-max (sysctl)"},
	{syscall.EAGAIN, "there are as many processes and threads as there may be, of this user (ulimit -u) or of this container (pids.max of its control group): raise that"},
	{syscall.ENOMEM, lookForMemory},
	{syscall.ENOSPC, "there is no room in the folder for temporary files (TMPDIR): free some"},
}

const lookForMemory = "look at the limits of the container and of the process (ulimit -v), and at vm.overcommit_memory (sysctl)"

// usedUp makes an error of what is before a child one of class lost, and adds where to look.
func usedUp(doing string, err error) error {
	for _, l := range limits {
		if errors.Is(err, l.errno) {
			return fault.Lostf("%s: %w: %s", doing, err, l.look)
		}
	}
	return fault.Lostf("%s: %w", doing, err)
}

// saidOf are lines of a child, in the C locale, that could not go on for lack of something.
var saidOf = []struct {
	line *regexp.Regexp
	look string
}{
	{regexp.MustCompile(`(?m)^.*error while loading shared libraries.*$`), "a library of it is missing, or there is no memory or no open file for one (ulimit -v, ulimit -n)"},
	{regexp.MustCompile(`(?m)^.*Too many open files.*$`), "raise the limit on open files (ulimit -n)"},
	{regexp.MustCompile(`(?m)^.*thread.*Resource temporarily unavailable.*$`), "raise the limit on processes and threads (ulimit -u, pids.max of the control group)"},
}

// outOfMemory is what a child says for whom there is none, and what it says of a file with a block beyond maxBlock on every machine.
var outOfMemory = regexp.MustCompile(`(?m)^.*Cannot allocate memory.*$`)

// lacking says what a child that ended by itself could not get from this machine; "" if the file is why. bounded is that of
// the memory of processes, see memoryBounded.
func lacking(said []byte, bounded bool) string {
	for _, s := range saidOf {
		if line := s.line.Find(said); line != nil {
			return fmt.Sprintf("%s: %s", words(line), s.look)
		}
	}
	if line := outOfMemory.Find(said); line != nil && bounded {
		return fmt.Sprintf("%s: %s", words(line), lookForMemory)
	}
	return ""
}
