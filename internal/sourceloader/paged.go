package sourceloader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"

	"google.golang.org/protobuf/proto"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/samples"
	"github.com/millrace-data/millrace/internal/sourceloader/spill"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
)

// paged is a block that neither memory nor the local disk has room for. What is known of
// its samples is in memory, and a page of them, a run in the order that they come in, is
// read from the source when one of them is asked for. That is slow, but it holds the
// limits. It is safe for concurrent use.
type paged struct {
	shape
	cache  *cache
	pass   func(visit) error // reads the block
	told   []byte            // what the planner learns of the block
	place  []int32           // of each sample in reading order: which one of the block it is
	bounds []uint32          // the first sample of each page, and how many there are
	turn   chan struct{}     // holds one token, for who reads a page
	gone   bool              // nobody will ask for it any more; guarded by the lock of pages
}

// visit is called with each sample of a block that is read, which is the last one of b. It
// is number at in reading order.
type visit func(b *Block, at int)

// A page is an eighth of the budget, and pages of all blocks take half of it: what is
// asked for at a time lies close together, but constructors are a few steps apart.
const (
	pageShare  = 8
	pagesShare = 2
)

// page is some samples of a block, as spilled has them in records.
type page struct {
	first   uint32
	samples [][]byte
	images  [][][]byte // of each sample
	bytes   int64
}

// pageKey names a page.
type pageKey struct {
	block  *paged
	number int
}

// pages are those in memory, of all paged blocks of a cache.
type pages struct {
	most  int64      // bytes
	mu    sync.Mutex // guards the fields below
	held  map[pageKey]*page
	used  []pageKey // the one that was used last at the end
	bytes int64
}

// get returns a page that is in memory, or nil.
func (p *pages) get(key pageKey) *page {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.used, key); i >= 0 {
		p.used = append(slices.Delete(p.used, i, i+1), key)
	}
	return p.held[key]
}

// put adds a page, in place of those that were not used for longest. It returns the bytes that
// are not taken any more.
func (p *pages) put(key pageKey, next *page) (freed int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if key.block.gone {
		return next.bytes
	}
	p.held[key], p.used = next, append(p.used, key)
	for p.bytes += next.bytes; p.bytes > p.most && len(p.used) > 1; {
		freed += p.drop(p.used[0])
	}
	return freed
}

// drop lets go of a page.
func (p *pages) drop(key pageKey) (freed int64) {
	freed = p.held[key].bytes
	delete(p.held, key)
	p.used = slices.DeleteFunc(p.used, func(k pageKey) bool { return k == key })
	p.bytes -= freed
	return freed
}

// forget lets go of a block's pages, for good. It returns the bytes that are not taken any more.
func (p *pages) forget(b *paged) (freed int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.gone = true
	for _, key := range slices.Clone(p.used) {
		if key.block == b {
			freed += p.drop(key)
		}
	}
	return freed
}

// readPaged reads a block for what is known of it, and leaves its samples where they are.
func (s *Source) readPaged(ctx context.Context, st store.Store, worker *transform.Worker, bans Bans, w *window) (content, *Block, error) {
	w.restart()
	var sizes []uint32
	before := w.total
	r, err := s.scan(ctx, st, worker, w, func(*Block, int) {
		sizes, before = append(sizes, uint32(w.total-before)), w.total
	})
	if err != nil {
		return nil, nil, err
	}
	b := r.finish(int64(w.id.seq), bans)
	p, err := newPaged(b, w, sizes)
	if err != nil {
		return nil, nil, err
	}
	p.pass = func(each visit) error { return s.pass(st, p, w.id, each) }
	return p, b, nil
}

// newPaged is the block that was read within w, whose samples have these sizes in reading order.
func newPaged(b *Block, w *window, sizes []uint32) (*paged, error) {
	p := &paged{shape: b.shape(), cache: w.cache, place: make([]int32, b.Len()), turn: make(chan struct{}, 1)}
	p.turn <- struct{}{}
	for i, at := range b.Order {
		p.place[at] = int32(i)
	}
	p.bounds = boundsOf(b.Order, sizes, w.cache.budget/pageShare)
	report := b.Report(w.id.source, w.id.seq)
	report.Bytes = uint64(w.total + orderBytes*int64(b.Len()))
	var err error
	p.told, err = proto.Marshal(report)
	return p, err
}

// boundsOf divides samples in their order into pages of at most some bytes, or of one sample.
func boundsOf(order []int32, sizes []uint32, most int64) []uint32 {
	bounds, bytes := []uint32{0}, int64(0)
	for i, at := range order {
		size := int64(sizes[at])
		if bytes > 0 && bytes+size > most {
			bounds, bytes = append(bounds, uint32(i)), 0
		}
		bytes += size
	}
	return append(bounds, uint32(len(order)))
}

// pass reads a block once more, for whoever wants samples of it: for as long as the loader lives.
func (s *Source) pass(st store.Store, p *paged, id blockID, each visit) error {
	w := &window{cache: p.cache, id: id, paged: true}
	defer func() { w.count(0) }()
	r, err := s.scan(p.cache.base, st, s.Chain.Worker(), w, each)
	if err != nil {
		return missing(err)
	}
	p.cache.reread()
	return p.sameAs(r)
}

