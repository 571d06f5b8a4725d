package format

import "sync/atomic"

// A batch of numbers has columns that say the same of each value. Those are shared by all
// batches, so that making one costs what its numbers cost.

// maxShared bounds shared slices, in values: 4 MiB of places. Longer ones are the batch's own.
const maxShared = 1 << 20

// Shared is a slice that many batches have the beginning of. The zero value is empty, and it
// is safe for concurrent use.
type Shared[T any] struct{ made atomic.Pointer[[]T] }

// First returns the first n elements, which make gives by their place. They are read-only;
// what is appended to them is written elsewhere.
func (s *Shared[T]) First(n int, element func(i int) T) []T {
	if made := s.made.Load(); made != nil && n <= len(*made) {
		return (*made)[:n:n]
	}
	more := 1 << 10
	for more < n && more < maxShared {
		more *= 2
	}
	all := make([]T, max(n, more))
	for i := range all {
		all[i] = element(i)
	}
	if n <= maxShared {
		s.made.Store(&all) // a longer one of another goroutine's is made again when it is needed
	}
	return all[:n:n]
}

var ordinals Shared[int32]

// Ordinals returns the numbers from 0 to below n, read-only.
func Ordinals(n int) []int32 { return ordinals.First(n, func(i int) int32 { return int32(i) }) }
