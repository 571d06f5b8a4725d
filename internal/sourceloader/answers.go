package sourceloader

import (
	"context"
	"runtime"

	"golang.org/x/sync/semaphore"

	"github.com/millrace-data/millrace/internal/samples"
)

// What is taken for answers to fetches counts in the cache as long as it is held, so that blocks go to the
// disk for it: a step's pixels can be as much as all blocks. Pixels are reserved before they are decoded, for
// all blocks of a fetch at once, and fetches wait for one another where theirs together are too many.

// pixelsShare is the part of a loader's memory that pixels of several fetches may take. One fetch may take
// more, while no other decodes.
const pixelsShare = 2

// atOnce is the most memory that is taken without a word to Go's collector, which works while memory is
// taken bit by bit: what is taken at once comes on top of its limit.
const atOnce = 16 << 20

// pixels are the bytes that fetches may decode at a time.
type pixels struct {
	most int64
	free *semaphore.Weighted // first come, first served
}

func newPixels(budget int64) pixels {
	most := max(budget/pixelsShare, 1)
	return pixels{most, semaphore.NewWeighted(most)}
}

// reserve waits until these bytes are free, and takes them; free gives them back. Its error is that of ctx.
func (p *pixels) reserve(ctx context.Context, bytes int64) (free func(), err error) {
	n := min(bytes, p.most)
	if err := p.free.Acquire(ctx, n); err != nil {
		return nil, err
	}
	return func() { p.free.Release(n) }, nil
}

// holding is what an answer takes. It is for one goroutine.
type holding struct {
	cache *cache
	bytes int64
	free  func() // of its pixels; nil if there are none
}

// take counts bytes, for which blocks go to the disk.
func (h *holding) take(bytes int64) {
	h.bytes += bytes
	h.cache.grow(bytes, 0, anywhere) // an answer that finds no room is given all the same: the job waits for it
}

// takePixels reserves and counts those of a fetch.
func (h *holding) takePixels(ctx context.Context, bytes int64) (err error) {
	if bytes == 0 {
		return nil
	}
	if h.free, err = h.cache.pixels.reserve(ctx, bytes); err != nil {
		return err
	}
	h.take(bytes)
	if bytes > atOnce {
		runtime.GC() // of the blocks that left for them, and the last answer; it costs a hundredth of the decoding
	}
	return nil
}

// end gives back what was taken. It may be called again, and of nil.
func (h *holding) end() {
	if h == nil {
		return
	}
	if h.bytes != 0 {
		h.cache.count(-h.bytes)
		h.bytes = 0
	}
	if h.free != nil {
		h.free()
		h.free = nil
	}
}

// setBytes is the memory that the samples of an answer take, but for what is lent.
func setBytes(s *samples.Set) int64 {
	n := 4*int64(len(s.Tokens)+len(s.Offsets)) + 24*int64(len(s.Lent))
	for _, column := range s.Kept {
		for _, v := range column {
			n += int64(len(v)) + 24
		}
	}
	for _, bounds := range s.Masked {
		n += 4*int64(len(bounds)) + 24
	}
	for _, list := range s.Images {
		for i := range list {
			n += int64(len(list[i].Data)+len(list[i].Origin)) + imageBytes
		}
	}
	return n
}
