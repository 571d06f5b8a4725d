package sourceloader

import (
	"context"
	"math"
	"sync"
)

// blockID names a block.
type blockID struct {
	source uint32
	seq    uint64
}

// cache holds blocks under a byte budget. Whatever it lets go of can be read
// again, so the budget can delay a batch and never change one. Reads of the same
// block are joined. It is safe for concurrent use.
type cache struct {
	base   context.Context // of reads: a caller that leaves must not break those who joined it
	budget int64
	read   func(context.Context, blockID) (*Block, error)

	mu       sync.Mutex // guards the fields below, never held during a read
	held     int64
	entries  map[blockID]*entry
	released map[uint32]uint64 // by source: blocks before it are not needed
	seen     map[blockID]bool  // blocks that were read before and not released
	blocks   uint64            // blocks read
	rereads  uint64            // of them, read again
}

type entry struct {
	done  chan struct{} // closed when block and err are set
	block *Block
	err   error
}

func newCache(base context.Context, budget int64, read func(context.Context, blockID) (*Block, error)) *cache {
	return &cache{
		base:     base,
		budget:   budget,
		read:     read,
		entries:  map[blockID]*entry{},
		released: map[uint32]uint64{},
		seen:     map[blockID]bool{},
	}
}

// get returns a block, reading it if it is not held. The block may be used after
// it was let go of.
func (c *cache) get(ctx context.Context, id blockID) (*Block, error) {
	c.mu.Lock()
	e, ok := c.entries[id]
	if !ok {
		e = &entry{done: make(chan struct{})}
		c.entries[id] = e
	}
	c.mu.Unlock()
	if !ok {
		c.fill(id, e)
	}
	select {
	case <-e.done:
		return e.block, e.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fill reads a block into its entry. A read that failed is forgotten, so that
// the next one tries again.
func (c *cache) fill(id blockID, e *entry) {
	block, err := c.read(c.base, id)
	c.mu.Lock()
	defer c.mu.Unlock()
	e.block, e.err = block, err
	close(e.done)
	if c.entries[id] != e {
		return // it was forgotten while it was read
	}
	if err != nil {
		delete(c.entries, id)
		return
	}
	c.blocks++
	if c.seen[id] {
		c.rereads++
	}
	c.seen[id] = true
	c.held += block.Bytes()
	c.shrink(id)
}

// shrink lets go of blocks until the budget holds: those furthest ahead in
// their source's order first, since they are needed last, and of equals the one
// just read last. That one goes too if it alone is over the budget.
func (c *cache) shrink(last blockID) {
	for c.held > c.budget {
		var victim blockID
		most := int64(math.MinInt64)
		for id, e := range c.entries {
			if e.block == nil {
				continue // being read
			}
			ahead := 2 * (int64(id.seq) - int64(c.released[id.source]))
			if id == last {
				ahead--
			}
			if ahead > most || (ahead == most && id.source > victim.source) {
				victim, most = id, ahead
			}
		}
		c.drop(victim)
	}
}

func (c *cache) drop(id blockID) {
	if e := c.entries[id]; e != nil && e.block != nil {
		c.held -= e.block.Bytes()
		delete(c.entries, id)
	}
}

// forget lets go of all blocks of a source that were read or are being read.
func (c *cache) forget(source uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.entries {
		if id.source == source {
			c.drop(id)
			delete(c.entries, id)
		}
	}
}

// release lets go of all blocks of a source before seq `before`.
func (c *cache) release(source uint32, before uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released[source] = before
	for id := range c.entries {
		if id.source == source && id.seq < before {
			c.drop(id)
		}
	}
	for id := range c.seen {
		if id.source == source && id.seq < before {
			delete(c.seen, id)
		}
	}
}

// usage describes the cache: bytes held, blocks read, and blocks read again.
func (c *cache) usage() (held int64, blocks, rereads uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held, c.blocks, c.rereads
}
