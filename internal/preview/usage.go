package preview

import "time"

// Usage is what a run has read of a source.
type Usage struct {
	Blocks, Samples int64
	Filtered        int64         // records that a filter took out
	Dropped         int64         // records longer than the source allows
	Empty           int64         // records without a token
	Skipped         int64         // bad records
	Took            time.Duration // of all reads and transforms, on one core

	heldBytes, heldSamples int64
	HeldBytes, HeldSamples int64 // at most, at a time
}

func (u *Usage) read(r *reading) {
	u.Blocks++
	u.Samples += int64(len(r.held.places))
	u.Filtered += int64(r.report.Filtered)
	u.Dropped += int64(r.report.Dropped)
	u.Empty += int64(r.report.Empty)
	u.Skipped += int64(len(r.report.Skips))
	u.Took += r.took
}

// hold notes that so much more, or less, is held.
func (u *Usage) hold(bytes int64, samples int) {
	u.heldBytes += bytes
	u.heldSamples += int64(samples)
	u.HeldBytes, u.HeldSamples = max(u.HeldBytes, u.heldBytes), max(u.HeldSamples, u.heldSamples)
}
