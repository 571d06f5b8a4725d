package tokenize

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/testdata"
)

// BenchmarkLibrary reports MB per CPU second of every file of `make tokenizers`, the best and the
// median of 7, on 4 KB texts; speed.txt has the library's best.
func BenchmarkLibrary(b *testing.B) {
	dir := os.Getenv(libraryEnv)
	if dir == "" {
		b.Skip("no files are here: run `make tokenizers`")
	}
	english, err := os.ReadFile(filepath.Join(testdata.Dir(b), "tokenizers", "sentencepiece", "botchan.txt"))
	if err != nil {
		b.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.ids"))
	for _, ids := range files {
		name := strings.TrimSuffix(filepath.Base(ids), ".ids")
		b.Run(name, func(b *testing.B) {
			e, err := LoadFile(filepath.Join(dir, name+".json"), "", false)
			if err != nil {
				b.Fatal(err)
			}
			encoder := e.NewEncoder()
			var dst []int32
			var rates []float64
			for range 7 {
				before := cpuTime(b)
				for range 4 {
					for i := 0; i < len(english); i += 4096 {
						dst = encoder.Append(dst[:0], english[i:min(i+4096, len(english))])
					}
				}
				rates = append(rates, 4*float64(len(english))/1e6/(cpuTime(b)-before).Seconds())
			}
			for b.Loop() {
				dst = encoder.Append(dst[:0], english[:4096])
			}
			slices.Sort(rates)
			b.ReportMetric(rates[6], "MB/cpu-s")
			b.ReportMetric(rates[3], "median-MB/cpu-s")
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
