package worker

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

func integers(n int) *format.Batch {
	column := format.Column{Kinds: make([]format.Kind, n), Numbers: make([]int64, n), Sizes: make([]int32, n)}
	rows := make([]int64, n)
	for i := range n {
		column.Kinds[i], column.Numbers[i], rows[i] = format.Int, int64(i), int64(i)
	}
	return format.FromColumns(rows, nil, []format.Column{column})
}

func lines(n, size int) *format.Batch {
	all := make([]string, n)
	for i := range all {
		all[i] = strings.Repeat("x", size)
	}
	return texts(all...)
}

// BenchmarkNothing is what a batch costs in which nothing is done: its size in bytes is
// that of the values. One waits for each before the next, many has as many under way as
// the workers take.
func BenchmarkNothing(b *testing.B) {
	for _, c := range []struct {
		name, function string
		batch          *format.Batch
		bytes          int64
	}{
		{"64KB-integers", "nothing", integers(8 << 10), 64 << 10},
		{"64KB-texts", "nothing_text", lines(64, 1<<10), 64 << 10},
		{"4MB-integers", "nothing", integers(512 << 10), 4 << 20},
		{"4MB-texts", "nothing_text", lines(1<<10, 4<<10), 4 << 20},
		{"4MB-one-text", "nothing_text", lines(1, 4<<20), 4 << 20},
	} {
		for _, many := range []bool{false, true} {
			name := c.name + "/one"
			if many {
				name = c.name + "/many"
			}
			b.Run(name, func(b *testing.B) {
				opt := options(b)
				opt.BatchBytes = 16 << 20
				f := function(b, open(b, opt), c.function)
				once := func() {
					if out, _, err := f.Call(b.Context(), c.batch); err != nil || out.Len() != c.batch.Len() {
						b.Fatal(err)
					}
				}
				for range 20 {
					once()
				}
				b.SetBytes(c.bytes)
				b.ResetTimer()
				if many {
					b.SetParallelism(2)
					b.RunParallel(func(p *testing.PB) {
						for p.Next() {
							once()
						}
					})
				} else {
					for range b.N {
						once()
					}
				}
				b.ReportMetric(float64(c.batch.Len())*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			})
		}
	}
}

// BenchmarkRestart is the time from the kill of the only worker to the answer of the next.
func BenchmarkRestart(b *testing.B) {
	opt := options(b)
	opt.Workers = 1
	e := open(b, opt)
	f := function(b, e, "nothing")
	in := integers(10)
	for b.Loop() {
		if _, _, err := f.Call(b.Context(), in); err != nil {
			b.Fatal(err)
		}
		pids := e.pids()
		for len(pids) < 2 {
			time.Sleep(time.Millisecond)
			pids = e.pids()
		}
		_ = unix.Kill(pids[1], unix.SIGKILL)
	}
}
