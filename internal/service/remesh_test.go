package service_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/service"
)

// shrinking has batches that three ranks can share as well as four.
var shrinking = recipe{"four ranks, then three", mixed + "\nbatch: {sequence_length: 512, sequences: 12}\ntopology: {dp: 4}\n", 40, ""}

// remeshAll has ranks go on from a step as those of a mesh, in the order given, at once.
func remeshAll(ctx context.Context, ranks []*client.Client, mesh client.Mesh, step int64) error {
	var all sync.WaitGroup
	errs := make([]error, len(ranks))
	for dp, c := range ranks {
		all.Go(func() { errs[dp] = c.Remesh(ctx, mesh, client.Rank{DP: dp}, step) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// untilStuck has ranks take steps, side by side, until none gets another one: a rank is lost.
func untilStuck(ctx context.Context, ranks []*client.Client) {
	var all sync.WaitGroup
	for _, c := range ranks {
		all.Go(func() {
			for {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				_, err := c.Next(ctx)
				cancel()
				if err != nil {
					return
				}
			}
		})
	}
	all.Wait()
}

// checked takes steps with all ranks, and compares the digest of the global batch of each with
// the reference's; with the end of the data it ends.
func checked(ctx context.Context, ranks []*client.Client, want answer, steps int) error {
	for range steps {
		if err := allNext(ctx, ranks, 1); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := sameState(ctx, ranks[:1], want); err != nil {
			return err
		}
	}
	return nil
}

// TestRemesh: of four ranks one is lost without a word, and then another one. Those that are
// left go on with one call each, from the step that all of them had; later ranks come back.
// Every global batch is the one that four ranks would have shared. Ranks that read ahead do
// the same as ranks that do not.
func TestRemesh(t *testing.T) {
	dir := writeSources(t)
	want := solve(t, dir, shrinking)
	for _, prefetch := range []int{-1, 2} {
		t.Run(fmt.Sprintf("prefetch %d", prefetch), func(t *testing.T) {
			opts := setting{loaders: 2, constructors: 2}.options(t, dir, shrinking)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := service.Run(ctx, opts, func(ctx context.Context, address string) error {
				return loseAndRegain(ctx, t, address, want, prefetch)
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func loseAndRegain(ctx context.Context, t *testing.T, address string, want answer, prefetch int) error {
	var ranks []*client.Client
	join := func(opts client.Options) error {
		opts.Prefetch = prefetch
		c, err := client.Open(ctx, address, opts)
		if err == nil {
			t.Cleanup(func() { c.Close() })
			ranks = append(ranks, c)
		}
		return err
	}
	for dp := range 4 {
		if err := join(client.Options{Rank: client.Rank{DP: dp}}); err != nil {
			return err
		}
	}
	if err := checked(ctx, ranks, want, 6); err != nil {
		return err
	}
	left := []*client.Client{ranks[0], ranks[2], ranks[3]} // the second one is lost: it says nothing any more
	untilStuck(ctx, left)
	for n, lost := range []int64{6, 9} { // and then the last one, three steps later
		mesh := client.Mesh{DP: 3 - 2*n}
		left = left[:mesh.DP]
		for range 2 { // called twice it is the same
			if err := remeshAll(ctx, left, mesh, lost); err != nil {
				return err
			}
		}
		if err := checked(ctx, left, want, 3); err != nil {
			return fmt.Errorf("with %d ranks: %w", mesh.DP, err)
		}
	}
	token, _, err := left[0].State(ctx)
	if err != nil {
		return err
	}
	if err := left[0].Remesh(ctx, client.Mesh{DP: 2}, client.Rank{}, left[0].Step()); err != nil {
		return err
	}
	ranks = left
	if err := join(client.Options{Rank: client.Rank{DP: 1}, Mesh: client.Mesh{DP: 2}, Token: token}); err != nil {
		return err
	}
	return checked(ctx, ranks, want, 6)
}

// TestRemeshRefuses: what cannot be is refused with what to do, and a rank between two meshes
// gets no batch.
func TestRemeshRefuses(t *testing.T) {
	withWindow(t, shrinking, 30*time.Second, func(ctx context.Context, address string) error {
		ranks := openRanks(ctx, t, address, nil, client.Rank{}, client.Rank{DP: 1}, client.Rank{DP: 2}, client.Rank{DP: 3})
		if err := allNext(ctx, ranks, 8); err != nil {
			return err
		}
		for says, c := range map[string]struct {
			mesh client.Mesh
			step int64
		}{
			"give that of one axis at least": {client.Mesh{}, 7},
			"steps count up from 0":          {client.Mesh{DP: 3}, -1},
			"is gone: all trainers said":     {client.Mesh{DP: 3}, 2},
			"dp":                             {client.Mesh{DP: 5}, 7},
		} {
			err := ranks[0].Remesh(ctx, c.mesh, client.Rank{}, c.step)
			if err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), says) {
				t.Errorf("%v from step %d: %v; want a user error that says %q", c.mesh, c.step, err, says)
			}
		}
		if _, err := ranks[0].Next(ctx); err == nil || !strings.Contains(err.Error(), "between two meshes: call Remesh again") {
			t.Errorf("between two meshes: %v", err)
		}
		if err := remeshAll(ctx, ranks[:3], client.Mesh{DP: 3}, 7); err != nil {
			return err
		}
		return allNext(ctx, ranks[:3], 3)
	})
}
