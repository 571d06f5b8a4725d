package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/engine/schedule"
)

// shelf is a disk of a test, with a limit; it may fail, and give back other rows than it was given.
type shelf struct {
	mu     sync.Mutex
	rng    *rand.Rand
	free   int64
	fails  int  // of a hundred writes, and of a hundred reads
	loses  bool // all that is read
	files  int
	writes int
	reads  int
	bad    int // reads that gave something else
}

func (s *shelf) dice() (fails bool, takes time.Duration) {
	return s.rng.IntN(100) < s.fails, time.Duration(s.rng.IntN(3000)) * time.Microsecond
}

func (s *shelf) Reserve(p Partition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free < p.Bytes() {
		return false
	}
	s.free -= p.Bytes()
	return true
}

func (s *shelf) Write(p Partition) (Spilled, error) {
	s.mu.Lock()
	s.writes++
	fails, takes := s.dice()
	if fails {
		s.free += p.Bytes()
	} else {
		s.files++
	}
	s.mu.Unlock()
	time.Sleep(takes)
	if fails {
		return nil, errors.New("no space left on device")
	}
	return &shelved{s, p}, nil
}

type shelved struct {
	shelf *shelf
	part  Partition
}

func (f *shelved) Bytes() int64 { return 5 }

func (f *shelved) Read() (Partition, error) {
	f.shelf.mu.Lock()
	f.shelf.reads++
	fails, takes := f.shelf.dice()
	fails = fails || f.shelf.loses
	other := fails && f.shelf.reads%2 == 0
	if fails {
		f.shelf.bad++
	}
	f.shelf.mu.Unlock()
	time.Sleep(takes)
	switch {
	case other:
		return append(rows{7}, f.part.(rows)...), nil
	case fails:
		return nil, errors.New("the disk is broken")
	}
	return f.part, nil
}

func (f *shelved) Close() {
	f.shelf.mu.Lock()
	defer f.shelf.mu.Unlock()
	f.shelf.files--
	f.shelf.free += f.part.Bytes()
}

// TestSpill: where sources that are collected later fill the store, and the first one has a record that is larger than
// what is kept for it, what waits goes to the disk, and nothing is read twice; without a disk it is.
func TestSpill(t *testing.T) {
	for _, with := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			disk := &shelf{rng: rand.New(rand.NewPCG(1, 1)), free: 1 << 30}
			o := Options{Limit: 1000, Slots: map[string]schedule.Amount{"cpu": 4 * schedule.Slot}}
			if with {
				o.Spill = disk
			}
			e, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			ctx, end := context.WithCancel(t.Context())
			over := make(chan error)
			go func() { over <- e.Run(ctx) }()
			p, err := e.Pipeline([]Stage{{Name: "read", Needs: oneCPU, Partition: 200}})
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			reads := 0
			var work Work
			for k := range 4 {
				work.Sources = append(work.Sources, Source{Read: func(_ context.Context, out *Output) error {
					mu.Lock()
					reads++
					mu.Unlock()
					for range 10 {
						time.Sleep(time.Duration(4-k) * time.Second) // the last source is the fastest
						size := only(100)
						if k == 0 {
							size = 600
						}
						if err := out.Emit(size); err != nil {
							return err
						}
					}
					return nil
				}})
			}
			given := 0
			if err := p.Run(ctx, work, func(int, Partition) error { given++; return nil }); err != nil || given != 40 {
				t.Errorf("%d partitions, %v", given, err)
			}
			u := e.Usage()
			if u.Peak > o.Limit || u.Spilled != 0 || disk.files != 0 {
				t.Errorf("%+v, %d files", u, disk.files)
			}
			if with != (u.Written > 0) || with != (reads == 4) {
				t.Errorf("with a disk %t: %d bytes were written, and sources begun %d times", with, u.Written, reads)
			}
			t.Logf("with a disk %t: %d bytes written, sources begun %d times", with, u.Written, reads)
			end()
			<-over
		})
	}
}

// newShelf is a disk of a setting of the laws.
func newShelf(r *rand.Rand, target int64) *shelf {
	return &shelf{rng: r, free: []int64{2 * target, 1 << 30}[r.IntN(2)], fails: []int{10, 10, 30}[r.IntN(3)]}
}

// ended says what is left of a disk after all runs.
func (s *shelf) ended() error {
	if s.files != 0 {
		return fmt.Errorf("%d of %d files are left", s.files, s.writes)
	}
	return nil
}

// TestSpillIsLost: a disk of which nothing comes back costs a partition that was written there one more attempt, and
// runs end all the same, with what they give without a disk; groups that are gathered included, in a store that holds
// little more.
func TestSpillIsLost(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 11))
		l := randomLaw(r)
		synctest.Test(t, func(t *testing.T) {
			s := &setting{law: &l, slots: 1, limit: l.need() + l.target/2 + r.Int64N(20*l.target), rng: r, lose: 0.03}
			s.shelf = &shelf{rng: rand.New(rand.NewPCG(seed, 1)), free: 1 << 30, loses: true}
			got, _ := s.run(t)
			for i, parts := range got {
				if want := l.want(i); !slices.Equal(slices.Concat(parts...), want) {
					t.Errorf("seed %d, run %d: %d rows, want %d, or others", seed, i, len(slices.Concat(parts...)), len(want))
				}
			}
		})
	}
}
