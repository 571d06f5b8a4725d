package rpc

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// held are the words of a call that waits for some time, and after how long each was said. The reason changes once.
func held(rounds int, waits, changes time.Duration) (words []string, at []time.Duration) {
	began := time.Now()
	var mu sync.Mutex // guards words and at
	reason := func() *pb.Waiting {
		if time.Since(began) >= changes {
			return &pb.Waiting{Reason: "another one"}
		}
		return &pb.Waiting{Reason: "one", IdleMs: uint64(time.Since(began).Milliseconds())}
	}
	say := func(w *pb.Waiting) error {
		mu.Lock()
		defer mu.Unlock()
		words, at = append(words, w.Reason), append(at, time.Since(began))
		return nil
	}
	_ = Holding(rounds, reason, say, func() error { time.Sleep(waits); return nil })
	mu.Lock()
	defer mu.Unlock()
	return words, at
}

// TestHolding: who waits hears a word in a third of the time after which it gives up, or a tenth of the time that it has waited,
// however many callers there are, hears of another reason soon, and of thousands of callers each hears no more than that takes.
func TestHolding(t *testing.T) {
	t.Parallel()
	for callers, most := range map[int]int{1: 70, 1024: 50, 4096: 25} {
		t.Run(fmt.Sprintf("callers=%d", callers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rounds, changes := RoundsAmong(callers), 25*time.Second+time.Millisecond
				words, at := held(rounds, 40*time.Second, changes)
				last := time.Duration(0)
				for i, now := range at {
					limit := time.Duration(max(rounds, roundsAfter(quietRounds, last))) * waitingEvery
					if now-last > max(limit/3, pauseAfter(now))+time.Millisecond {
						t.Errorf("nothing was said from %v to %v, of a silence of %v", last, now, limit)
					}
					if first := i > 0 && words[i] != words[i-1]; first && now-changes > max(limit/9, waitingMost) {
						t.Errorf("another reason came %v late", now-changes)
					}
					last = now
				}
				if !slices.Contains(words, "another one") || len(words) > most {
					t.Errorf("%d words, want at most %d, and both reasons: %v", len(words), most, words)
				}
			})
		})
	}
}

// TestWatchFirst: before the first word there is more time, and none of it after.
func TestWatchFirst(t *testing.T) {
	t.Parallel()
	for _, words := range []int{0, 1} {
		t.Run(fmt.Sprintf("words=%d", words), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, fell := time.Now(), make(chan error, 1)
				w := NewWatch("unix:c", quietRounds, func() bool { return true }, func(err error) { fell <- err })
				defer w.End()
				rounds := firstRounds
				for range words {
					w.Heard(false)
					rounds = quietRounds
				}
				if err := <-fell; !isSilent(err) || time.Since(began) != time.Duration(rounds)*waitingEvery {
					t.Errorf("given up after %v: %v", time.Since(began), err)
				}
			})
		})
	}
}

// TestWatchListens: a line whose server asks for more rounds is given up after those, and not before.
func TestWatchListens(t *testing.T) {
	t.Parallel()
	for said, rounds := range map[uint32]time.Duration{0: quietRounds, 35: 35, 9999: mostRounds} {
		t.Run(fmt.Sprintf("rounds=%d", said), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, fell := time.Now(), make(chan error, 1)
				w := NewWatch("unix:c", Rounds(said), func() bool { return true }, func(err error) { fell <- err })
				defer w.End()
				for range 3 { // answers, and words that say Waiting, change nothing of it
					time.Sleep(waitingEvery)
					w.Heard(true)
					w.Heard(false)
					w.Heard(false)
				}
				heard := time.Since(began)
				err := <-fell
				if took := time.Since(began) - heard; took < (rounds-1)*waitingEvery || took > (rounds+2)*waitingEvery || !isSilent(err) {
					t.Errorf("given up after %v: %v", took, err)
				}
			})
		})
	}
}
