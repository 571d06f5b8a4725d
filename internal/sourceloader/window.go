package sourceloader

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/sourceloader/spill"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
)

// A block may be much larger than memory: a compressed file is one chunk. So what a
// block takes is counted before it is taken, also while the block is read, and one that
// finds no room goes on with its samples so far on the disk. Nobody waits for another
// block to be read, only for one that is being written.

const (
	// mostWindow and leastWindow bound what each block that is read may hold whatever the
	// budget, and the step in which it asks for more: a sixteenth of the budget. A
	// MiB is a write that any disk likes, and most blocks of small sources are smaller.
	mostWindow  = 1 << 20
	leastWindow = 4 << 10
	// placeBytes is what a sample takes until its block is read, also if it is on the
	// disk: its span, place and record, and what puts all of them in order.
	placeBytes = 64
	// orderBytes is what a sample of a block in memory takes beside what is in it.
	orderBytes = 20
	// pageSamples is how many samples a page of a spilled block tells the records of.
	pageSamples = 1 << 10
)

// window is the part of a block in memory while the block is read. Its zero value may
// not be used, but nil holds everything and counts nothing. It is for one goroutine.
type window struct {
	cache   *cache
	id      blockID
	entry   *entry        // that the block is read for
	held    int64         // bytes of the samples in memory
	stays   int64         // bytes that all samples take until the block is read
	total   int64         // bytes of all samples and their images, wherever they are
	counted int64         // in the cache
	full    bool          // the disk takes nothing of this block
	paged   bool          // its samples are not kept
	file    *spill.Writer // nil while all of the block is in memory
	records []uint32      // in file, of the samples in reading order
	buf     []byte
}

// windowOf is the window of blocks that are read within a budget.
func windowOf(budget int64) int64 { return max(min(budget/16, mostWindow), leastWindow) }

// errNotTaken says that the disk took a part of a block and then no more.
var errNotTaken = errors.New("the local disk did not take all of a block")

// readWithin reads a block as Read does, with as much of it in memory at a time as the
// window's cache has room for. If the disk does not take the rest, the block is
// paged. What the reading found, the block says, wherever its samples are.
func (s *Source) readWithin(ctx context.Context, st store.Store, worker *transform.Worker, bans Bans, w *window) (content, *Block, error) {
	c, found, err := s.tryWithin(ctx, st, worker, bans, w)
	if errors.Is(err, errNotTaken) && ctx.Err() == nil {
		return s.readPaged(ctx, st, worker, bans, w)
	}
	return c, found, err
}

func (s *Source) tryWithin(ctx context.Context, st store.Store, worker *transform.Worker, bans Bans, w *window) (c content, found *Block, err error) {
	defer func() {
		if err != nil {
			w.discard()
		}
	}()
	r := s.reading(worker, w)
	if err := r.chunks(ctx, st, int64(w.id.seq)); err != nil {
		return nil, nil, err
	}
	c, err = r.end(bans)
	return c, r.block, err
}

// end returns the block, all of whose chunks were read, in memory or on the disk.
func (r *reading) end(bans Bans) (content, error) {
	w := r.window
	if w.file == nil {
		return r.finish(int64(w.id.seq), bans), nil
	}
	if err := w.write(r.block); err != nil {
		return nil, err
	}
	return w.finish(r.finish(int64(w.id.seq), bans))
}

// reads notes the file that is read next.
func (w *window) reads(file *string) {
	if w != nil && w.entry != nil {
		w.entry.file.Store(file)
	}
}

// worked notes that a record was read.
func (w *window) worked() {
	if w != nil {
		w.cache.work.Add(1)
	}
}

// add makes room for a sample that block b is about to take.
func (w *window) add(b *Block, s *transform.Sample) error {
	if w == nil {
		return nil
	}
	bytes, images := sampleBytes(s)
	w.total += bytes + images
	if w.paged {
		bytes = 0 // it is let go of before the next one is read
	}
	if w.reserve(bytes, placeBytes+images) || w.paged {
		return nil
	}
	if w.full {
		return w.inMemory()
	}
	w.held -= bytes // it is not in the block yet
	err := w.write(b)
	w.held += bytes
	return err
}

// sampleBytes is the memory of a sample in a block: of what can leave it, and of what is
// known of its images.
func sampleBytes(s *transform.Sample) (bytes, images int64) {
	bytes = 4 * int64(len(s.Tokens))
	if len(s.Masked) > 0 {
		bytes += 4*int64(len(s.Masked)) + 24
	}
	for _, v := range s.Extras {
		bytes += int64(len(v)) + 24
	}
	for i := range s.Images {
		bytes += int64(len(s.Images[i].Data))
		images += imageBytes
	}
	return bytes, images
}

