package memory_test

import (
	"runtime/debug"
	"testing"

	"github.com/millrace-data/millrace/internal/memory"
)

// TestLimit: the collector's limit is what children leave of it, a quarter at the least; without one nothing is set.
func TestLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	memory.Outside(50 << 20)
	if now := debug.SetMemoryLimit(-1); now != before {
		t.Errorf("a limit of %d bytes was set by children", now)
	}
	defer memory.Limit(0)
	for _, step := range []struct{ limit, outside, want int64 }{
		{1 << 30, 0, 1<<30 - 50<<20}, {1 << 30, -50 << 20, 1 << 30}, {1 << 30, 900 << 20, 1 << 28}, {2 << 30, 0, 2<<30 - 900<<20}, {2 << 30, -900 << 20, 2 << 30},
	} {
		memory.Outside(step.outside)
		memory.Limit(step.limit)
		if now := debug.SetMemoryLimit(-1); now != step.want {
			t.Errorf("%+v: %d", step, now)
		}
	}
}

// TestClients: the limit goes up and down with what clients need, in steps, and not beyond the most.
func TestClients(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	memory.Clients(100 << 20)
	if now := debug.SetMemoryLimit(-1); now != before {
		t.Errorf("a limit of %d bytes was set by clients", now)
	}
	memory.Limit(1 << 30)
	defer memory.Limit(0)
	most := int64(0)
	for _, step := range []struct{ clients, most, want int64 }{
		{0, 0, 1<<30 + 100<<20},
		{7 << 20, 0, 1<<30 + 100<<20}, // too little to tell
		{1 << 20, 0, 1<<30 + 108<<20},
		{100 << 20, 1<<30 + 150<<20, 1<<30 + 150<<20},
		{-100 << 20, 1<<30 + 150<<20, 1<<30 + 108<<20},
		{0, 1 << 29, 1 << 30}, // the limit itself stays
		{-108 << 20, 0, 1 << 30},
	} {
		memory.Clients(step.clients)
		if step.most != most {
			most = step.most
			memory.ClientsUpTo(most)
		}
		if now := debug.SetMemoryLimit(-1); now != step.want {
			t.Errorf("%+v: %d", step, now)
		}
	}
}
