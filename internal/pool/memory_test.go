package pool

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/worker"
)

// TestMemory: a limit that decides which rows are left out decides the same in a pool.
func TestMemory(t *testing.T) {
	dir := modules(t, code+`
import numpy as np

@millrace.transform
def spike(text: str) -> str:
    np.ones(int(text) << 17)
    return text

@millrace.transform("map", output="text")
class Spiky:
    def __call__(self, text: str) -> str:
        return spike(text)
`)
	p := serve(t, Options{Path: []string{dir}})
	with := func(workers int, memory int64, function string, pools ...string) string {
		client, err := NewClient(pools, rpc.Security{}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		env, err := worker.Open(t.Context(), worker.Options{
			Python: python(t), Path: []string{dir}, Functions: []string{"steps:upper"}, Workers: workers, Timeout: 30 * time.Second, Memory: memory, MemoryDecides: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer env.Close()
		l := &loader{Environment: env, client: client}
		return said(t.Context(), l.function(t, function), "200", "20", "190", "30", "210")
	}
	const tooMuch = "user: it held more memory than its limit of 160 MiB"
	for _, function := range []string{"spike", "Spiky"} {
		here, there := with(1, 160<<20, function), with(-1, 160<<20, function, p.address)
		if here != there || strings.Count(here, tooMuch) != 3 || strings.Count(here, "\n") < 4 {
			t.Errorf("%s: here\n%s\nin the pool\n%s", function, here, there)
		}
		here, there = with(1, 1<<20, function), with(-1, 1<<20, function, p.address)
		for _, got := range []string{here, there} {
			if !strings.HasPrefix(got, fmt.Sprintf("user: function steps:%s: ", function)) || !strings.Contains(got, "give the step more `memory`") {
				t.Errorf("%s with 1 MiB: %s", function, got)
			}
		}
	}
}