// begin counts what the block may take, before it is read: as much as the last one of its
// source, or a window if there was none. Blocks that are needed later go to the disk for it;
// if that is not enough, the window counts all the same.
func (w *window) begin() {
	c := w.cache
	c.mu.Lock()
	expected, known := c.sizes[w.id.source]
	ahead := c.ahead(w.id)
	c.mu.Unlock()
	if !known {
		expected = c.window
	}
	w.counted = expected
	if !c.grow(expected, expected, ahead) && expected > c.window {
		w.count(c.window)
	}
}

// reserve counts what a sample takes, and says whether there is room for it.
func (w *window) reserve(bytes, stays int64) bool {
	w.held += bytes
	w.stays += stays
	window := w.cache.window
	lacks := w.held + w.stays - w.counted
	if lacks <= 0 {
		return true
	}
	step := (lacks + window - 1) / window * window
	w.counted += step
	return w.cache.grow(step, w.total, anywhere) // if larger ones do not make room, the block itself has to go
}

// write puts the samples that are in memory on the disk.
func (w *window) write(b *Block) error {
	if err := w.open(w.held + placeBytes*int64(len(b.spans)-b.gone)); err != nil {
		if w.file == nil {
			w.full = true
			return w.inMemory()
		}
		return fmt.Errorf("%w: %w", errNotTaken, err)
	}
	for at := b.gone; at < len(b.spans); at++ {
		if err := w.writeSample(b, at); err != nil {
			return fmt.Errorf("%w: %w", errNotTaken, err)
		}
	}
	b.forgetSamples()
	w.held = 0
	w.count(w.stays + w.cache.window)
	return nil
}

// inMemory has a block go on in memory that the disk takes nothing of, if it is no larger than
// a page would be.
func (w *window) inMemory() error {
	if w.total > w.cache.budget/pageShare {
		return errNotTaken
	}
	return nil
}

// open reserves bytes in the window's file, and makes that if there is none.
func (w *window) open(bytes int64) (err error) {
	if w.file != nil {
		return w.cache.roomFor(w.id, func() error { return w.file.Reserve(bytes) })
	}
	if err := w.cache.roomFor(w.id, func() error { return w.cache.disk.Reserve(bytes) }); err != nil {
		return err
	}
	w.file, err = w.cache.disk.Create(bytes)
	return err
}

// writeSample writes a sample and its images.
func (w *window) writeSample(b *Block, at int) error {
	w.records = append(w.records, w.file.Len())
	w.buf = b.appendSample(w.buf[:0], at, uint64(w.file.Len())+1)
	if err := w.file.Add(w.buf); err != nil || !b.hasImages {
		return err
	}
	for k := range b.images[at] {
		w.buf = appendImage(w.buf[:0], &b.images[at][k])
		if err := w.file.Add(w.buf); err != nil {
			return err
		}
	}
	return nil
}

// forgetSamples lets go of what was written of the block. The memory of the tokens is
// used again.
func (b *Block) forgetSamples() {
	for at := b.gone; b.hasImages && at < len(b.images); at++ {
		for k := range b.images[at] {
			b.images[at][k].Data, b.images[at][k].Origin = nil, ""
		}
	}
	b.gone = len(b.spans)
	for c := range b.kept {
		clear(b.kept[c])
		b.kept[c] = b.kept[c][:0]
	}
	clear(b.masked)
	b.masked = b.masked[:0]
	b.tokens.forget()
}

// finish ends the file of a block, all of whose samples are in it.
func (w *window) finish(b *Block) (content, error) {
	s := b.onDisk()
	report := b.Report(w.id.source, w.id.seq)
	report.Bytes = uint64(w.total + orderBytes*int64(b.Len()))
	last, err := proto.Marshal(report)
	if err != nil {
		return nil, err
	}
	s.pages = w.file.Len()
	if err = w.writePages(b.Order, int64(len(last))); err == nil {
		s.last = w.file.Len()
		err = w.file.Add(last)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotTaken, err)
	}
	s.file, err = w.file.Finish()
	w.file = nil
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotTaken, err)
	}
	return s, nil
}

// writePages writes where the samples are, in their order, and leaves room for more bytes.
func (w *window) writePages(order []int32, more int64) error {
	if err := w.open(int64(len(order))*5 + more); err != nil {
		return err
	}
	for first := 0; first < len(order); first += pageSamples {
		w.buf = w.buf[:0]
		for _, at := range order[first:min(first+pageSamples, len(order))] {
			w.buf = binary.LittleEndian.AppendUint32(w.buf, w.records[at])
		}
		if err := w.file.Add(w.buf); err != nil {
			return err
		}
	}
	return nil
}

// count sets what the cache counts of the window.
func (w *window) count(bytes int64) {
	w.cache.count(bytes - w.counted)
	w.counted = bytes
}

// discard lets go of what is on the disk.
func (w *window) discard() {
	if w.file != nil {
		w.file.Discard()
		w.file = nil
	}
}

// restart makes the window ready for the same block, whose samples are not kept now.
func (w *window) restart() {
	w.count(0)
	*w = window{cache: w.cache, id: w.id, entry: w.entry, paged: true}
}
