package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
)

type cancelCmd struct {
	toService
	Change string `arg:"" help:"The change as printed by millrace changes or, if it is the only one for its step, the step."`
	askFlags

	step  int64
	given *change.Change // nil: the only one of step
}

// Help is printed below the usage line.
func (*cancelCmd) Help() string {
	return "Cancels a pending change: batches are as if it had never been made. The journal keeps both. " +
		"A change whose step is already planned cannot be cancelled; make another one. `millrace changes --pending` lists what can be cancelled.\n\n" +
		"Examples:\n" +
		"  millrace cancel 127.0.0.1:7070 1000\n" +
		"  millrace cancel 127.0.0.1:7070 '{\"step\":1000,\"pause\":\"web\"}'"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *cancelCmd) Validate() (err error) {
	if c.Change == "" { // kong says that it is missing
		return nil
	}
	if c.step, err = strconv.ParseInt(c.Change, 10, 64); err == nil {
		return cmp.Or(atLeast("the step", c.step, 0), c.check(change.Change{Schedule: true}))
	}
	given, err := change.Parse([]byte(c.Change))
	if err != nil {
		return fmt.Errorf("the change %s: %w", c.Change, err)
	}
	c.given = &given
	return c.check(change.Change{Step: given.Step, Cancel: &given})
}

func (c *cancelCmd) Run(ctx context.Context) error {
	x := c.given
	if x == nil {
		only, err := c.only(ctx)
		if err != nil {
			return err
		}
		x = &only
	}
	return c.make(ctx, c.Address, change.Change{Step: x.Step, Cancel: x})
}

// only is the one change of the step.
func (c *cancelCmd) only(ctx context.Context) (x change.Change, err error) {
	status, _, err := statusAt(ctx, c.Address, c.security())
	if err != nil {
		return x, err
	}
	changes, err := changesIn(status)
	if err != nil {
		return x, err
	}
	if changes, err = change.InForce(changes); err != nil {
		return x, err
	}
	var of []string
	for _, ch := range changes {
		if ch.Step == c.step {
			x, of = ch, append(of, "'"+ch.String()+"'")
		}
	}
	switch len(of) {
	case 0:
		return x, fault.Userf("there is no change for step %d: `millrace changes %s --pending` prints those that can be cancelled", c.step, c.Address)
	case 1:
		return x, nil
	}
	return x, fault.Userf("there are %d changes for step %d, give one of them: %s", len(of), c.step, strings.Join(of, ", "))
}
