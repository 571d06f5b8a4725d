package service_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/fault"
)

// threeRanks is a job whose ranks join one by one.
var threeRanks = recipe{"three ranks", mixed + "\nbatch: {sequence_length: 512, sequences: 12}\ntopology: {dp: 3}\n", 60, ""}

// TestLookAtALiveJob: someone who connects as a rank without a token, to see what the
// batches are, is refused with what to do, and the ranks that train never notice.
func TestLookAtALiveJob(t *testing.T) {
	dir := writeSources(t)
	r := recipe{"a look", mixed + "\nbatch: {sequence_length: 512, sequences: 8}\ntopology: {dp: 2}\n", 60, ""}
	want := solve(t, dir, r)
	setting{constructors: 2}.serve(t, dir, r, func(ctx context.Context, address string) error {
		live := openRanks(ctx, t, address, nil, client.Rank{}, client.Rank{DP: 1})
		if err := allNext(ctx, live, 10); err != nil {
			return err
		}
		var looked atomic.Bool
		var looks sync.WaitGroup
		looks.Go(func() {
			defer looked.Store(true)
			for dp := range 2 {
				c, err := client.Open(ctx, address, client.Options{Rank: client.Rank{DP: dp}, Mesh: client.Mesh{DP: 2}})
				if err == nil {
					_, err = c.Next(ctx)
					c.Close()
				}
				says := []string{"without a resume token", "the job is at step", "preview", `"beginning"`, client.Rank{DP: dp}.String()}
				if err == nil || fault.ClassOf(err) != fault.User || slices.ContainsFunc(says, func(s string) bool { return !strings.Contains(err.Error(), s) }) {
					t.Errorf("a look as dp=%d: %v; want a user error that says %q", dp, err, says)
				}
			}
		})
		defer looks.Wait()
		for step := 10; step < 60; step++ {
			if err := allNext(ctx, live, 1); err != nil {
				return fmt.Errorf("a rank that trains, at step %d: %w", step, err)
			}
			if step < 58 && !looked.Load() {
				time.Sleep(150 * time.Millisecond) // a training step
			}
		}
		return sameState(ctx, live, want)
	})
}

// TestRestartInAnyOrder: ranks that are restarted together from one checkpoint go on,
// in whatever order they join and however many batches each takes before the next joins,
// wherever each had been.
func TestRestartInAnyOrder(t *testing.T) {
	dir := writeSources(t)
	want, tokens := solve(t, dir, threeRanks), takeTokens(t, dir, threeRanks)
	s := setting{constructors: 2, log: true, resources: resources{prefetch: 8}}
	orders := [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}
	further := [][]int{{0, 0, 3}, {0, 3, 2}, {1, 0, 0}, {3, 1, 2}, {0, 0, 0}} // steps that each was done with, after the checkpoint
	s.serve(t, dir, threeRanks, func(ctx context.Context, address string) error {
		at := 3
		for _, order := range orders {
			for k, done := range further {
				ranks := openRanks(ctx, t, address, tokens[at], client.Rank{}, client.Rank{DP: 1}, client.Rank{DP: 2})
				for i, c := range ranks {
					if err := allNext(ctx, []*client.Client{c}, done[i]+k%2); err != nil {
						return err
					}
				}
				if err := restart(ctx, t, address, tokens, want, order, at+k%2); err != nil {
					return fmt.Errorf("in the order %v, after %v: %w", order, done, err)
				}
			}
			at += 2
		}
		return nil
	})
}

// restart joins three ranks at a step, each of which takes some batches at once, and
// has all of them go on.
func restart(ctx context.Context, t *testing.T, address string, tokens [][]byte, want answer, order []int, at int) error {
	var ranks []*client.Client
	for n, dp := range order {
		c := openRanks(ctx, t, address, tokens[at], client.Rank{DP: dp})[0]
		ranks = append(ranks, c)
		if err := allNext(ctx, ranks[n:], 3-n); err != nil {
			return err
		}
		if n == 1 { // the first goes on, too
			if err := allNext(ctx, ranks[:1], 1); err != nil {
				return err
			}
		}
	}
	for _, c := range ranks {
		if err := allNext(ctx, []*client.Client{c}, at+6-int(c.Step())); err != nil {
			return err
		}
	}
	defer closeAll(ranks)
	if token, _, err := ranks[0].State(ctx); err != nil || !bytes.Equal(token, tokens[at+6]) {
		return fmt.Errorf("the state of step %d is another one (%w)", at+6, err)
	}
	return sameState(ctx, ranks, want)
}

// TestRestartOfOneRank: a rank that comes back from a checkpoint that others have left
// behind ends these, even if they began at that very checkpoint themselves: they would not
// take its steps again.
func TestRestartOfOneRank(t *testing.T) {
	dir := writeSources(t)
	tokens := takeTokens(t, dir, threeRanks)
	for _, steps := range []int{1, 3, 12} {
		setting{constructors: 2}.serve(t, dir, threeRanks, func(ctx context.Context, address string) error {
			ranks := openRanks(ctx, t, address, tokens[5], client.Rank{}, client.Rank{DP: 1}, client.Rank{DP: 2})
			for range steps {
				if err := allNext(ctx, ranks, 1); err != nil {
					return err
				}
			}
			// A rank that joined after the constructor last heard the one that comes again, for all that it knows, goes on with
			// that one: constructors hear of the joins of others within 50 ms.
			time.Sleep(500 * time.Millisecond)
			if err := allNext(ctx, ranks, 1); err != nil { // so that the steps are done with
				return err
			}
			ranks[1].Close()
			openRanks(ctx, t, address, tokens[5], client.Rank{DP: 1})
			for _, c := range []*client.Client{ranks[0], ranks[2]} {
				var err error
				for n := 0; err == nil && n < 20; n++ {
					_, err = c.Next(ctx)
				}
				if err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "the job was moved to step 5") {
					t.Errorf("after %d steps, a rank that goes on heard %v", steps, err)
				}
			}
			return nil
		})
	}
}

// openRanks joins ranks one after the other; they are closed at the end of the test.
func openRanks(ctx context.Context, t *testing.T, address string, token []byte, ranks ...client.Rank) (all []*client.Client) {
	t.Helper()
	for _, rank := range ranks {
		c, err := client.Open(ctx, address, client.Options{Rank: rank, Token: token, Prefetch: -1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		all = append(all, c)
	}
	return all
}

func closeAll(ranks []*client.Client) {
	for _, c := range ranks {
		c.Close()
	}
}

// allNext takes some steps with each of the ranks, side by side.
func allNext(ctx context.Context, ranks []*client.Client, steps int) error {
	var all sync.WaitGroup
	errs := make([]error, len(ranks))
	for i, c := range ranks {
		all.Go(func() {
			for k := 0; k < steps && errs[i] == nil; k++ {
				_, errs[i] = c.Next(ctx)
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// sameState compares the digest of where ranks stand, all at one step, with the reference's.
func sameState(ctx context.Context, ranks []*client.Client, want answer) error {
	for _, c := range ranks {
		if _, digest, err := c.State(ctx); err != nil || digest != want.digests[c.Step()] {
			return fmt.Errorf("step %d has digest %x, want %x (%w)", c.Step(), digest, want.digests[c.Step()], err)
		}
	}
	return nil
}
