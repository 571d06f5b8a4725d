package checkpoint_test

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
)

// room is a file system that says how much is free.
type room struct {
	vfs.FS
	usage vfs.DiskUsage
}

func (r room) GetDiskUsage(string) (vfs.DiskUsage, error) { return r.usage, nil }

// TestProbe: a folder that takes a log is distinguished from one that does not, and stays as it is.
func TestProbe(t *testing.T) {
	mem := vfs.NewMem()
	log := open(t, "log", checkpoint.Options{FS: mem})
	before, err := mem.List("log")
	if err != nil {
		t.Fatal(err)
	}
	if err := checkpoint.Probe("log", checkpoint.Options{FS: mem}); err != nil {
		t.Errorf("a log in use: %v", err)
	}
	after, err := mem.List("log")
	slices.Sort(before)
	slices.Sort(after)
	if err != nil || !slices.Equal(before, after) {
		t.Errorf("the folder has %v (%v), and had %v", after, err, before)
	}
	if err := log.Append(0, recordOf(0), nil); err != nil {
		t.Error(err)
	}
	for n := int64(1); n <= 5; n++ { // making the folder, syncing the one above it, making the file, writing and syncing it
		for _, c := range []struct {
			cause error
			class fault.Class
		}{{syscall.ENOSPC, fault.Lost}, {syscall.EIO, fault.Lost}, {syscall.EROFS, fault.User}, {fs.ErrPermission, fault.User}} {
			disk, hit := failFrom(vfs.NewMem(), n, false, c.cause)
			err := checkpoint.Probe("new", checkpoint.Options{FS: disk})
			if !hit.Load() || !errors.Is(err, c.cause) || fault.ClassOf(err) != c.class {
				t.Errorf("write %d fails with %v (%v): %v", n, c.cause, hit.Load(), err)
			}
		}
	}
	for free, lost := range map[uint64]bool{0: true, checkpoint.LeastRoom - 1: true, checkpoint.LeastRoom: false} {
		err := checkpoint.Probe("log", checkpoint.Options{FS: room{mem, vfs.DiskUsage{TotalBytes: 1 << 30, AvailBytes: free}}})
		if (err != nil) != lost {
			t.Errorf("with %d bytes free: %v", free, err)
		} else if lost {
			wantError(t, err, fault.Lost, "log", "KiB left", "needs 4 MiB", "free or replace the disk")
		}
	}
	if err := checkpoint.Probe("log", checkpoint.Options{FS: room{FS: mem}}); err != nil {
		t.Errorf("a file system that does not say what is free: %v", err)
	}
}
