package steplog

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/planner/token"
)

// replanned compares what is planned after the job went back with what the branches have that were
// left: as long as the same changes are made, it is the same, and else a batch was not a function of
// its step.
type replanned struct {
	dir    string // of the log
	others []otherBranch
}

// otherBranch is a branch whose history is that of the one that is written, up to a step.
type otherBranch struct {
	number uint64
	steps  checkpoint.Steps
	until  int64 // the steps before it are the same
	parted bool  // at until: other changes were made, or it ends there
}

const (
	// mostBranches bounds those that are compared: the newest say what the older ones do.
	mostBranches = 4
	// mostAgain bounds the steps that a planner which starts compares once more, so that it does
	// not read a long branch for that.
	mostAgain = 4096
)

// begin finds the branches that go on from where the one begins that is written.
func (r *replanned) begin(log checkpoint.Reader, from int64) error {
	r.others = nil
	h := checkpoint.History(log.Branches())
	b := h.Current()
	for _, x := range slices.Backward(h[:len(h)-1]) {
		steps, err := log.Branch(x.Number)
		if err != nil {
			return err
		}
		first, some := steps.First()
		follows := b.Parent != b.Number && h.Has(x.Number, b.Parent, from-1)
		if some && (follows || from == 0 && first == 0) && len(r.others) < mostBranches {
			r.others = append(r.others, otherBranch{number: x.Number, steps: steps, until: from})
		}
	}
	return nil
}

// resume is begin for a branch that has steps.
func (r *replanned) resume(log checkpoint.Reader) error {
	all := log.Branches()
	b := all[len(all)-1]
	if b.Next-b.From > mostAgain || len(all) == 1 {
		return nil
	}
	if err := r.begin(log, b.From); err != nil {
		return err
	}
	return log.Records(b.From, b.Next, func(step int64, record []byte) error {
		if r.step(step, record) != nil { // it was not compared when it was written
			r.others = nil
		}
		return nil
	})
}

// step compares the record of the next step of the branch that is written.
func (r *replanned) step(step int64, record []byte) error {
	for i := range r.others {
		o := &r.others[i]
		if o.parted || o.until != step {
			continue
		}
		was, err := recordOf(o.steps, step)
		if err != nil {
			return err
		}
		same, parted, err := compare(was, record)
		switch {
		case err != nil:
			return err
		case same:
			o.until = step + 1
		case parted:
			o.parted = true
		default:
			return r.differs(step, o, "record")
		}
	}
	return nil
}

// recordOf is the record of a step; nil if there is none.
func recordOf(steps checkpoint.Steps, step int64) (record []byte, err error) {
	err = steps.Records(step, step+1, func(_ int64, data []byte) error {
		record = bytes.Clone(data)
		return nil
	})
	return record, err
}

// compare says whether two records of a step are the same, whichever ranks have its rows: the job may have gone back to
// another mesh. If they are not, parted says that other changes were made, or that the branch that was left ends before
// the step.
func compare(was, record []byte) (same, parted bool, err error) {
	switch {
	case was == nil:
		return false, true, nil
	case bytes.Equal(was, record):
		return true, false, nil
	}
	before, err := token.DecodeRecord(was)
	if err != nil {
		return false, false, err
	}
	now, err := token.DecodeRecord(record)
	if err != nil {
		return false, false, err
	}
	before.Placed = now.Placed
	return bytes.Equal(before.Encode(), record), !slices.EqualFunc(before.Changes, now.Changes, bytes.Equal), nil
}

// digest compares the chain value after a step.
func (r *replanned) digest(step int64, digest [32]byte) error {
	for i := range r.others {
		o := &r.others[i]
		if step >= o.until {
			continue
		}
		was, known, err := o.steps.ReadDigest(step)
		if err != nil {
			return err
		}
		if known && was != digest {
			return r.differs(step, o, "digest")
		}
	}
	return nil
}

func (r *replanned) differs(step int64, o *otherBranch, what string) error {
	return fmt.Errorf("step %d was planned again after the job went back, and its %s is not that of branch %d of the log in %s, though the same changes were made up to there: "+
		"a batch was not a function of its step; `millrace verify` and `millrace log read --branch %d` show what each was: %w",
		step, what, o.number, r.dir, o.number, checkpoint.ErrDiverged)
}
