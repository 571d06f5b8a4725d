package steplog

import "time"

// slowWrite is how long a write takes of which the planner's own log speaks: a file system or a store hangs, or is tried
// again. It is far more than a disk takes that is busy, and far less than trainers wait for.
const slowWrite = 5 * time.Second

// Slow takes for how long the log has been at what it was given, 0 if it has done all: it warns of a write that takes long,
// and says when it is done. The caller is always the same goroutine.
func (w *Writer) Slow(taken time.Duration) {
	slow := taken >= slowWrite
	if slow == w.slow {
		return
	}
	w.slow = slow
	attrs := []any{"log", w.opts.Dir, "mirror", w.opts.Mirror}
	if !slow {
		w.opts.Logger.Warn("the log is written again", attrs...)
		return
	}
	if err := w.Trouble(); err != nil {
		attrs = append(attrs, "err", err)
	}
	w.opts.Logger.Warn("a write to the log takes long: what is planned waits for it", append(attrs, "taken", taken)...)
}

// Trouble is why the last attempt to write the mirror of the log failed, while it is tried again, too; nil if it did not, or
// there is no mirror. Any goroutine may ask.
func (w *Writer) Trouble() error {
	if m := w.mirror.Load(); m != nil {
		return m.Trouble()
	}
	return nil
}
