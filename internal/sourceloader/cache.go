package sourceloader

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-data/millrace/internal/memory"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/samples"
	"github.com/millrace-data/millrace/internal/sourceloader/spill"
)

// blockID names a block.
type blockID struct {
	source uint32
	seq    uint64
}

// content is what a block gives: a *Block, which is in memory, or a *spilled or *paged, whose
// methods may fail with spill.ErrUnreadable.
type content interface {
	// Bytes is the memory that it takes.
	Bytes() int64
	// report is what the planner learns of the block.
	report(blockID) (*pb.BlockRead, error)
	// checksum is that of all its samples; the same for every reading of the same data.
	checksum() uint64
	// choose puts the samples that are wanted into a set, whose memory is used again.
	choose(*pb.BlockSamples, *samples.Set) error
}

// cache holds blocks: as many as a byte budget allows in memory, those that are
// needed after them on the local disk. Blocks that are being read count as well: see
// window; and answers to fetches, see holding. Whatever it lets go of can be read again, so
// budget and disk can delay a batch and never change one. Reads of the same block
// are joined. It is safe for concurrent use.
type cache struct {
	base      context.Context // of reads: a caller that leaves must not break those who joined it
	budget    int64
	window    int64                                           // see windowOf
	disk      *spill.Disk                                     // of blocks
	batchDisk *spill.Disk                                     // of batches between stages, see batchSpill; nil without resources.spill
	read      func(context.Context, *window) (content, error) // the window's block
	work      atomic.Uint64                                   // records that were read
	left      *sync.Cond                                      // of mu: a block that was leaving has arrived
	pages     *pages
	pixels    pixels // that are decoded for fetches
	room      *memory.Room
	alone     func(bytes, most int64) // see memory.Options; may be nil
	lent      atomic.Int64            // bytes of blocks that are lent

	mu              sync.Mutex // guards the fields below, never held during a read or a write
	held            int64      // bytes of memory
	leaving         int64      // of them, of blocks that leave
	entries         map[blockID]*entry
	floors          map[uint32]uint64 // by source: blocks before it are not needed
	paces           map[uint32]int64  // by source: see move
	sizes           map[uint32]int64  // by source: bytes that its last block took
	seen            map[blockID]bool  // blocks that were read before and not released
	blocks, rereads uint64            // blocks read; of them, read again
}

// request asks for a block.
type request struct {
	id       blockID
	released *atomic.Bool // set when the planner, who asks, has released the block; nil: a constructor asks
}

// errReleased says that the planner has released a block that it had asked for.
var errReleased = errors.New("the block was released")

// entry is a block that is held, or being read.
type entry struct {
	done    chan struct{} // closed when content or err is set
	content content
	err     error
	leaving bool                    // see leaver
	fetches int                     // while it is read: constructors that wait for it
	stop    context.CancelCauseFunc // ends the reading
	file    atomic.Pointer[string]  // that is being read
	begun   time.Time               // to be read
}

// inMemory says whether a block is in memory, to stay there.
func (e *entry) inMemory() bool { _, ok := e.content.(*Block); return ok && !e.leaving }

// onDisk says whether a block is on the disk only.
func (e *entry) onDisk() bool { _, ok := e.content.(*spilled); return ok }

func newCache(base context.Context, budget int64, disk *spill.Disk, read func(context.Context, *window) (content, error)) *cache {
	c := &cache{
		base:    base,
		budget:  budget,
		window:  windowOf(budget),
		disk:    disk,
		pages:   &pages{most: budget / pagesShare, held: map[pageKey]*page{}},
		pixels:  newPixels(budget),
		read:    read,
		entries: map[blockID]*entry{},
		floors:  map[uint32]uint64{},
		sizes:   map[uint32]int64{},
		seen:    map[blockID]bool{},
	}
	c.left = sync.NewCond(&c.mu)
	c.room = c.newRoom()
	return c
}

// use calls do with a block, once more if what was kept of it on the disk turns out
// to be gone. What do takes of it may be used after the block was let go of.
func (c *cache) use(ctx context.Context, r request, do func(content) error) error {
	for {
		held, err := c.get(ctx, r)
		if err != nil {
			return err
		}
		if err := do(held); !errors.Is(err, spill.ErrUnreadable) {
			return err
		}
		c.lose(r.id, held)
	}
}

