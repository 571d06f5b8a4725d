package prepare

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// meeting is a function whose first calls wait for each other.
type meeting struct {
	thirds
	calls *atomic.Int64
	met   chan struct{} // closed when as many came as are to
}

// together is how many calls a meeting is of.
const together = 3

func (m meeting) Call(ctx context.Context, in *format.Batch) (*format.Batch, []int32, error) {
	if m.calls.Add(1) == together {
		close(m.met)
	}
	select {
	case <-m.met:
		return m.thirds.Call(ctx, in)
	case <-time.After(time.Minute):
		return nil, nil, fault.Userf("no other chunk was worked on in a minute")
	}
}

// TestOneGroup: a function works on several chunks of a group at a time, and the shards are the same.
func TestOneGroup(t *testing.T) {
	dir := t.TempDir()
	words(t, filepath.Join(dir, "web"), 1, 256<<10)
	job := jobOf(t, dir, strings.Replace(web, "  - tokenize", "  - python: {function: 't:pieces'}\n  - tokenize", 1))
	meet := func(seed uint64, src *jobspec.Source, step int) (*transform.Function, error) {
		f, err := pieces(seed, src, step)
		f.Caller = meeting{calls: &atomic.Int64{}, met: make(chan struct{})}
		return f, err
	}
	var made []map[string]string
	for i, functions := range []transform.Functions{pieces, meet} {
		var told []int64
		opts := Options{
			Job: job, Out: filepath.Join(dir, fmt.Sprint("out", i)), Workers: together, Functions: functions,
			Progress: func(p Progress) { told = append(told, p.Done) },
		}
		results, err := Run(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		if len(told) < 10 || !slices.IsSorted(told) || told[len(told)-1] > results[0].Read {
			t.Errorf("of %d bytes it told %d", results[0].Read, told)
		}
		made = append(made, files(t, filepath.Join(opts.Out, "web")))
	}
	if len(made[0]) != 4 || !reflect.DeepEqual(made[0], made[1]) { // one shard, manifest, ledger and lock
		t.Errorf("files %d and %d are not the same four", len(made[0]), len(made[1]))
	}
}
