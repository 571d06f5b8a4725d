package checkpoint

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/regular"
)

// A log has what a job read, and where it stands: its folder and files are its user's.
const (
	folderMode = 0o700
	fileMode   = 0o600
)

// private is the operating system's file system, whose new files and folders nobody else
// may open: Pebble would leave that to the umask.
type private struct{ vfs.FS }

// touch makes an empty file, which must not be there. It is not opened otherwise: to
// close a locked file would let go of its lock.
func touch(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	return f.Close()
}

// Create makes a new file in place of one that is there.
func (p private) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	err := touch(name)
	for errors.Is(err, fs.ErrExist) {
		if err = os.Remove(name); err == nil || errors.Is(err, fs.ErrNotExist) {
			err = touch(name)
		}
	}
	if err != nil {
		return nil, err
	}
	return p.FS.OpenReadWrite(name, category)
}

func (p private) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if err := touch(name); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return p.FS.OpenReadWrite(name, category, opts...)
}

func (p private) Lock(name string) (io.Closer, error) {
	if err := touch(name); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return p.FS.Lock(name)
}

func (p private) MkdirAll(dir string, _ os.FileMode) error { return p.FS.MkdirAll(dir, folderMode) }

func (p private) Unwrap() vfs.FS { return p.FS }

// makeFolder makes a folder and those above it. Those that were made stay after a crash.
func makeFolder(disk vfs.FS, dir string) error {
	if _, err := disk.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := disk.PathDir(dir)
	if parent != dir {
		if err := makeFolder(disk, parent); err != nil {
			return err
		}
	}
	if err := disk.MkdirAll(dir, folderMode); err != nil {
		return err
	}
	return syncFolder(disk, parent)
}

// checkFiles refuses a folder in which something that is no regular file has the name of a file: opening a
// named pipe would wait for ever.
func checkFiles(disk vfs.FS, dir string) error {
	names, err := disk.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is made, or is not there to be read
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		path := disk.PathJoin(dir, name)
		if info, err := disk.Stat(path); err == nil { // else, who opens it says what is wrong
			if err := regular.Check(path, info.Mode()); err != nil {
				return fault.Userf("the log's folder %s: %w, or give the job another folder", dir, err)
			}
		}
	}
	return nil
}

// syncFolder makes the names in a folder durable.
func syncFolder(disk vfs.FS, dir string) error {
	d, err := disk.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
