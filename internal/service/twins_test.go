package service_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/constructor"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner"
	"github.com/millrace-data/millrace/internal/planner/status"
	"github.com/millrace-data/millrace/internal/sourceloader"
)

// TestTwins: of two processes that were given the same id, the second one ends with an error that
// names where both are, and the first one goes on. When that has ended, its successor is taken.
func TestTwins(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	var roles sync.WaitGroup
	defer roles.Wait()
	defer stop()
	ready := make(chan string, 1)
	roles.Go(func() {
		defer close(ready)
		err := planner.Run(ctx, planner.Options{
			Job:     parse(t, writeSources(t), recipes[0].text(resources{prefetch: 4})),
			Address: "127.0.0.1:0", Registry: names, Loaders: 1, Constructors: 1, Serving: func(a string) { ready <- a },
		})
		if err != nil {
			t.Error(err)
		}
	})
	at := <-ready
	for kind, run := range map[string]func(ctx context.Context, address string) error{
		"loader": func(ctx context.Context, address string) error {
			return sourceloader.Run(ctx, sourceloader.Options{ID: "it", Planner: at, Address: address})
		},
		"constructor": func(ctx context.Context, address string) error {
			return constructor.Run(ctx, constructor.Options{ID: "it", Planner: at, Address: address})
		},
	} {
		first, second := freeAddress(t), freeAddress(t)
		life, end := context.WithCancel(ctx)
		ended := make(chan error, 1)
		roles.Go(func() { ended <- run(life, first) })
		awaitMember(ctx, t, at, kind, first)
		err := run(ctx, second)
		if fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), first) || !strings.Contains(err.Error(), second) {
			t.Errorf("another %s with the same id: %v", kind, err)
		}
		awaitMember(ctx, t, at, kind, first)
		if end(); <-ended != nil {
			t.Errorf("the first %s was disturbed", kind)
		}
		roles.Go(func() { _ = run(ctx, second) }) // it ends with the planner
		awaitMember(ctx, t, at, kind, second)
	}
}

// awaitMember waits until the only loader or constructor of a service is the one at an address.
func awaitMember(ctx context.Context, t *testing.T, planner, kind, address string) {
	t.Helper()
	for {
		s, err := statusOf(ctx, planner)
		if err != nil {
			t.Fatal(err)
		}
		if at := membersAt(s, kind); len(at) == 1 && at[0] == address {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// membersAt are the addresses of the members of a kind.
func membersAt(s status.Service, kind string) (at []string) {
	if kind == "loader" {
		for _, l := range s.Loaders {
			at = append(at, l.Address)
		}
		return at
	}
	for _, c := range s.Constructors {
		at = append(at, c.Address)
	}
	return at
}
