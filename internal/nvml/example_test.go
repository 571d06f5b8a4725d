package nvml_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace-data/millrace/internal/nvml"
)

// A machine without GPUs, or a build without the library, has no devices and gives no samples.
func ExampleOpen() {
	l := nvml.Open(slog.New(slog.DiscardHandler))
	defer l.Close()
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer stop()
	l.Samples(ctx, time.Hour, func(all []nvml.Sample) { fmt.Println("samples:", len(all)) })
	fmt.Println("GPUs are a list, which may be empty:", len(l.Devices()) >= 0)
	// Output: GPUs are a list, which may be empty: true
}
