//go:build !linux

package sourceloader

import "time"

// threadTime is for how long this thread has computed; 0 as that is not known here.
func threadTime() time.Duration { return 0 }
