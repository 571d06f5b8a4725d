package steplog

import (
	"fmt"
	"time"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
)

// frames decides which records of the log come with a key frame: often enough that a planner which
// takes over replays the rest in little time, and rarely enough that they add little to the log. How
// long a record takes is measured by replaying some as they are written. A clock has a say in
// where key frames are, and in nothing that follows from the log: every planner that reads it
// comes to the same positions, whichever records have one.
type frames struct {
	records int           // since the last key frame, the one that it came with among them
	bytes   int           // of them
	frame   int           // bytes of the last key frame
	each    time.Duration // that a record takes, by the last trial; 0 before the first

	tried int           // records of the trial under way; it is over after trial
	took  time.Duration // so far
}

const (
	// replayTime is how long the records after a key frame may take: a tenth of the second in
	// which a planner that is started again is to plan.
	replayTime = 100 * time.Millisecond
	// leastRecords is the least from one key frame to the next, whatever a trial says: a
	// process that was stopped meanwhile tells nothing.
	leastRecords = 32
	// mostRecords is the most. More would save less than a hundredth of the log, and a key
	// frame of the mirror has half of them on average.
	mostRecords = 512
	// mostBytes is held in memory by a planner that takes over.
	mostBytes = 4 << 20
	// frameShare is how many times its own bytes lie between a key frame and the next at least,
	// unless they are mostRecords apart.
	frameShare = 16
	// trial is the number of records that are replayed after each key frame.
	trial = 32
)

// due says whether the next record should come with a key frame.
func (f *frames) due() bool {
	switch {
	case f.records < leastRecords:
		return false
	case f.records >= mostRecords:
		return true
	case f.bytes < frameShare*f.frame:
		return false
	}
	return f.bytes >= mostBytes || time.Duration(f.records)*f.each >= replayTime
}

// wrote notes a record, and the key frame that came with it, if one did.
func (f *frames) wrote(record, frame int) {
	if frame > 0 {
		*f = frames{frame: frame, each: f.each}
	}
	f.records++
	f.bytes += record
}

// resume counts what a log has from its last key frame on.
func (f *frames) resume(log checkpoint.Reader) error {
	last, some := log.Last()
	if !some {
		return nil
	}
	at, frame, framed, err := log.Frame(last)
	if err != nil || !framed {
		return err
	}
	f.frame = len(frame)
	return log.Records(at, last+1, func(_ int64, record []byte) error {
		f.wrote(len(record), 0)
		return nil
	})
}

// try replays a record of the trial, as a planner that takes over does, and makes sure that it
// leads to where this planner goes on.
func (f *frames) try(cfg *plan.Config, op control.AppendStep, record []byte) error {
	if f.tried >= trial {
		return nil
	}
	start := time.Now()
	r, err := token.DecodeRecord(record)
	var after plan.State
	if err == nil {
		after, err = r.After(cfg, op.Before)
	}
	f.took += time.Since(start)
	f.tried++
	if err == nil && !after.Same(op.Step.After) {
		err = fmt.Errorf("it leads to another position than the one that the planner goes on from")
	}
	if err != nil {
		return fmt.Errorf("replaying the record of step %d, which is to be written: %w", op.Step.Step, err)
	}
	return nil
}

// tryReading ends a trial: its records are read back.
func (f *frames) tryReading(log checkpoint.Reader) error {
	if f.tried != trial {
		return nil
	}
	last, _ := log.Last()
	start, n := time.Now(), 0
	err := log.Records(last+1-trial, last+1, func(int64, []byte) error { n++; return nil })
	if f.took += time.Since(start); n > 0 {
		f.each = f.took / trial
	}
	f.tried++ // it is over
	return err
}
