// Package store accesses the storage of source files: it lists files and reads
// ranges of them.
//
// It owns the naming of files (URIs), their sizes and versions, and ranged
// reads. It never looks inside a file; sourceloader/format does that. Behaviour
// such as retry, cache or limits is added by wrapping a Store in another one.
package store

import (
	"context"
	"errors"
	"io"
)

// Object is one file of a store as listed. It is a plain value.
type Object struct {
	// URI names the file: a local path as the user wrote it (made absolute).
	URI string
	// Size is in bytes.
	Size int64
	// Version changes when the file is written again (size and modification
	// time locally, an ETag in an object store). It is compared, never parsed.
	Version string
}

// ErrChanged reports that a file is no longer the one that was listed.
var ErrChanged = errors.New("file changed after it was listed")

// ErrNotExist reports that no file matches.
var ErrNotExist = errors.New("no such file")

// Handle reads one open file. It is safe for concurrent use, as io.ReaderAt
// requires. Close releases it; reads after Close fail.
type Handle interface {
	io.ReaderAt
	io.Closer
}

// Store lists and opens files. Implementations are safe for concurrent use and
// pass the conformance suite in storetest.
type Store interface {
	// List returns the files that uri names, sorted by URI, each once. A uri
	// is a file, a directory (all files below it, hidden ones left out) or a
	// glob with *, ?, [..], {..} and ** (which crosses directories). It
	// returns an error of class fault.User that wraps ErrNotExist and names
	// the uri if there is no such file or the glob has no match.
	List(ctx context.Context, uri string) ([]Object, error)
	// Open opens the file obj for ranged reads. It fails with ErrChanged
	// (class fault.User) if the file's version is no longer obj.Version; an
	// empty obj.Version skips that check. ctx bounds the whole life of the
	// handle: reads fail after it ends.
	Open(ctx context.Context, obj Object) (Handle, error)
	// Stat returns the present state of the file, or an error wrapping ErrNotExist.
	Stat(ctx context.Context, uri string) (Object, error)
}
