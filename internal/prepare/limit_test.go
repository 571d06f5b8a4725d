package prepare

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
)

// TestLimit: a source may have as many bad records as the limit says, however its groups are made: at the same time, one after
// the other, or before.
func TestLimit(t *testing.T) {
	dir := t.TempDir()
	for i := range 2 { // a group of one chunk each, with eight bad records each
		var b strings.Builder
		for n := 0; b.Len() < leastShardBytes-1000; n++ {
			if n%500 == 0 && n < 4000 {
				b.WriteString("{\n")
			}
			fmt.Fprintf(&b, "{\"id\":%d,\"text\":%q}\n", n, strings.Repeat("word ", 30))
		}
		const last = "{\"id\":0,\"text\":\"%s\"}\n"
		fmt.Fprintf(&b, last, strings.Repeat("x", leastShardBytes-b.Len()-len(last)+len("%s")))
		put(t, filepath.Join(dir, fmt.Sprintf("web/%d.jsonl", i)), b.String())
	}
	of := func(limit int, out string, workers int) Options {
		job := jobOf(t, dir, strings.NewReplacer("limit: 100000", fmt.Sprintf("limit: %d", limit), "16KiB", "1MiB").Replace(web))
		return Options{Job: job, Out: filepath.Join(dir, out), ShardBytes: leastShardBytes, Workers: workers}
	}
	refused := func(opts Options) {
		t.Helper()
		_, err := Run(t.Context(), opts)
		if want := `source "web": 16 bad records, more than bad_records.limit 10 allows, such as `; fault.ClassOf(err) != fault.User || !strings.HasPrefix(fmt.Sprint(err), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	refused(of(10, "one", 1))
	both := of(10, "both", 2)
	var reads sync.WaitGroup
	reads.Add(2)
	var chunks atomic.Int64
	both.Progress = func(p Progress) { // of each group its only chunk was read
		if p.Done > 0 && chunks.Add(1) <= 2 {
			reads.Done()
			reads.Wait()
		}
	}
	refused(both)
	if r, err := Run(t.Context(), of(16, "all", 1)); err != nil || r[0].Skipped != 16 || r[0].Shards < 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	refused(of(10, "all", 1)) // which is there
	if err := os.Remove(filepath.Join(dir, "all/web/shard-000000-00000.parquet")); err != nil {
		t.Fatal(err)
	}
	if r, err := Run(t.Context(), of(16, "all", 1)); err != nil || r[0].Skipped != 16 {
		t.Errorf("with a shard that is made again: %+v, %v", r, err)
	}
}
