package checkpoint

import (
	"errors"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/millrace-data/millrace/internal/failpoint"
)

// batch is a write to come, all of it or nothing, and the mark that it leads to.
type batch struct {
	log     *Pebble
	db      *pebble.Batch // reads what is put into it, and else the database
	mark    mark
	epoch   uint64
	trimmed int64
	history History            // the batch's own
	place   *Place             // that it leads to
	digests map[int64][32]byte // that came with it
	sums    map[stretch]*sum   // of the steps that it changes
	begun   []stretch          // those of sums that had none
	dirty   bool               // it has more than digests
	err     error              // the first
}

// newBatch begins the next write, with the digests that wait for one.
func (l *Pebble) newBatch() *batch {
	l.mu.Lock()
	digests := maps.Clone(l.digests)
	b := &batch{
		log: l, db: l.db.NewIndexedBatch(), mark: l.mark, epoch: l.epoch, trimmed: l.trimmed, history: slices.Clone(l.history), place: l.place,
		digests: map[int64][32]byte{}, sums: map[stretch]*sum{},
	}
	l.mu.Unlock()
	b.mark.seq++
	b.mark.before = b.mark.sum
	if l.format < formatVersion {
		b.upgrade()
	}
	for _, step := range slices.Sorted(maps.Keys(digests)) {
		digest := digests[step]
		b.putStep(digestKind, step, digest[:])
	}
	b.dirty = false
	return b
}

// put sets a key that is not there yet, and that the mark's sum has.
func (b *batch) put(key, value []byte) {
	b.mark.sum.toggle(key, value)
	b.set(key, value)
	b.dirty = true
}

func (b *batch) set(key, value []byte) {
	if b.err == nil {
		b.err = b.db.Set(key, value, nil)
	}
}

// commit makes b durable and then its mark, sees that they are where the folder is, and
// releases b. Only then it is acknowledged.
func (l *Pebble) commit(b *batch) error {
	err := l.guard(func() error {
		b.settleSums()
		b.settleBranches()
		b.set(markKey, b.mark.encode())
		if b.err != nil {
			return errors.Join(b.err, b.db.Close())
		}
		if err := failpoint.Error(failpoint.SyncBefore); err != nil {
			return errors.Join(err, b.db.Close())
		}
		if err := errors.Join(b.db.Commit(pebble.Sync), b.db.Close()); err != nil {
			return err
		}
		failpoint.Hit(failpoint.SyncAfter)
		defer failpoint.Hit(failpoint.MarkAfter)
		return writeMark(l.file, b.mark)
	})
	if err == nil {
		err = l.look(b.mark)
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mark, l.epoch, l.place, l.format, l.history, l.trimmed = b.mark, b.epoch, b.place, formatVersion, b.history, b.trimmed
	for _, x := range b.begun {
		l.proven[x] = true
	}
	clear(l.digests)
	return nil
}
