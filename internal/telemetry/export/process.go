package export

import (
	"os"
	"runtime/metrics"
	"strconv"
	"strings"
	"syscall"

	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/telemetry"
)

// process gives the numbers of the process itself.
func process(observe telemetry.Observe) {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err == nil {
		observe(telemetry.ProcessCPU, seconds(used.Utime)+seconds(used.Stime))
	}
	if bytes, ok := resident(); ok {
		observe(telemetry.ProcessMemory, bytes)
	}
	if ends, soon := rpc.CertificateEnds(); !ends.IsZero() {
		observe(telemetry.CertificateEnds, float64(ends.Unix()))
		observe(telemetry.CertificateEndsSoon, one(soon))
	}
	read := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
		{Name: "/gc/gomemlimit:bytes"}, {Name: "/sched/goroutines:goroutines"},
	}
	metrics.Read(read)
	observe(telemetry.GoMemory, float64(read[0].Value.Uint64()-read[1].Value.Uint64()))
	observe(telemetry.GoMemoryLimit, float64(read[2].Value.Uint64()))
	observe(telemetry.GoGoroutines, float64(read[3].Value.Uint64()))
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func seconds(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }

// resident is the memory of the process; ok is false where the system does not say it as Linux does.
func resident() (bytes float64, ok bool) {
	text, err := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 2 {
		return 0, false
	}
	pages, err := strconv.ParseFloat(fields[1], 64)
	return pages * float64(os.Getpagesize()), err == nil
}
