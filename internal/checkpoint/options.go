package checkpoint

import (
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// FS is a file system that can hold a log, such as Pebble's in memory for tests.
type FS = vfs.FS

// Options configure a Log. Only Identity is needed.
type Options struct {
	// Identity names the job that the log belongs to: a digest over all that
	// its steps are a function of. A log of another identity is not opened.
	Identity [32]byte
	// ReadOnly opens a log to look at it: it must be there, and nothing is written.
	// Without an Identity it may be any job's.
	ReadOnly bool
	// Whole has Open read all that the log holds, every branch of it.
	Whole bool
	// Accept is given a key frame of the log that Resume finds, if it has one, before anything is
	// written: an error, which says that it "belongs to" another job, ends Resume. Nil: any log is taken.
	Accept func(frame []byte) error
	// Logger receives warnings and errors, Pebble's among them. Default: none.
	Logger *slog.Logger
	// FS holds the files. Default: the operating system's, with files and folders that
	// only their user can open.
	FS FS
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.FS == nil || o.FS == vfs.Default {
		o.FS = private{vfs.Default}
	}
	return o
}

// Pebble's sizes. A log writes 1-2 KB a step and is read once, from end to end,
// so that large buffers would serve nothing.
const (
	cacheBytes    = 1 << 20
	memTableBytes = 1 << 20
)

// pebbleOptions returns the options of the database on disk d.
func pebbleOptions(d *disk, log *slog.Logger) *pebble.Options {
	logger := &pebbleLogger{disk: d, log: log}
	return &pebble.Options{
		FS:                 d,
		FormatMajorVersion: pebble.FormatNewest,
		CacheSize:          cacheBytes,
		MemTableSize:       memTableBytes,
		Logger:             logger,
		EventListener: &pebble.EventListener{
			BackgroundError: logger.backgroundError,
			DataCorruption:  logger.corrupt,
		},
	}
}

// pebbleLogger hands Pebble's messages to slog, and stops the disk for those
// after which Pebble expects the process to end.
type pebbleLogger struct {
	disk *disk
	log  *slog.Logger
}

// Infof drops what Pebble tells of its daily work.
func (l *pebbleLogger) Infof(string, ...any) {}

func (l *pebbleLogger) Errorf(format string, args ...any) {
	l.log.Error("pebble: " + fmt.Sprintf(format, args...))
}

// Fatalf must not return: Pebble's state is broken when it calls it. It is not
// called for a failed write, which has not returned to Pebble.
func (l *pebbleLogger) Fatalf(format string, args ...any) {
	l.disk.fail(&bugError{fmt.Sprintf(format, args...), debug.Stack()})
	halt()
}

// backgroundError is silent once the disk has stopped: Pebble tries again without end.
func (l *pebbleLogger) backgroundError(err error) {
	if l.disk.err() == nil {
		l.log.Error("pebble: background work of the log", "err", err)
	}
}

// corrupt returns, unlike Fatalf: the read that met the damage reports it.
func (l *pebbleLogger) corrupt(info pebble.DataCorruptionInfo) {
	l.disk.fail(&damageError{path: info.Path, err: info.Details})
}

// damageError is damage that Pebble's checksums found in a file.
type damageError struct {
	path string
	err  error
}

func (e *damageError) Error() string { return fmt.Sprintf("file %s is damaged: %v", e.path, e.err) }
func (e *damageError) Unwrap() error { return e.err }
