package constructor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/samples"
)

// loader answers after a time; its samples say who it is. A loader that takes no time never
// answers.
type loader struct {
	name  int32
	takes time.Duration
	err   error

	mu    sync.Mutex // guards the fields below
	asked []uint64   // blocks
	ended int        // calls that were cancelled
}

func (l *loader) Samples(ctx context.Context, req *pb.FetchRequest) ([]samples.Set, error) {
	l.mu.Lock()
	for _, b := range req.Blocks {
		l.asked = append(l.asked, b.Seq)
	}
	l.mu.Unlock()
	var done <-chan time.Time
	if l.takes > 0 {
		done = time.After(l.takes)
	}
	select {
	case <-done:
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ended++
		return nil, fault.As(fault.Lost, ctx.Err())
	}
	if l.err != nil {
		return nil, l.err
	}
	sets := make([]samples.Set, len(req.Blocks))
	for i, b := range req.Blocks {
		sets[i] = samples.Set{Tokens: []int32{l.name, int32(b.Seq)}, Offsets: []int32{0, 2}}
	}
	return sets, nil
}

// bench is a constructor with loaders by place, and who stands by for the first place.
type bench struct {
	*Constructor
	loaders []*loader
	shadow  *loader
}

func newBench(takes ...time.Duration) *bench {
	b := &bench{Constructor: &Constructor{peers: newPeers(nil), opts: Options{Log: slog.New(slog.DiscardHandler)}}}
	for i, d := range takes {
		b.loaders = append(b.loaders, &loader{name: int32(i), takes: d})
	}
	b.place()
	return b
}

// place shows the constructor its loaders; those of some places are in doubt.
func (b *bench) place(doubt ...int) {
	v := &view{over: make(chan struct{})}
	for i, l := range b.loaders {
		v.places, v.shadows, v.open = append(v.places, peer{l, fmt.Sprint("l", i, ".", l.name)}), append(v.shadows, peer{}), append(v.open, true)
	}
	if b.shadow != nil {
		v.shadows[0] = peer{b.shadow, "shadow"}
	}
	for _, i := range doubt {
		v.open[i] = false
	}
	b.peers.mu.Lock()
	defer b.peers.mu.Unlock()
	b.peers.show(v)
}

// get fetches blocks of place 0, and says who gave each and how long it took.
func (b *bench) get(ctx context.Context, seqs ...uint64) (by []int32, took time.Duration, err error) {
	var blocks []wanted
	for _, s := range seqs {
		blocks = append(blocks, wanted{0, &pb.BlockSamples{Seq: s}})
	}
	begin := time.Now()
	sets, err := b.fetchFrom(ctx, blocks)
	for i, s := range sets {
		if s.Tokens[1] != int32(seqs[i]) {
			return nil, 0, fmt.Errorf("block %d in place of %d", s.Tokens[1], seqs[i])
		}
		by = append(by, s.Tokens[0])
	}
	return by, time.Since(begin), err
}

const never = 0

// TestHedge: a second loader is asked when the first is late, once; the first whole answer
// counts, and the other call ends.
func TestHedge(t *testing.T) {
	for _, test := range []struct {
		name   string
		takes  []time.Duration
		shadow time.Duration // -1: there is none
		by     int32
		took   time.Duration
		hedged uint64
	}{
		{"in time", []time.Duration{400 * time.Millisecond, 1, 1}, -1, 0, 400 * time.Millisecond, 0},
		{"never", []time.Duration{never, 10 * time.Millisecond, 10 * time.Millisecond}, 20 * time.Millisecond, 9, 520 * time.Millisecond, 1},
		{"late, the hedge is later", []time.Duration{700 * time.Millisecond, 1, 1}, time.Second, 0, 700 * time.Millisecond, 1},
		{"alone", []time.Duration{5 * time.Second}, -1, 0, 5 * time.Second, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(test.takes...)
			if test.shadow >= 0 {
				b.shadow = &loader{name: 9, takes: test.shadow}
				b.place()
			}
			by, took, err := b.get(t.Context(), 7)
			if err != nil || by[0] != test.by || took != test.took {
				t.Errorf("%s: %v gave it after %v, %v", test.name, by, took, err)
			}
			b.attempts.Wait() // none is left behind
			if p := b.peers.pace; p.made != test.hedged || (p.won == 1) != (test.by != 0) {
				t.Errorf("%s: %d hedges, %d won", test.name, p.made, p.won)
			}
		})
	}
}

