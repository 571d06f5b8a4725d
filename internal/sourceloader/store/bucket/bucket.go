// Package bucket reads source files from the buckets of an object store, and from the local
// file system beside it.
//
// It owns what s3:// URIs mean, and the mapping of objects to a store.Store: ranged reads of
// one version, pinned by its ETag. Requests, retries and credentials are internal/object's,
// the cache on a local disk is store.Cached. It never looks inside a file.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// Buckets reads objects whose URIs are s3://BUCKET/KEY. Where the buckets are, and with which
// credentials they are read, the environment says (see object.Open). A version is an ETag: a
// read of an object that was written again fails. Requests that fail for a time are
// repeated; so are those that a bucket denies and granted before, as credentials expire. The zero
// value is ready. It is safe for concurrent use.
type Buckets struct {
	mu   sync.Mutex
	open map[string]object.Store // by bucket

	command bool // somebody waits at a terminal: see ForCommand
}

var _ store.Store = (*Buckets)(nil)

const bucketScheme = "s3://"

// IsRemote says whether a URI names objects of a bucket.
func IsRemote(uri string) bool { return strings.HasPrefix(uri, bucketScheme) }

// bucket opens the bucket of a URI, and returns the key.
func (b *Buckets) bucket(uri string) (s object.Store, name, key string, err error) {
	name, key, _ = strings.Cut(strings.TrimPrefix(uri, bucketScheme), "/")
	if !IsRemote(uri) || name == "" {
		return nil, "", "", fault.Userf("%s: no URI of an object (valid: s3://BUCKET/PATH)", uri)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if s = b.open[name]; s == nil {
		if s, err = object.Open(bucketScheme + name); err != nil {
			return nil, "", "", err
		}
		if r, ok := s.(object.Retry); ok && b.command {
			r.Unknown, r.Granted = unknownTime, nil
			s = r
		}
		if b.open == nil {
			b.open = map[string]object.Store{}
		}
		b.open[name] = s
	}
	return s, name, key, nil
}

// List implements Store, with the same rules as Local.
func (b *Buckets) List(ctx context.Context, uri string) ([]store.Object, error) {
	s, name, key, err := b.bucket(uri)
	if err != nil {
		return nil, err
	}
	if key != "" && !strings.HasSuffix(key, "/") {
		obj, err := b.Stat(ctx, uri)
		if err == nil {
			return []store.Object{obj}, nil
		}
		if !errors.Is(err, store.ErrNotExist) {
			return nil, err
		}
	}
	prefix, means, err := store.Matcher(key)
	if err != nil {
		return nil, err
	}
	all, err := s.List(ctx, prefix, "")
	if err != nil {
		return nil, bucketError("listing "+uri, err)
	}
	var objects []store.Object
	for _, o := range all {
		if means(o.Key) {
			objects = append(objects, store.Object{URI: bucketScheme + name + "/" + o.Key, Size: o.Size, Version: o.Version})
		}
	}
	if len(objects) == 0 {
		return nil, store.NoFiles(uri)
	}
	return objects, nil
}

// Stat implements Store.
func (b *Buckets) Stat(ctx context.Context, uri string) (store.Object, error) {
	s, name, key, err := b.bucket(uri)
	if err != nil {
		return store.Object{}, err
	}
	info, err := s.Stat(ctx, key)
	if err != nil {
		return store.Object{}, bucketError("looking up "+uri, err)
	}
	return store.Object{URI: bucketScheme + name + "/" + key, Size: info.Size, Version: info.Version}, nil
}

// Open implements Store. Each read of a handle is one request for a range.
func (b *Buckets) Open(ctx context.Context, obj store.Object) (store.Handle, error) {
	now, err := b.Stat(ctx, obj.URI)
	if err == nil {
		err = store.CheckVersion(obj, now)
	}
	if err != nil {
		return nil, err
	}
	s, _, key, err := b.bucket(obj.URI)
	return &bucketHandle{ctx: ctx, store: s, key: key, obj: now}, err
}

type bucketHandle struct {
	ctx    context.Context
	store  object.Store
	key    string
	obj    store.Object
	closed atomic.Bool
}

var errHandleClosed = errors.New("the file was closed")

func (h *bucketHandle) ReadAt(p []byte, off int64) (int, error) {
	if h.closed.Load() {
		return 0, fmt.Errorf("reading %s: %w", h.obj.URI, errHandleClosed)
	}
	if off < 0 {
		return 0, fmt.Errorf("reading %s at byte %d: the offset is negative", h.obj.URI, off)
	}
	if err := h.ctx.Err(); err != nil {
		return 0, fmt.Errorf("reading %s: %w", h.obj.URI, err)
	}
	return store.ReadAt(p, off, h.obj.Size, func(p []byte) error {
		data, err := h.store.Get(h.ctx, h.key, object.Range{Off: off, N: int64(len(p)), Version: h.obj.Version})
		if err == nil && len(data) != len(p) {
			err = fault.Lostf("%d bytes of %d came", len(data), len(p))
		}
		if err != nil {
			return bucketError(fmt.Sprintf("reading %s at byte %d", h.obj.URI, off), err)
		}
		copy(p, data)
		return nil
	})
}

func (h *bucketHandle) Close() error {
	h.closed.Store(true)
	return nil
}

// bucketError says what of a store's errors this package's callers ask for.
func bucketError(operation string, err error) error {
	switch {
	case errors.Is(err, object.ErrNotExist):
		return fault.Userf("%s: %w: %w", operation, store.ErrNotExist, err)
	case errors.Is(err, object.ErrChanged):
		return fault.Userf("%s: %w: %w; keep data files unchanged while a job runs", operation, store.ErrChanged, err)
	}
	return fmt.Errorf("%s: %w", operation, err)
}

// Any reads local files and, by their URIs, objects of buckets, these through a cache on a
// local disk. It is what a job's sources are read through. Close removes the cache.
type Any struct {
	store.Local
	remote *store.Cached
}

var _ store.Store = (*Any)(nil)

// NewAny returns a store whose cache is in the folder scratch; "" is the system's folder for
// temporary files. Nothing is written before a bucket is read.
func NewAny(scratch string) *Any {
	return &Any{remote: store.NewCached(new(Buckets), store.CacheOptions{Dir: scratch})}
}

// unknownTime is how long a command looks for the address of a host.
const unknownTime = 3 * time.Second

// ForCommand is NewAny for who waits at a terminal: a bucket whose host has no address, and never
// answered, fails within seconds, and one that denies access at once. A running job waits for the
// first as for all that is lost, and so for the second if access was given before.
func ForCommand(scratch string) *Any {
	return &Any{remote: store.NewCached(&Buckets{command: true}, store.CacheOptions{Dir: scratch})}
}

func (a *Any) of(uri string) store.Store {
	if IsRemote(uri) {
		return a.remote
	}
	return a.Local
}

// List implements Store.
func (a *Any) List(ctx context.Context, uri string) ([]store.Object, error) {
	return a.of(uri).List(ctx, uri)
}

// Open implements Store.
func (a *Any) Open(ctx context.Context, obj store.Object) (store.Handle, error) {
	return a.of(obj.URI).Open(ctx, obj)
}

// Stat implements Store.
func (a *Any) Stat(ctx context.Context, uri string) (store.Object, error) {
	return a.of(uri).Stat(ctx, uri)
}

// Close removes the cache. Handles that are open fail from then on.
func (a *Any) Close() error { return a.remote.Close() }
