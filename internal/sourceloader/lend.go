package sourceloader

import (
	"context"
	"runtime"
	"sync/atomic"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/samples"
)

const (
	// lentShare is the part of the budget that blocks may have which are lent: they do not leave memory, and all
	// others have to be enough.
	lentShare = 4
	// leastLent is the part of a block that is lent: copying less costs next to nothing, and would keep all of it.
	leastLent = 256
	// shortest is how many tokens samples have on average that are lent: shorter ones are copied in less time than it takes
	// to say where each lies, and then lie together.
	shortest = 32
)

// loan is what the sets of one answer have of blocks. It is over when nobody keeps it any more.
type loan struct{ of []*lending }

// lending counts the loans of a block. It does not keep the block, which would stay for another cycle of the collector.
type lending struct {
	bytes int64
	loans atomic.Int32
}

// Samples implements handover.Source. Its errors are those that Fetch's caller
// would see. What it returns is the caller's, and counts in the loader no more.
func (l *Loader) Samples(ctx context.Context, req *pb.FetchRequest) ([]samples.Set, error) {
	sets := make([]samples.Set, len(req.Blocks))
	var at atomic.Int64
	defer rpc.Saying(ctx, l.address, l.waiting(req, &at))()
	lent := &loan{}
	held, err := l.gather(ctx, req, sets, &at, lent)
	l.cache.endWith(lent)
	held.end()
	if err != nil {
		return nil, rpc.FromStatus(rpc.ToStatus(err))
	}
	return sets, nil
}

// sealed ends the making of a block: it is as large as it gets, and may be lent.
func (b *Block) sealed() *Block {
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

// give puts samples of a block into a set: copies, or with a loan lent ones, if they may be.
func (c *cache) give(held content, want *pb.BlockSamples, set *samples.Set, l *loan) error {
	b, ok := held.(*Block)
	if !ok || l == nil {
		return held.choose(want, set)
	}
	if err := checkIndices(want.Indices, b.Len()); err != nil {
		return err
	}
	if tokens := b.wanted(want); tokens < shortest*len(want.Indices) || !c.lend(b, tokens) {
		return b.choose(want, set)
	}
	l.of = append(l.of, b.lending)
	set.Lent, set.Loan = make([][]int32, len(want.Indices)), l
	for k, i := range want.Indices {
		set.Lent[k] = b.Sample(int(i))
	}
	return b.chooseBeside(want, set)
}

// lend notes one more loan of a block and says true, if enough of it is wanted, and blocks that are lent have no more than
// their share of the budget.
func (c *cache) lend(b *Block, wanted int) bool {
	l := b.lending
	switch {
	case l == nil || 4*int64(wanted) < l.bytes/leastLent:
		return false
	case l.loans.Add(1) > 1:
		return true // it counts already
	case c.lent.Add(l.bytes) <= c.budget/lentShare:
		return true
	}
	c.endLoans([]*lending{l})
	return false
}

// endWith has all that a loan has of blocks end with it.
func (c *cache) endWith(l *loan) {
	if len(l.of) > 0 {
		runtime.AddCleanup(l, c.endLoans, l.of)
	}
}

// endLoans notes that loans are over.
func (c *cache) endLoans(of []*lending) {
	for _, l := range of {
		if l.loans.Add(-1) == 0 {
			c.lent.Add(-l.bytes)
		}
	}
}
