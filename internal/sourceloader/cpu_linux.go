package sourceloader

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is for how long this thread has computed; 0 if that is not known.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
