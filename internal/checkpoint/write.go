package checkpoint

import (
	"bytes"
	"fmt"
	"math"
)

// Append is Log.Append.
func (l *Pebble) Append(step int64, record, frame []byte) error {
	return l.write(func() error {
		steps := l.span()
		switch {
		case step < 0 || step == math.MaxInt64:
			return fmt.Errorf("appending step %d: %w: steps are 0 to 2^63-2", step, ErrOrder)
		case len(record)+len(frame) > MaxBytes:
			return fmt.Errorf("appending %s: record and frame have %d bytes, at most %d are taken", l.at(step), len(record)+len(frame), MaxBytes)
		case steps.has(step):
			return l.replay(step, record, frame)
		case !steps.empty() && step != steps.next:
			return fmt.Errorf("appending %s: %w: it holds %d to %d, so that %d comes next", l.at(step), ErrOrder, steps.first, steps.next-1, steps.next)
		}
		if steps.empty() {
			steps.first = step
		}
		steps.next = step + 1
		return l.append(step, record, frame, steps)
	})
}

func (l *Pebble) append(step int64, record, frame []byte, after span) error {
	b := l.newBatch()
	b.put(recordKind.key(step), record)
	if frame != nil {
		b.put(frameKind.key(step), frame)
	}
	b.mark.steps = after
	return l.wrap(l.commit(b), fmt.Sprintf("appending step %d", step))
}

// replay compares step with what the log holds.
func (l *Pebble) replay(step int64, record, frame []byte) error {
	stored, ok, err := l.get(recordKind.key(step))
	if err == nil && !ok {
		err = errMissing
	}
	if err != nil {
		return l.wrap(err, fmt.Sprintf("reading the record of step %d", step))
	}
	if err := l.compare(step, "record", record, stored); err != nil || frame == nil {
		return err
	}
	stored, ok, err = l.get(frameKind.key(step))
	if err != nil {
		return l.wrap(err, fmt.Sprintf("reading the key frame of step %d", step))
	}
	if ok {
		return l.compare(step, "key frame", frame, stored)
	}
	b := l.newBatch()
	b.put(frameKind.key(step), frame)
	return l.wrap(l.commit(b), fmt.Sprintf("adding the key frame of step %d", step))
}

func (l *Pebble) compare(step int64, what string, got, stored []byte) error {
	if bytes.Equal(got, stored) {
		return nil
	}
	at := 0
	for at < min(len(got), len(stored)) && got[at] == stored[at] {
		at++
	}
	return fmt.Errorf("%s: %w: the %s has %d bytes now and %d in the log, equal up to byte %d",
		l.at(step), ErrDiverged, what, len(got), len(stored), at)
}

// SetDigest is Log.SetDigest. The digest reaches the disk with the next batch or with tend.
func (l *Pebble) SetDigest(step int64, digest [32]byte) error {
	return l.write(func() error {
		if steps := l.span(); !steps.has(step) {
			return fmt.Errorf("setting the digest of %s: %w: it is not in the log", l.at(step), ErrOrder)
		}
		stored, ok, err := l.digest(step)
		if err != nil {
			return err
		}
		if ok {
			return l.compare(step, "digest", digest[:], stored[:])
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.digests[step] = digest
		return nil
	})
}

// Truncate is Log.Truncate.
func (l *Pebble) Truncate(from int64) error {
	return l.write(func() error {
		steps := l.span()
		if steps.empty() || from >= steps.next {
			return nil
		}
		from = max(from, steps.first)
		l.dropDigests(from)
		b := l.newBatch()
		for _, k := range []kind{digestKind, frameKind, recordKind} {
			b.clear(k, from)
		}
		if b.mark.steps.next = from; b.mark.steps.empty() {
			b.mark.steps = span{}
		}
		return l.wrap(l.commit(b), fmt.Sprintf("truncating at step %d", from))
	})
}

// write calls fn as the only writer.
func (l *Pebble) write(fn func() error) error {
	if err := l.enter(); err != nil {
		return err
	}
	defer l.leave()
	select {
	case <-l.writer:
	case <-l.disk.failed:
		return l.failure()
	}
	defer func() { l.writer <- struct{}{} }()
	return fn()
}

// at is how errors name a step.
func (l *Pebble) at(step int64) string { return fmt.Sprintf("step %d of the log in %s", step, l.dir) }
