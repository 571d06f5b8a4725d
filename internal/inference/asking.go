package inference

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/internal/fault"
)

const (
	// Answers are written whenever this many were found, or the first of them was this long ago: a process that is killed asks
	// again about no more. Fewer at a time would make pages of many entries, which are slow to read.
	keepMost  = 64
	keepEvery = 10 * time.Second
	// keepTime is how long a call that is given up may take to write what was answered: a loader that
	// has some seconds to end.
	keepTime = 3 * time.Second
)

// asking is a call's way through the records that no page knows.
type asking struct {
	*Caller
	pages  []*page
	mu     sync.Mutex                   // guards the fields below
	found  map[*page]map[string]outcome // that are not written
	count  int                          // of them
	since  time.Time                    // when the first of them was found
	failed int                          // number of the first part that failed
	err    error                        // of it
}

// ask has the server answer what no page knows, and writes what it said. Its error is that of the first record of those
// that failed, however many are asked about at a time: what comes before it is asked to the end, what comes after it no more.
func (c *Caller) ask(ctx context.Context, todo []asked) error {
	a := &asking{Caller: c, pages: pagesFor(todo), found: map[*page]map[string]outcome{}, failed: math.MaxInt}
	var work errgroup.Group
	work.SetLimit(cap(c.server.slots))
	for n := 0; len(todo) > 0; n++ {
		part := todo[:min(c.rows, len(todo))]
		todo = todo[len(part):]
		work.Go(func() error {
			a.do(ctx, n, part)
			return nil
		})
	}
	_ = work.Wait()
	keeping := ctx
	if ctx.Err() != nil {
		var stop context.CancelFunc
		keeping, stop = context.WithTimeout(context.WithoutCancel(ctx), keepTime)
		defer stop()
	}
	if err := a.write(keeping); a.err == nil { // what was answered is kept, whatever else went wrong
		return err
	}
	return a.err
}

// do asks about part n, unless one before it failed.
func (a *asking) do(ctx context.Context, n int, part []asked) {
	a.mu.Lock()
	over := a.failed < n
	a.mu.Unlock()
	if over {
		return
	}
	outcomes, err := a.part(ctx, part)
	due := a.keep(part, outcomes)
	if err == nil && due {
		err = a.write(ctx)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil && n < a.failed {
		a.failed, a.err = n, err
	}
}

// keep notes answers to the first records of a part, and says whether it is time to write.
func (a *asking) keep(part []asked, outcomes []outcome) (due bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count == 0 {
		a.since = time.Now()
	}
	for i, o := range outcomes {
		p := part[i].page
		if a.found[p] == nil {
			a.found[p] = map[string]outcome{}
		}
		a.found[p][part[i].key] = o
	}
	a.count += len(outcomes)
	return a.count >= keepMost || time.Since(a.since) >= a.every
}

// write writes what was found. What could not be written is left to the next time.
func (a *asking) write(ctx context.Context) (err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count = 0
	for _, p := range a.pages {
		if len(a.found[p]) > 0 {
			err = errors.Join(err, p.add(ctx, a.found[p]))
			a.count += len(a.found[p])
		}
	}
	return err
}

// part asks about some records, about fewer at a time if the server refuses them together. Those that it
// returns are the first of them, all unless there is an error.
func (c *Caller) part(ctx context.Context, part []asked) ([]outcome, error) {
	rows := make([]any, len(part))
	for i := range part {
		rows[i] = part[i].say
	}
	body, err := c.request.body(rows)
	if err != nil {
		return nil, err
	}
	answer, err := c.server.post(ctx, body)
	var outcomes []outcome
	if err == nil {
		if outcomes, err = read(c.fields, answer, len(part), c.server.hide); err == nil {
			return outcomes, nil
		}
	}
	refused := (*refusal)(nil)
	switch {
	case fault.ClassOf(err) == fault.Lost || ctx.Err() != nil:
		return nil, err
	case len(part) > 1 && (errors.As(err, &refused) || answer != nil):
		half := len(part) / 2
		if outcomes, err = c.part(ctx, part[:half]); err != nil {
			return outcomes, err
		}
		more, err := c.part(ctx, part[half:])
		return append(outcomes, more...), err
	case errors.As(err, &refused):
		return []outcome{{Bad: "the model server refuses it: " + refused.said}}, nil
	}
	return nil, fault.Userf("row %d: %w", part[0].row, err)
}
