package object

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/millrace-data/millrace/internal/fault"
)

// Memory is a Store in memory. The zero value is empty and ready.
type Memory struct {
	mu      sync.Mutex
	objects map[string]stored
	writes  int
}

type stored struct {
	data    []byte
	version string
}

var _ Store = (*Memory)(nil)

// String implements Store.
func (m *Memory) String() string { return "memory" }

func (m *Memory) find(ctx context.Context, key string) (stored, error) {
	if err := checkCall(ctx, key); err != nil {
		return stored{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[key]
	if !ok {
		return stored{}, fault.As(fault.User, ErrNotExist)
	}
	return o, nil
}

// checkCall refuses a call that is over before it began, or whose key is none.
func checkCall(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return fault.As(fault.Lost, err)
	}
	return checkKey(key)
}

// Get implements Store.
func (m *Memory) Get(ctx context.Context, key string, r Range) ([]byte, error) {
	o, err := m.find(ctx, key)
	if err == nil && r.Version != "" && r.Version != o.version {
		err = fault.As(fault.User, ErrChanged)
	}
	if err != nil {
		return nil, wrap(m, "reading", key, err)
	}
	from, to := r.clip(int64(len(o.data)))
	return bytes.Clone(o.data[from:to]), nil
}

// Stat implements Store.
func (m *Memory) Stat(ctx context.Context, key string) (Info, error) {
	o, err := m.find(ctx, key)
	if err != nil {
		return Info{}, wrap(m, "looking up", key, err)
	}
	return Info{key, int64(len(o.data)), o.version}, nil
}

// Put implements Store.
func (m *Memory) Put(ctx context.Context, key string, data []byte) error {
	if err := checkCall(ctx, key); err != nil {
		return wrap(m, "writing", key, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(key, data)
	return nil
}

// put writes an object; the caller holds mu.
func (m *Memory) put(key string, data []byte) {
	if m.objects == nil {
		m.objects = map[string]stored{}
	}
	m.writes++
	m.objects[key] = stored{bytes.Clone(data), strconv.Itoa(m.writes)}
}

// PutIfAbsent implements Store.
func (m *Memory) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	if err := checkCall(ctx, key); err != nil {
		return wrap(m, "creating", key, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.objects[key]; ok {
		return wrap(m, "creating", key, fault.As(fault.User, ErrExists))
	}
	m.put(key, data)
	return nil
}

// List implements Store.
func (m *Memory) List(ctx context.Context, prefix, after string) ([]Info, error) {
	if err := ctx.Err(); err != nil {
		return nil, wrap(m, "listing", prefix, fault.As(fault.Lost, err))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Info
	for _, key := range slices.Sorted(maps.Keys(m.objects)) {
		if o := m.objects[key]; strings.HasPrefix(key, prefix) && key > after {
			all = append(all, Info{key, int64(len(o.data)), o.version})
		}
	}
	return all, nil
}

// Delete implements Store.
func (m *Memory) Delete(ctx context.Context, key string) error {
	if err := checkCall(ctx, key); err != nil {
		return wrap(m, "removing", key, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, key)
	return nil
}
