//go:build !linux

package worker

import "os"

// memoryFile makes a file without a name.
func memoryFile() (*os.File, error) {
	file, err := os.CreateTemp("", "millrace-batch-*")
	if err != nil {
		return nil, err
	}
	return file, os.Remove(file.Name())
}

// punch does nothing: the pages are a file's, which the system writes back and drops.
func punch(*os.File, int64, int64) {}
