package service_test

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/millrace-data/millrace/internal/service"
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
