package store

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
)

// Within is a Store that has only what lies in some folders, links resolved: one cannot lead
// out of them. It is safe for concurrent use if the other Store is.
type Within struct {
	Store
	roots []string // as they are named
	real  []string // where they are
}

// NewWithin bounds st to roots: absolute paths, or URIs of what is not local.
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

// Check refuses a file that lies elsewhere, with an error of class fault.User.
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

// realPath is where a file is when all links are followed; of one that is not there, or not
// local, its name.
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
