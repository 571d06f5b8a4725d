// Package object is where Millrace keeps and reads objects: named byte strings in a
// folder, in memory, or in an object store that speaks S3.
//
// It owns names, ranged reads, conditional creation, retries and the classes of their
// errors. It never looks into an object, and it never logs: credentials come from the
// environment or from files, and are in no message. Package objecttest is what every
// [Store] must do; [Open] makes one of a URL.
package object

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
)

var (
	// ErrNotExist is wrapped by the error for an object that is not there.
	ErrNotExist = errors.New("no such object")
	// ErrExists is wrapped by the error of PutIfAbsent for an object that is there.
	ErrExists = errors.New("the object is there already")
	// ErrChanged is wrapped by the error of Get for an object that is not of the
	// version asked for any more.
	ErrChanged = errors.New("the object was written again")
	// ErrDenied is wrapped by the error for what the store gives these credentials, or this user,
	// no right to. Credentials may expire, or be changed.
	ErrDenied = errors.New("access is denied")
)

// Info is an object as it was listed. It is a plain value.
type Info struct {
	Key     string
	Size    int64  // bytes
	Version string // changes when the object is written again; compared, never parsed
}

// Range is a part of an object: N bytes from Off on; N < 0 means up to the end. Version,
// if not empty, is the one that the object must be of.
type Range struct {
	Off, N  int64
	Version string
}

// Whole is all of an object, of whatever version.
var Whole = Range{N: -1}

// Store keeps objects under keys: names of printable parts divided by slashes, none of
// them empty, ".", ".." or beginning with ".tmp-". An object is there whole or not at all.
//
// All methods are safe for concurrent use and may be called again after an error. Errors
// are of class fault.User if the store refuses (no such bucket, access denied, a key that
// is none), of class fault.Lost if it cannot be reached or fails. Bytes belong to the
// caller on the way in, after the call, and on the way out.
type Store interface {
	// Get returns the bytes of a range of the object, fewer if the object ends within it.
	// The error wraps ErrNotExist if there is no such object, and ErrChanged if it is of
	// another version.
	Get(ctx context.Context, key string, r Range) ([]byte, error)
	// Stat says what an object is, or returns an error that wraps ErrNotExist.
	Stat(ctx context.Context, key string) (Info, error)
	// Put writes an object, over one that is there. It is durable on return.
	Put(ctx context.Context, key string, data []byte) error
	// PutIfAbsent writes an object that is not there. Of several callers at a time, one
	// succeeds; the error of the others wraps ErrExists. It is durable on return. After
	// an error of class fault.Lost the object may be there. One that is there with the
	// same bytes may count as written by this call, as with [Retry].
	PutIfAbsent(ctx context.Context, key string, data []byte) error
	// List returns the objects whose keys begin with prefix and come after the key
	// after, by rising key. An object that was written before is among them.
	List(ctx context.Context, prefix, after string) ([]Info, error)
	// Delete removes an object. One that is not there is no error.
	Delete(ctx context.Context, key string) error
	// String names the store for messages, without secrets.
	String() string
}

// temporary is how the names of files begin that are being written.
const temporary = ".tmp-"

// checkKey refuses a key that is none.
func checkKey(key string) error {
	for part := range strings.SplitSeq(key, "/") {
		if part == "" || part == "." || part == ".." || strings.HasPrefix(part, temporary) || strings.ContainsFunc(part, unprintable) {
			return fault.Userf("%q is not a valid name of an object: valid are printable parts divided by /, none of them empty, . or ..", key)
		}
	}
	return nil
}

func unprintable(r rune) bool { return r < ' ' || r == 0x7f }

// clip is the range of an object of a size: from <= offset < to.
func (r Range) clip(size int64) (from, to int64) {
	from, to = min(max(r.Off, 0), size), size
	if r.N >= 0 && r.N < to-from {
		to = from + r.N
	}
	return from, to
}

// wrap says what was being done with which object.
func wrap(s Store, doing, key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s in %s: %w", doing, key, s, err)
}