// get returns a block, reading it if it is not held. It fails with errReleased if the block
// was released after it was asked for and before it was read.
func (c *cache) get(ctx context.Context, r request) (content, error) {
	c.mu.Lock()
	if r.released != nil && r.released.Load() {
		c.mu.Unlock()
		return nil, errReleased
	}
	e, ok := c.entries[r.id]
	var life context.Context
	if !ok {
		e = &entry{done: make(chan struct{}), begun: time.Now()}
		life, e.stop = context.WithCancelCause(c.base)
		c.entries[r.id] = e
	}
	if r.released == nil {
		e.fetches++
	}
	c.mu.Unlock()
	if !ok {
		defer e.stop(nil)
		return c.fill(life, r.id, e)
	}
	select {
	case <-e.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return e.content, e.err
}

// fill reads a block into its entry, and makes room for it. A read that failed is
// forgotten, so that the next one tries again. It returns what was read, which may be on the
// disk by now.
func (c *cache) fill(ctx context.Context, id blockID, e *entry) (content, error) {
	w := &window{cache: c, id: id, entry: e}
	w.begin()
	held, err := c.read(ctx, w)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // whatever an ended reading fails with says nothing of the block
	}
	var gone files
	defer gone.close()
	c.mu.Lock()
	c.held -= w.counted
	if e.err = err; err == nil {
		e.content = held
	}
	if size := w.total + w.stays; err == nil && size > 0 {
		c.sizes[id.source] = size
	}
	close(e.done)
	switch {
	case c.entries[id] != e: // it was let go of while it was read
		gone.add(held)
		if p, ok := held.(*paged); ok {
			c.pages.forget(p)
		}
	case err != nil:
		delete(c.entries, id)
	default:
		c.blocks++
		if c.seen[id] {
			c.rereads++
		}
		c.seen[id] = true
		c.held += held.Bytes()
	}
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	c.shrink(id)
	return held, nil
}

// count counts more bytes of blocks that are being read, or fewer.
func (c *cache) count(bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held += bytes
}

// reread counts a block that was read again.
func (c *cache) reread() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rereads++
}

// grow counts more bytes of a block that is being read, before they are taken. For them,
// blocks in memory go to the disk that have at least `least` bytes, and are further ahead
// than `beyond` blocks. It says whether there is room.
func (c *cache) grow(bytes, least, beyond int64) bool {
	c.count(bytes)
	for {
		c.mu.Lock()
		for c.held > c.budget && c.leaving > 0 {
			c.left.Wait()
		}
		c.mu.Unlock()
		l, over := c.leave(blockID{}, least, beyond)
		if !over {
			return true
		}
		if l.block == nil || !c.depart(l) {
			return false
		}
	}
}

// shrink makes the budget hold again, after block last was read. The largest blocks
// go to the disk: few files, and the many small ones stay where they cost nothing.
// If the disk cannot take one, the block in memory that is needed last is let go of.
func (c *cache) shrink(last blockID) {
	for {
		l, over := c.leave(last, 0, anywhere)
		if !over || l.block == nil { // what is on the disk takes a little memory, too
			return
		}
		if !c.depart(l) {
			c.dropFurthest(last)
		}
	}
}

// depart writes a block to the disk and says whether that took it.
func (c *cache) depart(l leaver) bool {
	kept, err := c.spill(l)
	if err != nil {
		c.arrive(l, l.block)
		return false
	}
	if !c.arrive(l, kept) {
		kept.file.Close()
	}
	return true
}

// leaver is a block on its way out of memory. Until it has arrived, the one in
// memory is used.
type leaver struct {
	id    blockID
	entry *entry
	block *Block
}

// anywhere is in place of how far ahead a block has to be.
const anywhere = math.MinInt64

// leave picks the block that is to leave memory next, if one has to: of those of at least
// `least` bytes that are further ahead than `beyond` blocks, if there are any.
func (c *cache) leave(last blockID, least, beyond int64) (l leaver, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held-c.leaving <= c.budget {
		return l, false
	}
	eligible := func(id blockID, e *entry) bool {
		return e.inMemory() && !e.lent() && e.content.Bytes() >= least && c.ahead(id) > beyond
	}
	id, e := c.most(last, eligible, func(_ blockID, e *entry) int64 { return e.content.Bytes() })
	if e == nil {
		return l, true
	}
	l = leaver{id, e, e.content.(*Block)}
	e.leaving = true
	c.leaving += l.block.Bytes()
	return l, true
}

// spill writes a block to the disk.
func (c *cache) spill(l leaver) (*spilled, error) {
	bytes := l.block.Bytes() // no less than a file of it takes
	if err := c.roomFor(l.id, func() error { return c.disk.Reserve(bytes) }); err != nil {
		return nil, err
	}
	return l.block.spillTo(c.disk, l.id, bytes)
}

// roomFor reserves room on the disk for a block, in place of such that are needed after
// it if there is none.
func (c *cache) roomFor(id blockID, reserve func() error) error {
	err := reserve()
	for errors.Is(err, spill.ErrFull) && c.makeRoom(id) {
		err = reserve()
	}
	return err
}

