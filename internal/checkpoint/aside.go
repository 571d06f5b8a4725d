package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-data/millrace/internal/fault"
)

// Where the files of a log are put aside in its own folder, and where they are until all are. Files of a
// log are in no folder below its own.
const (
	asideName  = "replaced"
	movingName = "replacing"
)

// Aside is the folder to which that of a log is moved.
func Aside(dir string) string { return strings.TrimRight(dir, "/") + ".replaced" }

// SetAside moves a log out of the way, in place of one that was moved there before: its folder to
// DIR.replaced, or its files to DIR/replaced where the folder has to stay, as a mount point and the end of a
// link have. Nobody may have the log open. Where that is cut off, Open finds the log damaged, and SetAside
// goes on. Errors are of class fault.Lost.
func SetAside(dir string, opts Options) error {
	disk := opts.withDefaults().FS
	dir = strings.TrimRight(dir, "/")
	stays := isLink(disk, dir)
	var err error
	if !stays {
		err = renameAside(disk, dir)
		stays = errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.EXDEV) || errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission)
	}
	if stays { // it, or a folder above that may not be written to, as that of a container's volume
		err = moveInside(disk, dir)
	}
	if err != nil {
		return fault.Lostf("moving the log in %s aside: %w", dir, err)
	}
	return nil
}

// isLink says whether the name of a folder is a symbolic link. Only the operating system's file system has them.
func isLink(disk vfs.FS, dir string) bool {
	if _, ok := disk.(private); !ok {
		return false
	}
	info, err := os.Lstat(dir)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

func renameAside(disk vfs.FS, dir string) error {
	aside := Aside(dir)
	if err := disk.RemoveAll(aside); err != nil {
		return err
	}
	if err := disk.Rename(dir, aside); err != nil {
		return err
	}
	return syncFolder(disk, disk.PathDir(dir))
}

// moveInside leaves the folders that are in a folder, among them what a file system has of its own (lost+found).
func moveInside(disk vfs.FS, dir string) error {
	moving, aside := disk.PathJoin(dir, movingName), disk.PathJoin(dir, asideName)
	err := errors.Join(makeFolder(disk, moving), syncFolder(disk, dir)) // it may be there, and not yet for good
	if err != nil {
		return err
	}
	names, err := disk.List(dir)
	slices.Sort(names)
	for _, name := range names {
		from := disk.PathJoin(dir, name)
		if info, statErr := disk.Stat(from); err == nil && statErr == nil && !info.IsDir() {
			err = disk.Rename(from, disk.PathJoin(moving, name))
		}
	}
	if err = errors.Join(err, syncFolder(disk, moving), syncFolder(disk, dir)); err != nil {
		return err
	}
	if err := disk.RemoveAll(aside); err != nil {
		return err
	}
	if err := disk.Rename(moving, aside); err != nil {
		return err
	}
	return syncFolder(disk, dir)
}
