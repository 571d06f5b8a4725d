package sourceloader

import (
	"weak"

	"github.com/millrace-data/millrace/internal/sourceloader/order"
)

// A source of one chunk has the same records in every epoch, read in the same order;
// only the shuffle is another. So while the block of one epoch is in memory, that of
// another is made of it, and shares its samples, without opening a file. Such a source
// may give several whole epochs to every step.

// reuseLimit is how many samples such a block has at most. Of more, one reading costs
// little beside what is done with them, and their places would take more memory than
// they are worth.
const reuseLimit = 4096

// remember keeps the places of the samples in a block that others can be made of.
func (b *Block) remember(o *order.Order, places []order.Place) {
	if o.Layout.Chunks() == 1 && len(places) <= reuseLimit {
		b.places = places
	}
}

// reuse makes block seq of block b of the same source: what Read gives for it. It
// returns nil if b is nil, or not one that others can be made of. Both are read-only;
// each counts what they share as its own.
func (s *Source) reuse(b *Block, seq int64, bans Bans) *Block {
	if b == nil || b.places == nil {
		return nil
	}
	next := *b
	next.arrange(&s.Order, seq, b.places, bans)
	return next.sealed()
}

// lastBlock is the block of a source that was made last, if anyone still has it: it keeps
// no memory from being let go of.
func (l *lazySource) lastBlock() *Block {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last.Value()
}

func (l *lazySource) setLast(b *Block) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = weak.Make(b)
}
