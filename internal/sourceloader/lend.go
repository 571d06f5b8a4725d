package sourceloader

import (
	"runtime"
	"sync/atomic"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/samples"
)

const (
	// lentShare is the part of the budget that blocks may have which are lent: they do not leave memory, and all
	// others have to be enough.
	lentShare = 4
	// leastLent is the part of a block that is lent: copying less costs next to nothing, and would keep all of it.
	leastLent = 256
)

// loan is what a set has of a block. It is over when nobody keeps it any more.
type loan struct{ of *lending }

// lending counts the loans of a block. It does not keep the block, which would stay for another cycle of the collector.
type lending struct {
	bytes int64
	loans atomic.Int32
}

// whole is the last step of making a block: it is as large as it gets, and may be lent.
func (b *Block) whole() *Block {
	b.lending = &lending{bytes: b.Bytes()}
	return b
}

// lent says whether steps that are under way have samples of a block in memory, so that nothing is gained if it leaves.
func (e *entry) lent() bool { return e.content.(*Block).lending.count() > 0 }

// count is the number of loans.
func (l *lending) count() int32 {
	if l == nil {
		return 0
	}
	return l.loans.Load()
}

// give puts samples of a block into a set: lent ones, if they may be, or copies.
func (c *cache) give(held content, want *pb.BlockSamples, set *samples.Set, lend bool) error {
	if b, ok := held.(*Block); ok && lend {
		if lent, err := c.lend(b, want, set); lent || err != nil {
			return err
		}
	}
	return held.choose(want, set)
}

// lend gives a constructor of this process samples of a block without a copy, and says whether it may: if enough is
// wanted, and the budget has room for one more block that stays.
func (c *cache) lend(b *Block, want *pb.BlockSamples, set *samples.Set) (lent bool, err error) {
	if err := checkIndices(want.Indices, b.Len()); err != nil {
		return false, err
	}
	if b.lending == nil || 4*int64(b.wanted(want)) < b.lending.bytes/leastLent || !c.takeLoan(b.lending) {
		return false, nil
	}
	l := &loan{b.lending}
	runtime.AddCleanup(l, c.endLoan, b.lending)
	set.Lent, set.Loan = make([][]int32, len(want.Indices)), l
	for k, i := range want.Indices {
		set.Lent[k] = b.Sample(int(i))
	}
	return true, b.chooseBeside(want, set)
}

// takeLoan notes one more loan of a block, if blocks that are lent have no more than their share of the budget.
func (c *cache) takeLoan(l *lending) bool {
	if l.loans.Add(1) > 1 {
		return true // it counts already
	}
	if c.lent.Add(l.bytes) > c.budget/lentShare {
		c.endLoan(l)
		return false
	}
	return true
}

// endLoan notes that a loan is over.
func (c *cache) endLoan(l *lending) {
	if l.loans.Add(-1) == 0 {
		c.lent.Add(-l.bytes)
	}
}
