package store

import (
	"context"
	"sync/atomic"
)

// Metered counts opens and reads of another Store. It is safe for
// concurrent use if that Store is; the counts never go down.
type Metered struct {
	Store
	opens, open, reads, bytes atomic.Int64
}

// Meter holds the counts of a Metered store.
type Meter struct {
	Opens int64 // successful opens
	Open  int64 // handles not closed yet
	Reads int64 // calls of ReadAt
	Bytes int64 // bytes those calls returned
}

// NewMetered wraps st.
func NewMetered(st Store) *Metered { return &Metered{Store: st} }

// Meter returns the counts so far.
func (m *Metered) Meter() Meter {
	return Meter{m.opens.Load(), m.open.Load(), m.reads.Load(), m.bytes.Load()}
}

// Open implements Store.
func (m *Metered) Open(ctx context.Context, obj Object) (Handle, error) {
	h, err := m.Store.Open(ctx, obj)
	if err != nil {
		return nil, err
	}
	m.opens.Add(1)
	m.open.Add(1)
	return &meteredHandle{Handle: h, meter: m}, nil
}

type meteredHandle struct {
	Handle
	meter *Metered
	done  atomic.Bool
}

func (h *meteredHandle) ReadAt(p []byte, off int64) (int, error) {
	n, err := h.Handle.ReadAt(p, off)
	h.meter.reads.Add(1)
	h.meter.bytes.Add(int64(n))
	return n, err
}

func (h *meteredHandle) Close() error {
	if !h.done.Swap(true) {
		h.meter.open.Add(-1)
	}
	return h.Handle.Close()
}
