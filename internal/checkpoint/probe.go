package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-data/millrace/internal/fault"
)

// LeastRoom is the free space that a log needs to begin with: Pebble's memory table and
// its write-ahead log, and both again while they are flushed.
const LeastRoom = 4 * memTableBytes

const (
	probeName  = "PROBE"
	probeBytes = 4 << 10
)

// Probe finds out whether a log can be written in the folder dir, before it is known
// which job's it would be: a log is opened late, and its first step is written later
// still. It makes the folder, and writes, syncs and removes a file. A log that is
// there, or in use, is left alone. Errors are of class fault.User if the folder may not be
// written to, and of class fault.Lost if its disk fails or has less than [LeastRoom].
func Probe(dir string, opts Options) error {
	disk := opts.withDefaults().FS
	if err := checkFiles(disk, dir); fault.ClassOf(err) == fault.User {
		return err
	}
	err := makeFolder(disk, dir)
	if err == nil {
		err = probe(disk, disk.PathJoin(dir, probeName))
	}
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EROFS):
		return fault.Userf("trying to write to the log's folder %s: %w: give the job a folder that it may write to", dir, err)
	case err != nil:
		return fault.Lostf("trying to write to the log's folder %s: %w: free or replace the disk, and start again", dir, err)
	}
	// Who does not know how much is free is not asked again: some network file systems say 0 of 0.
	if u, err := disk.GetDiskUsage(dir); err == nil && u.TotalBytes > 0 && u.AvailBytes < LeastRoom {
		return fault.Lostf("the disk of the log's folder %s has %d KiB left, a log needs %d MiB to begin with: free or replace the disk, and start again",
			dir, u.AvailBytes>>10, LeastRoom>>20)
	}
	return nil
}

// probe writes a file as a log is written, and removes it.
func probe(disk vfs.FS, name string) error {
	f, err := disk.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, probeBytes))
	err = errors.Join(err, f.Sync(), f.Close())
	if removed := disk.Remove(name); err == nil && removed != nil && !errors.Is(removed, fs.ErrNotExist) { // another probe may have
		return fmt.Errorf("removing %s: %w", name, removed)
	}
	return err
}
