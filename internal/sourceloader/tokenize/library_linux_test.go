package tokenize

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/testdata"
)

func init() { librarySpeed = megabytesPerSecond }

// megabytesPerSecond is the MB per CPU second of one thread on English in texts of 4 KB, the best and the
// median of 7. The library's figures in speed.txt are of the same texts.
func megabytesPerSecond(t testing.TB, e *Encoding) (best, median float64) {
	english, err := os.ReadFile(filepath.Join(testdata.Dir(t), "tokenizers", "sentencepiece", "botchan.txt"))
	if err != nil {
		t.Fatal(err)
	}
	encoder := e.NewEncoder()
	var dst []int32
	var rates []float64
	for range 7 {
		before := cpuTime(t)
		for range 8 {
			for i := 0; i < len(english); i += 4096 {
				dst = encoder.Append(dst[:0], english[i:min(i+4096, len(english))])
			}
		}
		rates = append(rates, 8*float64(len(english))/1e6/(cpuTime(t)-before).Seconds())
	}
	slices.Sort(rates)
	return rates[6], rates[3]
}

func cpuTime(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
