package sourceloader

import (
	"testing"

	"github.com/millrace-data/millrace/internal/engine/schedule"
)

// TestPace: at equal distance, the next run is that of the source which is consumed twice as fast, also after
// the mix has changed.
func TestPace(t *testing.T) {
	c := newCache(t.Context(), 1<<20, nil, nil)
	floors := map[uint32]uint64{0: 500, 1: 70} // where a job goes on says nothing of a pace
	c.release(floors)
	turn := func(source uint32, number int64) schedule.Turn {
		_, weight := c.turn(source)
		return schedule.Turn{Distance: 4, Weight: weight, Number: number}
	}
	if !schedule.Before(turn(0, 0), turn(1, 1)) || !schedule.Before(turn(1, 0), turn(0, 1)) {
		t.Errorf("nothing was consumed yet, and the turns are %v and %v", turn(0, 0), turn(1, 1))
	}
	for range 2 {
		for fast := range uint32(2) {
			for step := range 6 * paceMemory {
				if step%2 == 0 {
					floors[1-fast]++
				}
				floors[fast]++
				c.release(floors)
			}
			a, b := turn(fast, 1), turn(1-fast, 0)
			if !schedule.Before(a, b) || schedule.Before(b, a) {
				t.Errorf("source %d is consumed twice as fast, and the turns are %v and %v", fast, a, b)
			}
			if ratio := float64(a.Weight) / float64(b.Weight); ratio < 1.7 || ratio > 2.3 {
				t.Errorf("source %d is consumed twice as fast, and has %.2f times the weight", fast, ratio)
			}
		}
	}
	c.release(map[uint32]uint64{0: 3, 1: 3})
	if a := turn(0, 0); a.Weight < 0 {
		t.Errorf("floors that went back gave a weight of %d", a.Weight)
	}
}
