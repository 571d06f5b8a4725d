package store

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/singleflight"
)

// Sizes of a cache.
const (
	cacheBlock = 1 << 20 // bytes of one read of the store: a request costs as much as some hundred kilobytes
	cacheBytes = 1 << 30 // of a job's hot files: footers, indexes, and chunks that several readers want
)

var errHandleClosed = errors.New("the file was closed")

// CacheOptions configure a Cached store.
type CacheOptions struct {
	Dir   string // folder on a local disk; default: the system's for temporary files
	Bytes int64  // most that it takes there; default 1 GiB
	Block int64  // bytes that are read and kept at a time; default 1 MiB
}

// Cached keeps blocks of another store's files in one file on a local disk, the least
// recently used ones giving way. A file is known by its URI and version. The file has no
// name: it is gone with the process. It is safe for concurrent use if the other Store is.
type Cached struct {
	Store
	opts CacheOptions
	read singleflight.Group
	hits atomic.Int64
	miss atomic.Int64
	got  atomic.Int64

	mu    sync.Mutex // guards the fields below, and no read
	file  *os.File
	err   error // why there is no file
	slots map[blockKey]*list.Element
	used  *list.List // of *slot, the most recently used first
	taken int64      // places given out so far, those being written among them
	ended bool
}

type blockKey struct {
	uri, version string
	at           int64
}

// slot is a block's place in the file. It is written before it is in slots.
type slot struct {
	key  blockKey
	n    int64 // its number: it begins at n blocks
	busy int   // readers
}

// NewCached wraps st.
func NewCached(st Store, opts CacheOptions) *Cached {
	if opts.Bytes == 0 {
		opts.Bytes = cacheBytes
	}
	if opts.Block == 0 {
		opts.Block = cacheBlock
	}
	return &Cached{Store: st, opts: opts, slots: map[blockKey]*list.Element{}, used: list.New()}
}

// CacheMeter holds the counts of a Cached store.
type CacheMeter struct {
	Hits, Misses int64 // blocks that were there, and that were read from the store
	Bytes        int64 // that were read from the store
	Disk         int64 // taken on the disk now
}

// Meter returns the counts so far.
func (c *Cached) Meter() CacheMeter {
	c.mu.Lock()
	defer c.mu.Unlock()
	return CacheMeter{c.hits.Load(), c.miss.Load(), c.got.Load(), int64(c.used.Len()) * c.opts.Block}
}

// Close removes the cache. Reads fail from then on.
func (c *Cached) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.file == nil {
		return nil
	}
	err := c.file.Close()
	c.file = nil
	return err
}

// Open implements Store.
func (c *Cached) Open(ctx context.Context, obj Object) (Handle, error) {
	h, err := c.Store.Open(ctx, obj)
	if err != nil {
		return nil, err
	}
	if obj.Version == "" { // another one of this name could be taken for it
		return h, nil
	}
	return &cachedHandle{cache: c, ctx: ctx, below: h, obj: obj}, nil
}

type cachedHandle struct {
	cache  *Cached
	ctx    context.Context
	below  Handle
	obj    Object
	closed atomic.Bool
}

func (h *cachedHandle) Close() error {
	h.closed.Store(true)
	return h.below.Close()
}

func (h *cachedHandle) ReadAt(p []byte, off int64) (int, error) {
	if h.closed.Load() {
		return 0, fmt.Errorf("reading %s: %w", h.obj.URI, errHandleClosed)
	}
	if err := h.ctx.Err(); err != nil {
		return 0, fmt.Errorf("reading %s: %w", h.obj.URI, err)
	}
	block := h.cache.opts.Block
	if off < 0 || int64(len(p)) > h.cache.opts.Bytes/4 { // it would drive everything else out
		return h.below.ReadAt(p, off)
	}
	want, eof := clip(p, off, h.obj.Size)
	for n := 0; n < len(want); {
		at := (off + int64(n)) / block * block
		got, err := h.block(at, want[n:], off+int64(n)-at)
		if err != nil {
			return n, err
		}
		n += got
	}
	if eof {
		return len(want), io.EOF
	}
	return len(want), nil
}

// block copies what p wants of the block at an offset of the file, from within on.
func (h *cachedHandle) block(at int64, p []byte, within int64) (int, error) {
	c := h.cache
	key := blockKey{h.obj.URI, h.obj.Version, at}
	size := min(c.opts.Block, h.obj.Size-at)
	p = p[:min(int64(len(p)), size-within)]
	if c.copy(key, p, within) {
		c.hits.Add(1)
		return len(p), nil
	}
	v, err, _ := c.read.Do(fmt.Sprintf("%s\n%s\n%d", key.uri, key.version, key.at), func() (any, error) {
		data := make([]byte, size)
		if _, err := h.below.ReadAt(data, at); err != nil && err != io.EOF {
			return nil, err
		}
		c.miss.Add(1)
		c.got.Add(size)
		c.keep(key, data)
		return data, nil
	})
	if errors.Is(err, context.Canceled) && h.ctx.Err() == nil {
		return h.below.ReadAt(p, at+within) // who read it for both has gone
	}
	if err != nil {
		return 0, err
	}
	return copy(p, v.([]byte)[within:]), nil
}

// copy reads p from a block that is kept; ok is false if it is not.
func (c *Cached) copy(key blockKey, p []byte, within int64) (ok bool) {
	c.mu.Lock()
	e := c.slots[key]
	if e == nil || c.file == nil {
		c.mu.Unlock()
		return false
	}
	s, file := e.Value.(*slot), c.file
	s.busy++
	c.used.MoveToFront(e)
	c.mu.Unlock()
	_, err := file.ReadAt(p, s.n*c.opts.Block+within)
	c.mu.Lock()
	defer c.mu.Unlock()
	s.busy--
	return err == nil
}

// keep stores a block, if there is room for it. A disk that fails is no loss.
func (c *Cached) keep(key blockKey, data []byte) {
	n, file := c.room()
	if file == nil {
		return
	}
	_, err := file.WriteAt(data, n*c.opts.Block)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.err, c.file = err, nil // what is full stays full
		return
	}
	c.slots[key] = c.used.PushFront(&slot{key: key, n: n})
}

// room finds a place for a block; file is nil if there is none.
func (c *Cached) room() (n int64, file *os.File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil && c.err == nil && !c.ended {
		if c.file, c.err = os.CreateTemp(c.opts.Dir, "millrace-cache-*"); c.err == nil {
			c.err = os.Remove(c.file.Name())
		}
	}
	if c.file == nil {
		return 0, nil
	}
	if c.taken < c.opts.Bytes/c.opts.Block {
		c.taken++
		return c.taken - 1, c.file
	}
	for e := c.used.Back(); e != nil; e = e.Prev() {
		if s := e.Value.(*slot); s.busy == 0 {
			c.used.Remove(e)
			delete(c.slots, s.key)
			return s.n, c.file
		}
	}
	return 0, nil
}
