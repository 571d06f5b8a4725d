package steplog_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/steplog"
	"github.com/millrace-data/millrace/internal/planner/token"
)

// A planner begins a log and ends; the next one takes it over with a higher epoch.
func Example() {
	opts := steplog.Options{Dir: "log", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)}
	for range 2 {
		taken, err := steplog.Take(context.Background(), &opts)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("epoch", taken.Epoch)
		log := steplog.NewWriter(opts, taken, func(ev control.Event) {
			switch ev := ev.(type) {
			case control.LogOpened:
				fmt.Println("opened, generations:", ev.Generations, ev.Err)
			case control.Persisted:
				fmt.Println("persisted", ev.Seq, ev.Err)
			}
		})
		log.Put(control.OpenLog{Root: [32]byte{7}, Job: token.Job{Name: "demo"}})
		log.Put(control.Persist{Seq: 1, Ops: []control.Op{control.BeginGeneration{Generation: control.Generation{Number: 3}}}})
		if err := log.Close(); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// epoch 1
	// opened, generations: [] <nil>
	// persisted 1 <nil>
	// epoch 2
	// opened, generations: [{3 0 0}] <nil>
	// persisted 1 <nil>
}
