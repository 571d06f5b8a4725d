// Package spill keeps data that does not fit in memory on a local disk: files of
// records that are written once, in the expected order of reading, and read by
// number.
//
// It owns the files, the limit on their bytes and their number, and their
// checksums. It never interprets a record, never chooses which file to keep,
// and never ends a job: the caller recomputes records that it cannot keep.
//
// A file is unlinked as soon as it is created, so that nothing is left behind
// however the process ends. No other process reads it, so its index stays in memory:
// 16 bytes for each group of about 16 KiB of records.
package spill

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Options configure a Disk.
type Options struct {
	Dir   string       // folder of the files; default: the system's for temporary files, or /var/tmp if that one is in memory
	Limit int64        // bytes of all files at a time; 0 keeps nothing
	Log   *slog.Logger // default: discard
	Use   Use          // default: blocks of samples
}

// Use says in messages what is kept.
type Use struct {
	What    string // in the plural
	Setting string // of the job spec: the limit
	Instead string // what becomes of what cannot be kept
}

var blocks = Use{"blocks", "resources.loader_disk", "read again from their source"}

// Disk makes files within a limit. It is safe for concurrent use.
type Disk struct {
	dir    string
	limit  int64 // of bytes
	most   int   // files, so that descriptors are left for everything else
	log    *slog.Logger
	use    Use
	create func(dir string) (file, error)
	memory sync.Pool // of *[]byte, see buffer

	mu      sync.Mutex
	used    int64 // bytes of files and of reservations
	files   int
	problem string    // why nothing is written; "" if the disk works
	retry   time.Time // when it is tried again
	warned  bool      // that the limit is too small
}

// ErrFull reports that closing other files would make room.
var ErrFull = errors.New("the limit of the local disk is reached")

// errOff reports that nothing can be kept, whatever is closed.
var errOff = errors.New("nothing is kept on the local disk")

// retryAfter is the pause in writing after the disk failed. A full disk may
// have room again later, and each try costs the writing of a file.
const retryAfter = time.Minute

// Open returns a Disk. It makes no file, and an unusable folder is reported with the
// first file only: a loader that needs no disk gets no warning.
func Open(opts Options) *Disk {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Use == (Use{}) {
		opts.Use = blocks
	}
	d := &Disk{dir: opts.Dir, limit: opts.Limit, most: mostFiles(), log: opts.Log, use: opts.Use, create: createUnnamed}
	if d.limit <= 0 {
		return d
	}
	dir, free, err := folder(opts.Dir)
	if err != nil {
		d.create = func(string) (file, error) { // the folder may be there by then
			dir, _, err := folder(opts.Dir)
			if err != nil {
				return nil, err
			}
			return createUnnamed(dir)
		}
		return d
	}
	// A tenth of the free space stays free: a full disk also stops other processes.
	d.dir, d.limit = dir, min(d.limit, free-free/10)
	return d
}

// folder finds an existing folder with free space, and the free bytes. A folder set
// by name may be in memory; a default one must be on a disk.
func folder(named string) (dir string, free int64, err error) {
	candidates := []string{named}
	if named == "" {
		candidates = []string{os.TempDir(), "/var/tmp"}
	}
	for _, dir := range candidates {
		free, inMemory, problem := space(dir)
		switch {
		case problem != nil:
			err = errors.Join(err, problem)
		case inMemory && named == "":
			err = errors.Join(err, fmt.Errorf("%s is in memory, not on a disk", dir))
		case free == 0:
			err = errors.Join(err, fmt.Errorf("%s has no room", dir))
		default:
			return dir, free, nil
		}
	}
	return "", 0, err
}

// createUnnamed creates a file that only this process can open.
func createUnnamed(dir string) (file, error) {
	f, err := os.CreateTemp(dir, "millrace-*") // of mode 0600
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Reserve reserves bytes for a file before Write or Create. ErrFull means that
// closing other files makes room; with any other error nothing does.
func (d *Disk) Reserve(bytes int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.take(bytes, bytes, 1); err != nil {
		return err
	}
	d.files++
	return nil
}

// more reserves the bytes that a file of size needs beyond its reservation.
func (d *Disk) more(reserved, size int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.take(size, size-reserved, 0)
}

// take reserves bytes for a file of a size, and one more file or none.
func (d *Disk) take(size, bytes int64, files int) error {
	if d.limit <= 0 || time.Now().Before(d.retry) {
		return errOff
	}
	if d.used+bytes <= d.limit && d.files+files <= d.most {
		d.used += bytes
		return nil
	}
	if !d.warned {
		d.warned = true
		d.log.Warn("not all "+d.use.What+" in use fit in memory and on the local disk: some are "+d.use.Instead+", which is slow",
			"folder", d.dir, "bytes", d.used, "limit", d.limit, "files", d.files, "most_files", d.most,
			"try", "a larger "+d.use.Setting+" or resources.loader_buffer, or more loaders; millrace plan says how much is needed")
	}
	if size > d.limit {
		return errOff
	}
	return ErrFull
}

// resize shrinks a file's reservation to bytes, or grows it within the limit.
func (d *Disk) resize(reserved, bytes int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if bytes > reserved && d.used+bytes-reserved > d.limit {
		return false
	}
	d.used += bytes - reserved
	return true
}

// free releases the room of a file.
func (d *Disk) free(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used -= bytes
	d.files--
}

// fail records a failure of the disk.
func (d *Disk) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.problem == "" {
		d.log.Warn(d.use.What+" cannot be kept on the local disk: those that do not fit in memory are "+d.use.Instead+", which is slow",
			"folder", d.dir, "err", err, "retry", retryAfter,
			"try", "free some room, or name another folder with --scratch-dir or MILLRACE_SCRATCH_DIR; "+d.use.Setting+": 0 does without")
	}
	d.problem, d.retry = err.Error(), time.Now().Add(retryAfter)
}

// works records that a file was written.
func (d *Disk) works() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.problem = ""
}

// Usage returns the bytes used, the limit, and the reason why nothing is written, or
// "".
func (d *Disk) Usage() (used, limit int64, problem string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used, d.limit, d.problem
}
