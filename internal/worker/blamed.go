package worker

import (
	"hash/maphash"
	"sync"
)

// blamed are rows that are why their workers ended. A block is read again so that what is wrong with its data is sure, in the
// next epoch, and where memory is short: the same row would take its timeouts each time.
type blamed struct {
	mu     sync.Mutex
	known  map[blamedRow]blamedFor
	digest maphash.Seed
}

// mostBlamed bounds the rows that a function remembers, at some 100 bytes each: more are bad than a job goes on with.
const mostBlamed = 10_000

type blamedRow struct {
	file int
	key
}

type blamedFor struct {
	digest uint64 // of what the row is
	death  *Death
}

// find is why a row of these, the only one, is known to end its workers; nil if it is not.
func (b *blamed) find(f *Function, r rows) *Death {
	b.mu.Lock()
	found, known := b.known[r.blamedRow()]
	b.mu.Unlock()
	if !known || found.digest != maphash.Bytes(b.digest, f.encoded(r)) {
		return nil
	}
	return found.death
}

// add remembers the only row of these.
func (b *blamed) add(f *Function, r rows, d *Death) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known == nil {
		b.known, b.digest = map[blamedRow]blamedFor{}, maphash.MakeSeed()
	}
	if len(b.known) < mostBlamed {
		b.known[r.blamedRow()] = blamedFor{maphash.Bytes(b.digest, f.encoded(r)), d}
	}
}

func (b *blamed) none() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.known) == 0
}

func (r rows) blamedRow() blamedRow {
	row, part := r.of.in.Key(r.of.place(r.lo))
	return blamedRow{r.file, key{row, int64(part)}}
}

func (f *Function) encoded(r rows) []byte {
	data := make([]byte, f.size(r))
	encode(data, r.columns, f.in, r.lo, r.hi, r.keys)
	return data
}

// refuse makes bad records of the rows of a call that are known to end their workers. It says whether there are any.
func (f *Function) refuse(r rows) (any bool, err error) {
	if f.blamed.none() {
		return false, nil
	}
	for one := r; one.lo < r.hi; one.lo++ {
		one.hi = one.lo + 1
		d := f.blamed.find(f, one)
		if d == nil {
			continue
		}
		done, err := f.blame(one, d)
		if err != nil {
			return false, err
		}
		any = true
		r.of.errs[r.of.place(one.lo)] = done.bad[0].err
	}
	return any, nil
}
