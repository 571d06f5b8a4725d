package rpc

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// BeatEvery is how often a side of a session sends a beat, unless it sends something else: a
// quarter of the time after which the other side has its doubts. ConstructorBeatEvery is that of
// constructors: ranks wait for each of them.
const (
	BeatEvery            = 500 * time.Millisecond
	ConstructorBeatEvery = 200 * time.Millisecond
)

// A role that hears nothing of a planner for silentRounds of listenEvery takes its session for
// broken. A planner that plans for long goes on sending beats; one that is stopped does not.
const (
	listenEvery  = 500 * time.Millisecond
	silentRounds = 5
)

// Beat sends beat at once, so that the other side expects more, and whenever nothing else was sent
// for a while, until ctx ends or sending fails.
func (s *Sender[M]) Beat(ctx context.Context, every time.Duration, beat M) error {
	if err := s.Send(beat); err != nil {
		return err
	}
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for before := s.count.Load(); ; before = s.count.Load() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticks.C:
		}
		if s.count.Load() != before {
			continue
		}
		if err := s.Send(beat); err != nil {
			return err
		}
	}
}

// Beating calls work, which is to be all that is done with the session, and sends beat
// whenever nothing else is sent meanwhile.
func (s *Session[Q, R]) Beating(ctx context.Context, every time.Duration, beat *Q, work func() error) error {
	life, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.sender.Beat(life, every, beat) // whoever receives hears why it failed
	}()
	defer func() {
		stop()
		s.cut() // a beat may wait for room in a stream that nobody reads
		<-ended
	}()
	return work()
}

// isBeat says whether a message of a session is a beat.
func isBeat(m any) bool {
	b, ok := m.(interface{ GetBeat() *pb.Beat })
	return ok && b.GetBeat() != nil
}

// Attention notices that a peer says nothing. It counts rounds, not time: in a process that is
// stopped or starved none pass, so that it does not blame its peers for what it has missed
// itself. It is safe for concurrent use.
type Attention struct {
	every  time.Duration
	limit  atomic.Int32
	silent func(rounds int)
	owed   func() bool // rounds count while the peer owes a word; nil: it always does
	missed atomic.Int32
	most   atomic.Int32 // missed in a row so far
	over   atomic.Bool

	mu    sync.Mutex // guards timer
	timer *time.Timer
}

// Attend calls silent, once, after limit rounds in a row without Heard, with how many that were.
func Attend(every time.Duration, limit int, silent func(rounds int)) *Attention {
	return attend(every, limit, nil, silent)
}

// attend is Attend of a peer that owes a word only at times.
func attend(every time.Duration, limit int, owed func() bool, silent func(rounds int)) *Attention {
	a := &Attention{every: every, silent: silent, owed: owed}
	a.Allow(limit)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer = time.AfterFunc(every, a.round)
	return a
}

// Heard notes that the peer said something, and ends a pause.
func (a *Attention) Heard() { a.missed.Store(0) }

// Allow sets the limit.
func (a *Attention) Allow(limit int) { a.limit.Store(int32(limit)) }

// Pause lets rounds pass until Heard: nobody listens.
func (a *Attention) Pause() { a.missed.Store(math.MinInt32) }

// End ends the attention. silent may be under way.
func (a *Attention) End() {
	a.over.Store(true)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer.Stop()
}

func (a *Attention) round() {
	if a.over.Load() {
		return
	}
	if a.owed != nil && !a.owed() {
		a.missed.Store(-1) // what is owed from now on is owed for a part of the next round
		a.mu.Lock()
		defer a.mu.Unlock()
		a.timer.Reset(a.every)
		return
	}
	missed := a.missed.Add(1)
	a.most.Store(max(a.most.Load(), missed))
	if missed >= a.limit.Load() {
		a.silent(int(missed))
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer.Reset(a.every)
}
