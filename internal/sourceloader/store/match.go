package store

import (
	"io"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// What stores of other packages have in common with those here.

// Matcher says which files a name means that is no file's own: a directory, or a glob, with
// the rules of Store.List. All of them begin with prefix.
func Matcher(name string) (prefix string, means func(file string) bool, err error) {
	if !isGlob(name) {
		prefix = strings.TrimSuffix(name, "/") + "/"
		if name == "" {
			prefix = ""
		}
		return prefix, func(file string) bool {
			below, inside := strings.CutPrefix(file, prefix)
			return inside && !slices.ContainsFunc(strings.Split(below, "/"), isHidden)
		}, nil
	}
	if !doublestar.ValidatePattern(name) {
		return "", nil, badGlob(name)
	}
	if err := boundGlob(name); err != nil {
		return "", nil, err
	}
	base, _ := doublestar.SplitPattern(name)
	prefix = strings.TrimPrefix(base+"/", "./")
	return prefix, func(file string) bool { return doublestar.MatchUnvalidated(name, file) && !globHides(name, file) }, nil
}

// NoFiles is the error of List for a name that means no file.
func NoFiles(uri string) error { return noFiles(uri) }

// CheckVersion refuses a file that is now another than obj was, with ErrChanged.
func CheckVersion(obj, now Object) error { return checkVersion(obj, now) }

// ReadAt is io.ReaderAt's for a file of a size: read is called with what of p the file has,
// if that is anything.
func ReadAt(p []byte, off, size int64, read func(p []byte) error) (int, error) {
	want, eof := clip(p, off, size)
	if len(want) > 0 {
		if err := read(want); err != nil {
			return 0, err
		}
	}
	if eof {
		return len(want), io.EOF
	}
	return len(want), nil
}
