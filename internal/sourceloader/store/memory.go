package store

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/millrace-data/millrace/internal/fault"
)

// Memory holds files in memory, for tests and examples. Names are
// slash-separated; a directory exists if a file below it does. The zero value
// is an empty store. An open handle keeps reading the bytes it was opened on.
type Memory struct {
	mu    sync.RWMutex
	files map[string]memoryFile
	puts  int64 // makes every Put a new version
}

type memoryFile struct {
	data    []byte
	version string
}

var _ Store = (*Memory)(nil)

// Put creates or replaces a file and returns its URI. The store keeps
// data: the caller must not change it afterwards.
func (m *Memory) Put(name string, data []byte) (uri string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.files == nil {
		m.files = map[string]memoryFile{}
	}
	m.puts++
	uri = path.Clean("/" + name)
	m.files[uri] = memoryFile{data, fmt.Sprintf("%d-%d", len(data), m.puts)}
	return uri
}

// Remove deletes a file if it exists.
func (m *Memory) Remove(uri string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.files, path.Clean("/"+uri))
}

// List implements Store, with the same rules as Local.
func (m *Memory) List(ctx context.Context, uri string) ([]Object, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("listing %s: %w", uri, err)
	}
	name := path.Clean("/" + uri)
	if obj, ok := m.lookup(name); ok {
		return []Object{obj}, nil
	}
	if !doublestar.ValidatePattern(name) {
		return nil, badGlob(uri)
	}
	if err := boundGlob(name); err != nil {
		return nil, err
	}
	var objects []Object
	dir := strings.TrimSuffix(name, "/") + "/"
	for _, file := range m.names() {
		below, inside := strings.CutPrefix(file, dir)
		visible := inside && !slices.ContainsFunc(strings.Split(below, "/"), isHidden)
		if !inside && isGlob(name) {
			visible = doublestar.MatchUnvalidated(name, file) && !globHides(name, file)
		}
		if obj, ok := m.lookup(file); ok && visible {
			objects = append(objects, obj)
		}
	}
	if len(objects) == 0 {
		return nil, noFiles(uri)
	}
	return objects, nil
}

// Stat implements Store.
func (m *Memory) Stat(ctx context.Context, uri string) (Object, error) {
	if err := ctx.Err(); err != nil {
		return Object{}, fmt.Errorf("looking up %s: %w", uri, err)
	}
	obj, ok := m.lookup(path.Clean("/" + uri))
	if !ok {
		return Object{}, fault.Userf("looking up %s: %w: check the path", uri, ErrNotExist)
	}
	return obj, nil
}

// Open implements Store.
func (m *Memory) Open(ctx context.Context, obj Object) (Handle, error) {
	now, err := m.Stat(ctx, obj.URI)
	if err != nil {
		return nil, err
	}
	if err := checkVersion(obj, now); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return &memoryHandle{ctx: ctx, uri: now.URI, data: m.files[now.URI].data}, nil
}

func (m *Memory) lookup(name string) (Object, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	file, ok := m.files[name]
	return Object{URI: name, Size: int64(len(file.data)), Version: file.version}, ok
}

func (m *Memory) names() []string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Sorted(maps.Keys(m.files))
}

type memoryHandle struct {
	ctx    context.Context
	uri    string
	mu     sync.RWMutex
	data   []byte
	closed bool
}

func (h *memoryHandle) ReadAt(p []byte, off int64) (int, error) {
	if err := h.ctx.Err(); err != nil {
		return 0, fmt.Errorf("reading %s: %w", h.uri, err)
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	switch {
	case h.closed:
		return 0, fmt.Errorf("reading %s: %w", h.uri, io.ErrClosedPipe)
	case off < 0:
		return 0, fmt.Errorf("reading %s: negative offset %d", h.uri, off)
	}
	want, eof := clip(p, off, int64(len(h.data)))
	if len(want) > 0 {
		copy(want, h.data[off:])
	}
	if eof {
		return len(want), io.EOF
	}
	return len(want), nil
}

func (h *memoryHandle) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return fmt.Errorf("closing %s: %w", h.uri, io.ErrClosedPipe)
	}
	h.closed = true
	return nil
}
