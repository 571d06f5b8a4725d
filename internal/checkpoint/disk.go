package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-data/millrace/internal/failpoint"
)

// disk is a file system that stops for good at its first failed write.
//
// Pebble expects its process to end when a write or sync fails: it calls
// Logger.Fatalf, panics with locks half held, or tries again without end on a
// file whose state is no longer known. Here the process is ended by the caller,
// so a disk makes the failure look to Pebble like the end of the process: the
// failing operation and all later ones that write never return, and not one
// more byte changes. Who waits for Pebble must therefore wait for failed as well.
type disk struct {
	vfs.FS
	failed   chan struct{} // closed by the first fail
	readOnly bool          // who opens it writes nothing

	mu    sync.Mutex
	cause error     // set once, before failed is closed
	lock  io.Closer // the folder's lock, while it is held
}

func newDisk(fs vfs.FS) *disk {
	return &disk{FS: fs, failed: make(chan struct{})}
}

// fail stops the disk. The first cause stands.
func (d *disk) fail(cause error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cause == nil {
		d.cause = cause
		close(d.failed)
	}
}

// err returns why the disk stopped, or nil.
func (d *disk) err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cause
}

// halt never returns: for the calling goroutine the process has ended.
func halt() { select {} }

// readPause slows reads from a stopped disk: compactions of a damaged table
// start over at once and without end, and a caller's read soon looks at err.
const readPause = 100 * time.Millisecond

// reading is called before anything that reads.
func (d *disk) reading() {
	if d.err() != nil {
		time.Sleep(readPause)
	}
}

// writing is called before anything that writes.
func (d *disk) writing() {
	if d.err() != nil {
		halt()
	}
}

// wrote is called after it, with its result.
func (d *disk) wrote(op, name string, err error) {
	if err != nil {
		d.fail(fmt.Errorf("%s %s: %w", op, name, err))
		halt()
	}
}

// Create makes a file. One of Pebble's markers has another file's name in its own, which
// must be durable first: not every file system keeps the order of names.
func (d *disk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	d.writing()
	if strings.HasPrefix(d.PathBase(name), "marker.") {
		d.wrote("syncing the folder of", name, syncFolder(d.FS, d.PathDir(name)))
	}
	f, err := d.FS.Create(name, category)
	d.wrote("creating", name, err)
	return &file{f, d, name}, nil
}

func (d *disk) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	d.writing()
	f, err := d.FS.OpenReadWrite(name, category, opts...)
	d.wrote("opening for writing", name, err)
	return &file{f, d, name}, nil
}

func (d *disk) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	d.writing()
	f, err := d.FS.ReuseForWrite(oldname, newname, category)
	d.wrote("reusing for writing", newname, err)
	return &file{f, d, newname}, nil
}

func (d *disk) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	d.reading()
	f, err := d.FS.Open(name, opts...)
	if err != nil {
		return nil, err
	}
	return &file{f, d, name}, nil
}

// OpenDir opens a folder, which is synced through its handle.
func (d *disk) OpenDir(name string) (vfs.File, error) {
	f, err := d.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &file{f, d, name}, nil
}

func (d *disk) Link(oldname, newname string) error {
	d.writing()
	err := d.FS.Link(oldname, newname)
	d.wrote("linking", newname, err)
	return nil
}

func (d *disk) Rename(oldname, newname string) error {
	d.writing()
	err := d.FS.Rename(oldname, newname)
	d.wrote("renaming to", newname, err)
	return nil
}

// Remove may fail without harm: what is left over is removed at the next open.
func (d *disk) Remove(name string) error {
	d.writing()
	return d.FS.Remove(name)
}

func (d *disk) RemoveAll(name string) error {
	d.writing()
	return d.FS.RemoveAll(name)
}

func (d *disk) MkdirAll(dir string, perm os.FileMode) error {
	d.writing()
	return d.FS.MkdirAll(dir, perm)
}

// lockError is an error of the folder's lock, as opposed to one of its contents.
type lockError struct{ error }

func (e *lockError) Unwrap() error { return e.error }

// Lock keeps the lock, so that a stopped disk's can be released without Pebble. What is only read is
// not locked on a file system that takes no writes.
func (d *disk) Lock(name string) (io.Closer, error) {
	d.writing()
	lock, err := d.FS.Lock(name)
	if d.readOnly && errors.Is(err, syscall.EROFS) {
		lock, err = closerFunc(func() error { return nil }), nil
	}
	if err != nil {
		return nil, &lockError{err}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lock = lock
	return closerFunc(d.unlock), nil
}

// unlock releases the folder's lock if it is held.
func (d *disk) unlock() error {
	d.mu.Lock()
	lock := d.lock
	d.lock = nil
	d.mu.Unlock()
	if lock == nil {
		return nil
	}
	return lock.Close()
}

func (d *disk) Unwrap() vfs.FS { return d.FS }

type closerFunc func() error

func (f closerFunc) Close() error { return f() }

// file is a file or folder of a disk.
type file struct {
	vfs.File
	disk *disk
	name string
}

func (f *file) Read(p []byte) (int, error) {
	f.disk.reading()
	return f.File.Read(p)
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	f.disk.reading()
	return f.File.ReadAt(p, off)
}

func (f *file) Write(p []byte) (int, error) {
	f.disk.writing()
	if failpoint.Enabled && strings.HasSuffix(f.name, ".log") && failpoint.Tear(failpoint.TornWrite) {
		_, _ = f.File.Write(p[:len(p)/2])
		failpoint.Die()
	}
	n, err := f.File.Write(p)
	f.disk.wrote("writing", f.name, err)
	return n, nil
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	f.disk.writing()
	n, err := f.File.WriteAt(p, off)
	f.disk.wrote("writing", f.name, err)
	return n, nil
}

// Preallocate is a hint; Pebble goes on without it.
func (f *file) Preallocate(offset, length int64) error {
	f.disk.writing()
	return f.File.Preallocate(offset, length)
}

func (f *file) Sync() error {
	f.disk.writing()
	f.disk.wrote("syncing", f.name, f.File.Sync())
	return nil
}

func (f *file) SyncTo(length int64) (bool, error) {
	f.disk.writing()
	full, err := f.File.SyncTo(length)
	f.disk.wrote("syncing", f.name, err)
	return full, nil
}

func (f *file) SyncData() error {
	f.disk.writing()
	f.disk.wrote("syncing", f.name, f.File.SyncData())
	return nil
}
