package sourceloader

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/sourceloader/spill"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
)

// A record is left out of a job, or ends it, for what is wrong with it and not for how it
// was read once. What a reading finds wrong counts when the next reading finds the same. What
// is lost on the way, which another attempt may bring, is never a bad record.

// lostReads is how often a block is read when readings are lost: with the pauses between them
// some 5 s, in which a mount, a switch or an object store's server comes back.
const lostReads = 10

// readings is how often a block is read of which each reading finds something else wrong.
const readings = 4

// unsteadyReads is how often such a block is: once more after a pause, as a mount that comes back may
// give its bytes. It is a machine of its own that is at fault, and others read the block.
const unsteadyReads = 2

// errUnsteady is part of the error of a block that is something else at each reading.
var errUnsteady = errors.New("it is the reading that is at fault and not the data")

// persist has do done again, with pauses, while what it reads is lost, unless it was tried enough.
func (l *Loader) persist(ctx context.Context, what string, do func() error) error {
	pauses := rpc.Backoff{Name: l.opts.ID + what}
	for n := 1; ; n++ {
		err := do()
		most := lostReads
		if errors.Is(err, errUnsteady) {
			most = unsteadyReads
		}
		if fault.ClassOf(err) != fault.Lost || errors.Is(err, errOther) || errors.Is(err, fault.ErrTried) || n >= most || ctx.Err() != nil {
			return err
		}
		if n == 1 {
			l.opts.Log.Warn("reading failed, trying again", "what", what, "err", err)
		}
		_ = pauses.Wait(ctx) // if ctx ends, so does the next attempt
	}
}

// missing makes a file that was listed and is not there one that is lost: a mount or a
// directory's server may hide it for a moment.
func missing(err error) error {
	if errors.Is(err, store.ErrNotExist) {
		return fault.As(fault.Lost, fmt.Errorf("%w (it was there when the source was indexed)", err))
	}
	return err
}

// gone makes it the user's again, if it stays away.
func gone(err error) error {
	if errors.Is(err, store.ErrNotExist) {
		return fault.As(fault.User, err)
	}
	return err
}

// readAgreed reads a block. What it finds wrong with its data two readings in a row have found; what a model server says
// has nothing to do with the reading.
func (s *Source) readAgreed(ctx context.Context, st store.Store, worker *transform.Worker, bans Bans, w *window) (content, error) {
	before, last := "", ""
	for range readings {
		c, found, err := s.readWithin(ctx, st, worker, bans, w)
		if transform.Asked(err) {
			return nil, err
		}
		if err != nil && fault.ClassOf(err) != fault.User || errors.Is(err, store.ErrChanged) || errors.Is(err, store.ErrNotExist) {
			return nil, missing(err)
		}
		now, all := wrong(found, err)
		if now == "" || now == before {
			return c, err
		}
		before, last = now, all
		var left files
		left.add(c)
		left.close()
		w.again()
		s.rereadIndexes(int64(w.id.seq))
		if err != nil {
			runtime.GC() // of what was read until there, which may be as much as the loader may hold
		}
	}
	return nil, s.unsteady(w.id.seq, fmt.Sprintf("%d readings in a row found different things wrong with it", readings), shortened(last))
}

// rereadIndexes has the next reading of a block take nothing from the one before it: what is kept of its files' chunks is
// read again as well.
func (s *Source) rereadIndexes(seq int64) {
	for _, chunk := range s.Order.Chunks(seq) {
		for _, unit := range s.Order.Layout.Units(chunk) {
			s.Reread(unit)
		}
	}
}

// unsteady is the error of a block that is something else at each reading.
func (s *Source) unsteady(seq uint64, what, last string) error {
	units := s.Order.Layout.Units(s.Order.Chunks(int64(seq))[0])
	return fault.Lostf("source %q, block %d (%s): %s, so that %w; the last found: %s. See to the disk, the mount or the memory of this loader's machine",
		s.Spec.Name, seq, placeOf(&s.Manifest, units), what, errUnsteady, last)
}

// shortened is the beginning of a text that may name thousands of records.
func shortened(text string) string {
	const most = 1000
	if len(text) <= most {
		return text
	}
	return fmt.Sprintf("%s ... (%d bytes more)", strings.ToValidUTF8(text[:most], ""), len(text)-most)
}

// wrong is what a reading found wrong with the data, and what it read beside that; "" if nothing is wrong. found is what
// the next reading has to find as well: all but what functions said, who may say something else when they are called again,
// with an address or the name of a temporary file in it.
func wrong(b *Block, err error) (found, all string) {
	if err != nil {
		said, _ := transform.Raised(err)
		return strings.Replace(err.Error(), said, "", 1), err.Error()
	}
	if len(b.Skips) == 0 {
		return "", ""
	}
	skips := slices.Clone(b.Skips)
	for i := range skips {
		if skips[i].raised {
			skips[i].Reason = ""
		}
	}
	return fmt.Sprintf("%x %+v", b.sum, skips), fmt.Sprintf("%x %+v", b.sum, b.Skips)
}

// again makes the window ready to read the block from its beginning.
func (w *window) again() {
	w.discard()
	w.count(0)
	*w = window{cache: w.cache, id: w.id, entry: w.entry}
	w.begin()
}

// errNotAsPlanned has a block read once more that is not what samples were planned of: the
// cache lets go of it, as of one that its disk does not give back.
var errNotAsPlanned = fmt.Errorf("the block is not what it was when it was planned: %w", spill.ErrUnreadable)

// checked calls take with a block that is the one that samples were planned of. One that is
// not is read a second time; if it is not then either, the planner learns what it is, or that it is
// something else each time.
func (l *Loader) checked(ctx context.Context, id blockID, sum uint64, take func(content) error) error {
	err := l.checkedOnce(ctx, id, sum, take)
	if errors.Is(err, errUnsteady) {
		_ = l.failBlock(ctx, err, id) // whoever asks hears why, and asks again
	}
	return err
}

func (l *Loader) checkedOnce(ctx context.Context, id blockID, sum uint64, take func(content) error) error {
	again, first := false, uint64(0)
	return l.cache.use(ctx, request{id: id}, func(b content) error {
		if again && sum != b.checksum() && first != b.checksum() {
			return l.otherEachTime(ctx, id, b, sum, first)
		}
		if sum != 0 && sum != b.checksum() && !again {
			again, first = true, b.checksum()
			l.opts.Log.Warn("a block is not what it was when it was planned: it is read again", "source", id.source, "block", id.seq)
			src, lazy, err := l.open(ctx, id.source)
			if err != nil {
				return err
			}
			src.rereadIndexes(int64(id.seq))
			lazy.setLast(nil)
			return errNotAsPlanned
		}
		if err := l.asPlanned(id, sum, b); err != nil {
			return err
		}
		return take(b)
	})
}

// otherEachTime is the error of a block of which two readings differ from the one that samples were
// planned of, and from each other. The last one is not kept.
func (l *Loader) otherEachTime(ctx context.Context, id blockID, last content, planned, first uint64) error {
	src, lazy, err := l.open(ctx, id.source)
	if err != nil {
		return err
	}
	l.cache.lose(id, last)
	lazy.setLast(nil)
	return src.unsteady(id.seq, fmt.Sprintf("it was planned with checksum %016x, and was read with %016x and then with another one", planned, first),
		fmt.Sprintf("checksum %016x", last.checksum()))
}
