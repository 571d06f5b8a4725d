//go:build !linux

package spill

import (
	"math"
	"os"
)

// space only checks that the folder exists.
func space(dir string) (free int64, inMemory bool, err error) {
	_, err = os.Stat(dir)
	return math.MaxInt64, false, err
}

// mostFiles is a limit that any system allows.
func mostFiles() int { return 64 }
