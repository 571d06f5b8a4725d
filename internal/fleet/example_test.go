package fleet_test

import (
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/fleet"
)

// Three loaders run in this process; when one of them has nothing left to do, a Scale to two ends it.
func Example() {
	f := fleet.NewLocal(8, func(role fleet.Role, n int) string { return fmt.Sprintf("%s-%d", role, n) }, func(ctx context.Context, _ fleet.Role, _ int) error {
		<-ctx.Done() // a loader would read here
		return nil
	})
	ctx, end := context.WithCancel(context.Background())
	over := make(chan error)
	go func() { over <- f.Run(ctx) }()
	_ = f.Scale(ctx, fleet.Loader, 3)
	f.Draining(fleet.Loader, []string{"loader-1"})
	_ = f.Scale(ctx, fleet.Loader, 2)
	watch, seen := context.WithCancel(ctx)
	f.Members(watch, func(all []fleet.Member) {
		if len(all) == 2 {
			fmt.Println(all[0].Name, all[1].Name)
			seen()
		}
	})
	end()
	fmt.Println(<-over)
	// Output:
	// loader-0 loader-2
	// <nil>
}
