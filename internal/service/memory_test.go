package service_test

import (
	"bytes"
	"log/slog"
	"math"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/cgroup"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/sizing"
)

// TestLimitMemory checks that a budget becomes the process's limit, unless the
// environment has one.
func TestLimitMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	t.Setenv("GOMEMLIMIT", "")
	job := parse(t, t.TempDir(), keptSpec)
	budget := service.Budget(job, 2, 1)
	if want := 2*job.Resources.LoaderBuffer + job.Resources.ConstructorBuffer; budget != want {
		t.Errorf("budget %d, want %d", budget, want)
	}
	service.LimitMemory(budget)
	if limit := debug.SetMemoryLimit(-1); limit <= budget || limit > budget+64<<20 {
		t.Errorf("limit %d for a budget of %d: the collector does not see the program, which is some 50 MB of the 96 MiB beside it", limit, budget)
	}
	debug.SetMemoryLimit(math.MaxInt64)
	t.Setenv("GOMEMLIMIT", "1GiB")
	service.LimitMemory(budget)
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		t.Errorf("GOMEMLIMIT was overruled: %d", limit)
	}
}

// TestProcesses: of loaders that come and go each has the memory of a process beside its budget.
func TestProcesses(t *testing.T) {
	o := service.Options{Job: parse(t, t.TempDir(), keptSpec), Executable: "millrace", Loaders: 2, Shadows: 1, Constructors: 1}
	if n := o.Roles().Processes; n != 5 {
		t.Errorf("%d processes, want 5: a planner, two loaders, a shadow and a constructor", n)
	}
	o.Scale.Most = 6
	if n := o.Roles().Processes; n != 9 {
		t.Errorf("%d processes, want 9: up to 6 loaders", n)
	}
	o.Layout = &sizing.Layout{Loaders: make([]sizing.Loader, 7)}
	if n := o.Roles().Processes; n != 10 {
		t.Errorf("%d processes, want 10: the layout has 7 loaders", n)
	}
}

// TestMemory: roles get what they ask for if all of them fit, and else in proportion to it; with what the collector
// does not see and a sixteenth for the kernel they stay below the limit.
func TestMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	t.Setenv("GOMEMLIMIT", "")
	const mib = 1 << 20
	both := service.Roles{Buffers: 1280 * mib}
	apart := both
	apart.Processes = 4
	for _, c := range []struct {
		name                string
		limit               int64
		roles               service.Roles
		loader, constructor int64
		said                int
	}{
		{"all fits", 4096 * mib, both, 512 * mib, 256 * mib, 0},
		{"a quarter of it", (320 + 96) * mib * 16 / 15, both, 128 * mib, 64 * mib, 2},
		{"processes", (320 + 4*96) * mib * 16 / 15, apart, 128 * mib, 64 * mib, 2},
		{"next to nothing", 64 * mib, both, 16 * mib, 16 * mib, 2},
		{"one role", 1024 * mib, service.Roles{Loader: 1}, 512 * mib, 16 * mib, 1},
		{"one role, little", (100 + 96) * mib * 16 / 15, service.Roles{Constructor: 1}, 16 * mib, 100 * mib, 2},
	} {
		var said bytes.Buffer
		m := service.NewMemory(c.limit, c.roles, slog.New(slog.NewTextHandler(&said, nil)))
		loader, constructor := m.Loader(512*mib), m.Constructor(256*mib)
		if max(loader-c.loader, c.loader-loader, constructor-c.constructor, c.constructor-constructor) > 16 {
			t.Errorf("%s: %d and %d bytes, want %d and %d", c.name, loader, constructor, c.loader, c.constructor)
		}
		if n := strings.Count(said.String(), "by=--memory"); n != c.said {
			t.Errorf("%s: it is said %d times that a buffer is smaller, want %d: %s", c.name, n, c.said, said.String())
		}
		if tight := strings.Contains(said.String(), "the kernel may end it"); tight != (c.limit < service.LeastMemory) {
			t.Errorf("%s: %s", c.name, said.String())
		}
		if limit := debug.SetMemoryLimit(-1); limit <= loader+constructor || limit > loader+constructor+64*mib {
			t.Errorf("%s: the collector's limit is %d for %d and %d bytes", c.name, limit, loader, constructor)
		}
	}
	none := service.NewMemory(0, both, slog.New(slog.DiscardHandler))
	if group, err := cgroup.Read(); err == nil && group.Memory == 0 && none.Loader(1<<50) != 1<<50 {
		t.Error("a buffer is made smaller, though nothing limits this process")
	}
}
