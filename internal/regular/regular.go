// Package regular reads the files that users name: a named pipe, a socket or a device in the place of
// one is an error that says so, where opening it would wait for a writer for ever.
//
// It owns the look before a file is opened, and nothing else: what a file holds, and whose fault an
// error is, its caller says.
package regular

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Check refuses the file with this name for what it is, unless it is a regular file or a folder; of a
// folder, whoever reads it says what is wrong.
func Check(name string, mode fs.FileMode) error {
	what := "a special file"
	switch {
	case mode.IsRegular(), mode.IsDir():
		return nil
	case mode&fs.ModeNamedPipe != 0:
		what = "a named pipe"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	case mode&fs.ModeDevice != 0:
		what = "a device"
	}
	return fmt.Errorf("%s is %s, and has to be a regular file: put one in its place", name, what)
}

// Open opens a file to read it.
func Open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := Check(path, info.Mode()); err != nil {
		return nil, err
	}
	return os.Open(path)
}

// Read reads a file.
func Read(path string) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// Text reads a file that is read once, and may be a pipe that a shell made, as in
// `millrace lint <(envsubst < job.yaml)`, or a terminal. A pipe that nobody has open to write is an error.
func Text(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
		return os.ReadFile(path)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it waits for no writer, but for what one writes
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err == nil && len(data) == 0 {
		err = fmt.Errorf("%s is a named pipe, and nothing comes out of it: start what writes to it first, or give a regular file", path)
	}
	return data, err
}
