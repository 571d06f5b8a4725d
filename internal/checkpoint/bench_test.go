package checkpoint_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-data/millrace/internal/checkpoint"
)

// BenchmarkAppend answers how long a step waits for its record, 1.5 KB as at 300
// sources, to be durable, with a key frame of 64 KB every 256 steps; and how much of it is
// not the disk.
func BenchmarkAppend(b *testing.B) {
	for _, mode := range []struct {
		name string
		fs   vfs.FS
	}{{"disk", nil}, {"memory", vfs.NewMem()}} {
		b.Run(mode.name, func(b *testing.B) {
			log := open(b, b.TempDir(), checkpoint.Options{FS: mode.fs})
			record, frame := noise(1536, 1), noise(64<<10, 2)
			var took []time.Duration
			step := int64(0)
			b.SetBytes(int64(len(record)))
			b.ReportAllocs()
			for b.Loop() {
				start := time.Now()
				var with []byte
				if checkpoint.Begins(log) || step%256 == 0 {
					with = frame
				}
				if err := log.Append(step, record, with); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
				step++
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
		})
	}
}

// BenchmarkReplay answers how long a restarted planner reads: open a log of 2000
// steps, take the key frame and the records after it.
func BenchmarkReplay(b *testing.B) {
	fs := vfs.NewMem()
	log := open(b, "log", checkpoint.Options{FS: fs})
	for step := range int64(2000) {
		var frame []byte
		if checkpoint.Begins(log) || step%256 == 0 {
			frame = noise(64<<10, -step)
		}
		if err := log.Append(step, noise(1536, step), frame); err != nil {
			b.Fatal(err)
		}
	}
	closeLog(b, log)
	for b.Loop() {
		log, err := checkpoint.Open("log", checkpoint.Options{Identity: job, FS: fs})
		if err != nil {
			b.Fatal(err)
		}
		at, _, _, err := log.Frame(math.MaxInt64)
		if err != nil {
			b.Fatal(err)
		}
		read := 0
		err = log.Records(at+1, math.MaxInt64, func(int64, []byte) error { read++; return nil })
		if err != nil || read != 2000-1792-1 {
			b.Fatalf("read %d records: %v", read, err)
		}
		closeLog(b, log)
	}
}