// arrive puts content in the place of a block that was leaving, unless that was
// let go of meanwhile.
func (c *cache) arrive(l leaver, content content) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.left.Broadcast()
	l.entry.leaving = false
	c.leaving -= l.block.Bytes()
	c.held -= l.block.Bytes()
	if c.entries[l.id] != l.entry {
		return false
	}
	l.entry.content = content
	c.held += content.Bytes()
	return true
}

// makeRoom lets go of the block on the disk that is needed last, if block id is
// needed before it.
func (c *cache) makeRoom(id blockID) bool {
	var gone files
	defer gone.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	victim, e := c.furthest(id, (*entry).onDisk)
	if e == nil || c.ahead(victim) <= c.ahead(id) {
		return false
	}
	c.drop(victim, &gone)
	return true
}

// dropFurthest lets go of the block in memory that is needed last; of equals it is
// not the one just read.
func (c *cache) dropFurthest(last blockID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id, e := c.furthest(last, (*entry).inMemory); e != nil {
		c.drop(id, nil)
	}
}

// ahead is how far a block is from where its source is.
func (c *cache) ahead(id blockID) int64 { return int64(id.seq) - int64(c.floors[id.source]) }

func (c *cache) furthest(last blockID, eligible func(*entry) bool) (blockID, *entry) {
	return c.most(last, func(_ blockID, e *entry) bool { return eligible(e) }, func(id blockID, _ *entry) int64 { return c.ahead(id) })
}

// most finds the entry, of those that are eligible, with the greatest key; of equals
// the one that is furthest ahead, then one that is not last, then by source.
func (c *cache) most(last blockID, eligible func(blockID, *entry) bool, key func(blockID, *entry) int64) (victim blockID, found *entry) {
	var greatest [4]int64
	for id, e := range c.entries {
		if !eligible(id, e) {
			continue
		}
		rank := [4]int64{key(id, e), c.ahead(id), 1, int64(id.source)}
		if id == last {
			rank[2] = 0
		}
		if found == nil || slices.Compare(rank[:], greatest[:]) > 0 {
			victim, found, greatest = id, e, rank
		}
	}
	return victim, found
}

// drop lets go of a block, unless it is being read.
func (c *cache) drop(id blockID, gone *files) {
	e := c.entries[id]
	if e == nil || e.content == nil {
		return
	}
	delete(c.entries, id)
	if e.leaving {
		return // arrive counts it
	}
	c.held -= e.content.Bytes()
	if p, ok := e.content.(*paged); ok {
		c.held -= c.pages.forget(p)
	}
	if gone != nil {
		gone.add(e.content)
	}
}

// lose lets go of a block whose file could not be read.
func (c *cache) lose(id blockID, held content) {
	var gone files
	defer gone.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[id]; e != nil && e.content == held {
		c.drop(id, &gone)
	}
}

// forget lets go of all blocks of a source that were read or are being read.
func (c *cache) forget(source uint32) {
	c.forgetAll(func(id blockID) bool { return id.source == source })
}

// close lets go of everything. It is called when base has ended.
func (c *cache) close() { c.forgetAll(func(blockID) bool { return true }) }

func (c *cache) forgetAll(of func(blockID) bool) {
	var gone files
	defer gone.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.entries {
		if of(id) {
			c.drop(id, &gone)
			delete(c.entries, id)
		}
	}
}

// release lets go of all blocks of some sources that are before a seq, by source. One that
// is being read is read on only for a constructor that waits for it, and is not kept.
func (c *cache) release(before map[uint32]uint64) {
	var gone files
	defer gone.close()
	var stop []context.CancelCauseFunc
	c.mu.Lock()
	c.move(before)
	for id, e := range c.entries {
		if id.seq >= before[id.source] {
			continue
		}
		c.drop(id, &gone)
		if delete(c.entries, id); e.content == nil && e.fetches == 0 {
			stop = append(stop, e.stop)
		}
	}
	maps.DeleteFunc(c.seen, func(id blockID, _ bool) bool { return id.seq < before[id.source] })
	c.mu.Unlock()
	for _, s := range stop {
		s(errReleased)
	}
}

// abandon ends the reading of blocks that no constructor waits for: the planner, which had asked
// for them, asks others. A constructor that comes later has its block read, and joins nothing that ends.
func (c *cache) abandon() {
	var stop []context.CancelCauseFunc
	c.mu.Lock()
	for id, e := range c.entries {
		if e.content == nil && e.fetches == 0 {
			delete(c.entries, id)
			stop = append(stop, e.stop)
		}
	}
	c.mu.Unlock()
	for _, s := range stop {
		s(errReleased)
	}
}

// usage describes the cache: bytes of memory held, blocks read, and blocks read again.
func (c *cache) usage() (held int64, blocks, rereads uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held, c.blocks, c.rereads
}
