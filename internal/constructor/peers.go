package constructor

import (
	"slices"
	"sync"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/handover"
	"github.com/millrace-data/millrace/internal/placement"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// peers are the loaders, as the planner placed them last. It is safe for concurrent use.
type peers struct {
	directory *handover.Directory

	mu     sync.Mutex // guards the fields below; never held during a call
	now    *view
	logged map[string]time.Time // when the loss of a loader was last logged
	doubts doubts
	pace   pace
}

// peer is a loader. The zero value is nobody.
type peer struct {
	handover.Source
	address string
}

// view is a placement. It is read-only.
type view struct {
	places  []peer
	shadows []peer        // that stand by, by place
	open    []bool        // places whose loader is there, and not in doubt
	placed  []bool        // open, as the planner says
	over    chan struct{} // closed when there is a newer one
}

func newPeers(d *handover.Directory) *peers {
	return &peers{directory: d, logged: map[string]time.Time{}, doubts: newDoubts(), now: &view{over: make(chan struct{})}, pace: newPace()}
}

// set takes in a placement.
func (p *peers) set(order *pb.Placement) {
	v := &view{over: make(chan struct{}), places: make([]peer, len(order.Loaders)), shadows: make([]peer, len(order.Loaders)), open: make([]bool, len(order.Loaders))}
	var of []*peer
	var addresses []string
	add := func(x *peer, address string) {
		if x.address = address; address != "" {
			of, addresses = append(of, x), append(addresses, address)
		}
	}
	for i, address := range order.Loaders {
		add(&v.places[i], address)
		v.open[i] = address != "" && !slices.Contains(order.Suspects, uint32(i))
		if i < len(order.Shadows) {
			add(&v.shadows[i], order.Shadows[i])
		}
	}
	for i, s := range p.directory.Place(addresses) {
		of[i].Source = s
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.show(v)
}

// show puts a view in place of the one before. The lock is held.
func (p *peers) show(v *view) {
	if v.placed == nil {
		v.placed = v.open
	}
	v.open = p.doubts.without(v)
	close(p.now.over)
	p.now = v
}

// refresh shows the same placement after doubts came or went. The lock is held.
func (p *peers) refresh() {
	next := *p.now
	next.over = make(chan struct{})
	p.show(&next)
}

func (p *peers) view() *view {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doubts.over(time.Now()) {
		p.refresh()
	}
	return p.now
}

// wanted are samples of a block, and the place of its loader in the plan.
type wanted struct {
	place int
	*pb.BlockSamples
}

// choose picks whom to ask for a block, leaving out some addresses: the loader of its place;
// who stands by for it; and then the one that it is dealt to, where the planner has it read
// when it learns that the others are lost. ok is false if nobody is left.
func (v *view) choose(b *wanted, open []bool, skip map[string]bool) (x peer, ok bool) {
	i := b.place % len(v.places)
	if open[i] {
		return v.places[i], true
	}
	if s := v.shadows[i]; s.Source != nil && !skip[s.address] {
		return s, true
	}
	if other := placement.Deal(b.Source, b.Seq, open); other != placement.None {
		return v.places[other], true
	}
	for k := range v.places { // those in doubt, too
		if x := v.places[(i+k)%len(v.places)]; x.Source != nil && !skip[x.address] {
			return x, true
		}
	}
	return peer{}, false
}

// openBut are the open places without some addresses.
func (v *view) openBut(skip map[string]bool) []bool {
	if len(skip) == 0 {
		return v.open
	}
	open := slices.Clone(v.open)
	for i := range open {
		open[i] = open[i] && !skip[v.places[i].address]
	}
	return open
}

// group are blocks that one loader is asked for, by their numbers in the request.
type group struct {
	peer
	blocks []int
}

// route groups blocks by whom to ask for them. The error, if there is nobody, is of class
// fault.Lost.
func (v *view) route(blocks []wanted, skip map[string]bool) (groups []group, err error) {
	if len(v.places) == 0 {
		return nil, fault.Lostf("no loader is connected to the planner")
	}
	at, open := map[string]int{}, v.openBut(skip)
	for k := range blocks {
		x, ok := v.choose(&blocks[k], open, skip)
		if !ok {
			return nil, fault.Lostf("all %d loaders were asked", len(v.places))
		}
		i, known := at[x.address]
		if !known {
			i = len(groups)
			at[x.address] = i
			groups = append(groups, group{peer: x})
		}
		groups[i].blocks = append(groups[i].blocks, k)
	}
	return groups, nil
}

// parts divides blocks into those that are fetched together.
func (v *view) parts(blocks []wanted) (parts [][]int) {
	groups, err := v.route(blocks, nil)
	if err != nil { // nobody is there yet
		groups = []group{{}}
		for b := range blocks {
			groups[0].blocks = append(groups[0].blocks, b)
		}
	}
	for _, g := range groups {
		parts = append(parts, g.blocks)
	}
	return parts
}

// lostLogEvery is the time between two log lines about a loader that stays lost.
const lostLogEvery = 30 * time.Second

// shouldLog reports whether the loss of a loader was not logged for a while, and notes that it
// is now.
func (p *peers) shouldLog(address string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last, ok := p.logged[address]; ok && now.Sub(last) < lostLogEvery {
		return false
	}
	p.logged[address] = now
	return true
}
