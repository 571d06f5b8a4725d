package sourceloader

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/engine/schedule"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
)

// heap is a pool's, as a test says.
type heap struct{ held, pressed atomic.Int64 }

func (h *heap) Held() int64 { return h.held.Load() }

func (h *heap) Press(_ any, on bool) {
	if on {
		h.pressed.Add(1)
	} else {
		h.pressed.Store(0)
	}
}

// TestHeaps: what processes hold counts in the loader's memory, up to half of that; beyond it they are pressed, and
// at the end nothing is left of it.
func TestHeaps(t *testing.T) {
	life, end := context.WithCancel(t.Context())
	c := newCache(life, 1000, noDisk, nil)
	x, err := newExecutor(life, c, 1)
	if err != nil {
		t.Fatal(err)
	}
	one, two := &heap{}, &heap{}
	x.uses(transform.Pool{Name: "one", Heap: one})
	x.uses(transform.Pool{Name: "two", Heap: two})
	x.uses(transform.Pool{Name: "one", Heap: one})
	for _, step := range []struct{ one, two, counted, pressed int64 }{
		{0, 0, 0, 0}, {100, 0, 100, 0}, {100, 250, 350, 0}, {400, 250, 500, 1}, {500, 0, 500, 0}, {0, 30, 30, 0}, {5000, 0, 500, 1},
	} {
		one.held.Store(step.one)
		two.held.Store(step.two)
		held, until := int64(-1), time.Now().Add(20*time.Second)
		for time.Now().Before(until) {
			if held, _, _ = c.usage(); held == step.counted && one.pressed.Load() == step.pressed && two.pressed.Load() == step.pressed {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		if held != step.counted || one.pressed.Load() != step.pressed || two.pressed.Load() != step.pressed {
			t.Fatalf("%+v: %d bytes count, pressed %d and %d", step, held, one.pressed.Load(), two.pressed.Load())
		}
	}
	end()
	<-x.over
	if held, _, _ := c.usage(); held != 0 || one.pressed.Load() != 0 {
		t.Errorf("%d bytes are left", held)
	}
}

// reader gives records without end, and says what it holds.
type reader struct {
	format.Reader
	held int64
}

func (r *reader) Next() (*format.Record, error) { return &format.Record{}, nil }
func (r *reader) Held() int64                   { return r.held }
func (r *reader) Close() error                  { return nil }

// TestReadersCount: what a reader holds counts while it is open, within a step, and nothing is left of it.
func TestReadersCount(t *testing.T) {
	c := newCache(t.Context(), 1<<20, noDisk, nil)
	file := &reader{}
	r := (&window{cache: c}).counting(file)
	for _, step := range []struct{ held, want int64 }{{300 << 10, 300 << 10}, {310 << 10, 300 << 10}, {5 << 20, 5 << 20}, {100, 100}} {
		file.held = step.held
		for range heldEvery {
			if _, err := r.Next(); err != nil {
				t.Fatal(err)
			}
		}
		if held, _, _ := c.usage(); held != step.want {
			t.Errorf("%d bytes count of a reader that holds %d, want %d", held, step.held, step.want)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if held, _, _ := c.usage(); held != 0 || (*window)(nil).counting(file) != format.Reader(file) {
		t.Errorf("%d bytes are left", held)
	}
}

// TestSeats: when more help with the calls of a pool, the engine has more of them under way, and fewer when they leave.
func TestSeats(t *testing.T) {
	life, end := context.WithCancel(t.Context())
	x, err := newExecutor(life, newCache(life, 1000, noDisk, nil), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { end(); <-x.over }()
	var seats atomic.Int64
	seats.Store(2)
	if _, err := x.slotsOf(transform.Pool{Name: "python", Slots: 2, Seats: func() int { return int(seats.Load()) }}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{10, 3, 0, 5} {
		seats.Store(n)
		for until := time.Now().Add(20 * time.Second); x.looked()[0].last != int(max(n, 1)); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("%d seats, and the engine has %d", n, x.looked()[0].last)
			}
		}
	}
	if err := x.Resize(t.Context(), "none", schedule.Slot); err == nil {
		t.Error("a resource that is not there was resized")
	}
}