// sameAs makes sure that a reading gave what the first one did.
func (p *paged) sameAs(r *reading) error {
	if r.block.sum != p.sum {
		return fmt.Errorf("a block of source %q is not what it was when it was read first: %w", r.source.Spec.Name, spill.ErrUnreadable)
	}
	return nil
}

// scan reads all samples of a block, keeping none.
func (s *Source) scan(ctx context.Context, st store.Store, worker *transform.Worker, w *window, each visit) (*reading, error) {
	r := s.reading(worker, w)
	r.visit = each
	return r, r.chunks(ctx, st, int64(w.id.seq))
}

// Bytes is the memory that is taken, without the pages, which count by themselves.
func (p *paged) Bytes() int64 {
	return int64(len(p.told)) + 4*int64(cap(p.place)+cap(p.bounds))
}

func (p *paged) checksum() uint64 { return p.sum }

func (p *paged) report(blockID) (*pb.BlockRead, error) {
	r := &pb.BlockRead{}
	return r, proto.Unmarshal(p.told, r)
}

// choose is Block's; what it gives is the caller's.
func (p *paged) choose(want *pb.BlockSamples, set *samples.Set) error {
	if err := checkIndices(want.Indices, len(p.place)); err != nil {
		return err
	}
	p.begin(set, len(want.Indices))
	data, page := dataWanted(want), p.page
	if p.scattered(want.Indices) {
		page = p.pick(want.Indices)
	}
	for k, i := range want.Indices {
		at, err := page(i)
		if err != nil {
			return err
		}
		if _, err := p.add(set, k, at.samples[i-at.first]); err != nil {
			return err
		}
		for _, number := range data[i] {
			if int(number) >= len(set.Images[k]) {
				break // eachWanted says so
			}
			if err := imageOf(at.images[i-at.first][number], &set.Images[k][number]); err != nil {
				return err
			}
		}
	}
	return eachWanted(want, set, func(int, int) {})
}

// dataWanted are the images whose data is wanted, by sample.
func dataWanted(want *pb.BlockSamples) map[uint32][]uint32 {
	data := map[uint32][]uint32{}
	for n, i := range want.ImageSample {
		if n < len(want.ImageNumber) {
			data[i] = append(data[i], want.ImageNumber[n])
		}
	}
	return data
}

// key names the page that sample i is on.
func (p *paged) key(i uint32) pageKey {
	return pageKey{p, sort.Search(len(p.bounds), func(k int) bool { return p.bounds[k] > i }) - 1}
}

// scattered says whether samples are on two or more pages that are not in memory.
func (p *paged) scattered(indices []uint32) bool {
	first, missing := pageKey{}, 0
	for _, i := range indices {
		if key := p.key(i); key != first && p.cache.pages.get(key) == nil {
			first, missing = key, missing+1
		}
	}
	return missing > 1
}

// pick reads samples of several pages at once, each as a page of its own that is not kept:
// whoever asks for them has them in memory anyway.
func (p *paged) pick(indices []uint32) func(uint32) (*page, error) {
	picked := make(map[uint32]*page, len(indices))
	for _, i := range indices {
		picked[i] = &page{first: i, samples: make([][]byte, 1), images: make([][][]byte, 1)}
	}
	<-p.turn
	defer func() { p.turn <- struct{}{} }()
	err := p.pass(func(b *Block, at int) {
		if at >= len(p.place) {
			return
		}
		if n := picked[uint32(p.place[at])]; n != nil {
			n.take(b, at, 0)
		}
	})
	return func(i uint32) (*page, error) { return picked[i], err }
}

// page returns the page that sample i is on.
func (p *paged) page(i uint32) (*page, error) {
	key := p.key(i)
	if at := p.cache.pages.get(key); at != nil {
		return at, nil
	}
	<-p.turn
	defer func() { p.turn <- struct{}{} }()
	if at := p.cache.pages.get(key); at != nil {
		return at, nil
	}
	return p.load(key)
}

// load reads a page. What it takes is counted before it is taken.
func (p *paged) load(key pageKey) (*page, error) {
	first, end := p.bounds[key.number], p.bounds[key.number+1]
	next := &page{first: first, samples: make([][]byte, end-first), images: make([][][]byte, end-first)}
	expected := p.cache.budget / pageShare
	p.cache.grow(expected, 0, anywhere)
	err := p.pass(func(b *Block, at int) {
		if at >= len(p.place) {
			return // the sum says that it is another block
		}
		if i := uint32(p.place[at]); i >= first && i < end {
			next.take(b, at, i-first)
		}
	})
	if err == nil && slices.ContainsFunc(next.samples, func(s []byte) bool { return s == nil }) {
		err = errors.New("a page of a block lacks samples whose checksum it has")
	}
	if err != nil {
		p.cache.count(-expected)
		return nil, err
	}
	p.cache.count(next.bytes - expected)
	p.cache.count(-p.cache.pages.put(key, next))
	return next, nil
}

// take copies a sample that was read, which is number at in reading order.
func (n *page) take(b *Block, at int, i uint32) {
	n.samples[i] = b.appendSample(nil, at, 0)
	n.bytes += int64(len(n.samples[i])) + 48
	if !b.hasImages {
		return
	}
	for k := range b.images[at] {
		data := appendImage(nil, &b.images[at][k])
		n.images[i] = append(n.images[i], data)
		n.bytes += int64(len(data)) + 24
	}
}
