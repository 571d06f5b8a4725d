//go:build !linux

package ffmpeg

import (
	"os"
	"syscall"
)

// inputPath is where the child finds its input, the first file beside the usual three.
const inputPath = "/dev/fd/3"

// inMemory is a temporary file whose name is gone.
func inMemory(data []byte) (*os.File, error) {
	file, err := os.CreateTemp("", "millrace-input-*")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(file.Name())
	return spool(file, data)
}

// attributes put the child into a group of its own.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// expendable is not known here.
func expendable(int) {}

// memoryOf is not known here.
func memoryOf(int) (resident, own int64) { return 0, 0 }

// memoryBounded is not known here.
func memoryBounded() bool { return false }
