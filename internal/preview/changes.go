package preview

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/token"
)

// ChangesOf are the changes of a step log, as they were made, without those that were made in another branch than the
// one that is written.
func ChangesOf(log checkpoint.Reader) (kept []change.Change, err error) {
	texts, err := log.Changes()
	if err != nil {
		return nil, err
	}
	all, err := change.ParseAll(texts)
	if err != nil {
		return nil, err
	}
	if !checkpoint.History(log.Branches()).Parted() {
		return all, nil // a record that lacks one of them is wrong
	}
	gone, err := change.Cancelled(all)
	if err != nil {
		return nil, err
	}
	for i, c := range all {
		elsewhere := false
		if !gone[i] { // of those no record says anything
			if elsewhere, err = madeElsewhere(log, c); err != nil {
				return nil, err
			}
		}
		if !elsewhere {
			kept = append(kept, c)
		}
	}
	return kept, nil
}

// madeElsewhere says whether the log has the step of a change without the change.
func madeElsewhere(log checkpoint.Steps, c change.Change) (elsewhere bool, err error) {
	err = log.Records(c.Step, c.Step+1, func(step int64, data []byte) error {
		r, err := token.DecodeRecord(data)
		if err != nil {
			return fmt.Errorf("the record of step %d: %w", step, err)
		}
		elsewhere = !r.Made([]byte(c.String()))
		return nil
	})
	return elsewhere, err
}