// TestLostAtOnce: where a loader is lost the next is asked at once, and it is the one that the
// planner deals the block to.
func TestLostAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(1, 10*time.Millisecond, 10*time.Millisecond)
		b.loaders[0].err = fault.Lostf("it was killed")
		seqs := []uint64{0, 1, 2, 3, 4, 5, 6, 7}
		before, took, err := b.get(t.Context(), seqs...)
		if err != nil || took > 11*time.Millisecond {
			t.Fatalf("after %v: %v", took, err)
		}
		b.place(0)
		after, _, err := b.get(t.Context(), seqs...)
		if fmt.Sprint(before) != fmt.Sprint(after) || err != nil {
			t.Errorf("when the loader was lost %v gave the blocks, when the planner knew it %v (%v)", before, after, err)
		}
		if text := fmt.Sprint(after); !strings.Contains(text, "1") || !strings.Contains(text, "2") {
			t.Errorf("all blocks went to one loader: %s", text)
		}
		for _, l := range b.loaders[1:] {
			l.err = b.loaders[0].err
		}
		ctx, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		if _, _, err = b.get(ctx, 1); fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), "it was killed") {
			t.Errorf("all are lost: %v", err)
		}
		if n := len(b.loaders[0].asked); n > 200 {
			t.Errorf("a loader was asked %d times in a minute", n)
		}
		b.loaders[0].err = errors.New("this cannot be")
		b.place()
		if _, _, err = b.get(t.Context(), 1); fault.ClassOf(err) != fault.Bug || !strings.Contains(err.Error(), "block 1 from loader l0.0: this cannot be") {
			t.Errorf("an error that is not a loss: %v", err)
		}
	})
}

// TestFollow: what is under way goes to where the planner says that the loader's place is now,
// whatever the budget of hedges, and to whoever comes when nobody was there.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(never, never)
		b.peers.pace.hedges = 0
		go func() {
			time.Sleep(2 * time.Second)
			b.place(1) // nothing that this fetch is about
			time.Sleep(time.Second)
			b.loaders[0] = &loader{name: 5, takes: time.Millisecond}
			b.place(1)
		}()
		if by, took, err := b.get(t.Context(), 7); err != nil || by[0] != 5 || took != 3*time.Second+time.Millisecond {
			t.Errorf("%v gave it after %v, %v", by, took, err)
		}
		if p := b.peers.pace; p.moved != 1 || p.made != 0 {
			t.Errorf("%d moved, %d hedged", p.moved, p.made)
		}
		b = newBench()
		go func() {
			time.Sleep(10 * time.Second)
			b.loaders = []*loader{{takes: time.Millisecond}}
			b.place()
		}()
		if _, took, err := b.get(t.Context(), 7); err != nil || took != 10*time.Second+time.Millisecond {
			t.Errorf("the first loader gave it after %v, %v", took, err)
		}
	})
}

// TestHedgeBudget: however slow all loaders are, few fetches are hedged, and patience adapts.
func TestHedgeBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow, fetches = 900 * time.Millisecond, 1000
		b := newBench(slow, slow, slow)
		for i := range uint64(fetches) {
			if _, took, err := b.get(t.Context(), i); err != nil || took != slow {
				t.Fatalf("%v, %v", took, err)
			}
			b.attempts.Wait()
		}
		if p := b.peers.pace; p.made > hedgeBurst || p.made == 0 || p.patience != 2*slow {
			t.Errorf("%d of %d fetches are hedged; patience is %v", p.made, fetches, p.patience)
		}
		for i := range uint64(fetches) { // one loader never answers
			b.loaders[0].takes = never
			ctx, end := context.WithTimeout(t.Context(), 4*time.Second)
			_, _, _ = b.get(ctx, i)
			end()
		}
		if p := b.peers.pace; p.made > hedgeBurst+fetches*2*hedgeShare {
			t.Errorf("%d of %d fetches are hedged", p.made, 2*fetches)
		}
	})
}
