package store

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
)

// Within restricts a Store to files in some folders, with links resolved, so that a
// link cannot lead out. It is safe for concurrent use if the other Store is.
type Within struct {
	Store
	roots []string // as named
	real  []string // with links resolved
}

// NewWithin restricts st to roots: absolute paths, or URIs of other storage.
func NewWithin(st Store, roots []string) *Within {
	w := &Within{Store: st, roots: roots}
	for _, root := range roots {
		w.real = append(w.real, realPath(root))
	}
	return w
}

// List implements Store.
func (w *Within) List(ctx context.Context, uri string) ([]Object, error) {
	objects, err := w.Store.List(ctx, uri)
	for _, obj := range objects {
		if err := w.Check(obj.URI); err != nil {
			return nil, err
		}
	}
	return objects, err
}

// Open implements Store.
func (w *Within) Open(ctx context.Context, obj Object) (Handle, error) {
	if err := w.Check(obj.URI); err != nil {
		return nil, err
	}
	return w.Store.Open(ctx, obj)
}

// Stat implements Store.
func (w *Within) Stat(ctx context.Context, uri string) (Object, error) {
	if err := w.Check(uri); err != nil {
		return Object{}, err
	}
	return w.Store.Stat(ctx, uri)
}

// Check refuses a file outside the folders, with an error of class fault.User.
func (w *Within) Check(uri string) error {
	path := realPath(uri)
	if slices.ContainsFunc(w.real, func(root string) bool {
		return path == root || strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/")
	}) {
		return nil
	}
	return fault.Userf("%s is outside of the folders that sources which join may be read from: %s; put its files there, or start the service with --allow-root",
		uri, strings.Join(w.roots, ", "))
}

// realPath returns a file's path with all links resolved; for a file that does not
// exist or is not local, its name.
func realPath(uri string) string {
	path, err := localPath(uri)
	if err != nil {
		return uri
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}
