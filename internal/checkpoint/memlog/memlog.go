// Package memlog keeps the log of a job in memory, for tests and simulations: a
// checkpoint.Log without a disk, which fails on request.
//
// It owns the steps and changes that were written to it, over closing and opening it
// again, and nothing outside the process. It starts no goroutine and reads no clock.
package memlog

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
)

// Store is where one log is kept. The zero value is empty and ready to use. It is safe
// for concurrent use.
type Store struct {
	mu    sync.Mutex
	begun bool
	open  bool
	job   [32]byte
	data
}

// data is what a store holds.
type data struct {
	first   int64
	steps   []step // from first on
	changes [][]byte
	epochs  []checkpoint.Epoch
	history []checkpoint.Generation
	place   *checkpoint.Place
}

// step is what the log has of one.
type step struct {
	record, frame []byte
	digest        *[32]byte
}

// log is one opening of a store.
type log struct {
	store   *Store
	opts    checkpoint.Options
	closed  bool
	cause   error
	stopped chan struct{}
}

// Log is a log that can be made to fail.
type Log interface {
	checkpoint.Log
	// Fail stops the log as a failed disk does: every method returns an error of class
	// fault.Lost from then on. What was written stays in the store.
	Fail(cause error)
}

// Open opens the log, or begins it. Errors are of class fault.User, as checkpoint.Open's.
func (s *Store) Open(opts checkpoint.Options) (Log, error) {
	if opts.KeyFrameEvery == 0 {
		opts.KeyFrameEvery = 256
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch anyone := opts.ReadOnly && opts.Identity == [32]byte{}; {
	case opts.KeyFrameEvery < 0:
		return nil, fault.Userf("a key frame every %d steps: the number is 1 or more", opts.KeyFrameEvery)
	case s.open:
		return nil, fault.Userf("the log is open already")
	case opts.ReadOnly && !s.begun:
		return nil, fault.Userf("there is no log in this store")
	case s.begun && s.job != opts.Identity && !anyone:
		return nil, fault.Userf("the log belongs to the job with identity %x, not to this one, %x", s.job, opts.Identity)
	}
	if !s.begun {
		s.begun, s.job = true, opts.Identity
	}
	s.open = true
	return &log{store: s, opts: opts, stopped: make(chan struct{})}, nil
}

// enter locks the store for a call, unless the log is closed or has failed. The caller
// unlocks it if there is no error.
func (l *log) enter() error {
	l.store.mu.Lock()
	err := l.cause
	if err == nil && l.closed {
		err = checkpoint.ErrClosed
	}
	if err != nil {
		l.store.mu.Unlock()
	}
	return err
}

func (l *log) Write(ops ...checkpoint.Op) error {
	if err := l.enter(); err != nil {
		return err
	}
	s := l.store
	defer s.mu.Unlock()
	before := s.data
	s.place = nil
	if len(ops) > 1 {
		s.steps = slices.Clone(s.steps) // do changes steps in place; to the other slices it only appends
	}
	for _, op := range ops {
		if err := s.do(op); err != nil {
			s.data = before
			return err
		}
	}
	return nil
}

func (d *data) do(op checkpoint.Op) error {
	switch op := op.(type) {
	case checkpoint.Append:
		return d.append(op.Step, op.Record, op.Frame)
	case checkpoint.SetDigest:
		return d.setDigest(op.Step, op.Digest)
	case checkpoint.Truncate:
		if n := max(op.From, d.first) - d.first; n < int64(len(d.steps)) {
			d.steps = slices.Clone(d.steps[:n])
		}
	case checkpoint.AddChange:
		d.changes = append(slices.Clip(d.changes), bytes.Clone(op.Change))
	case checkpoint.Fence:
		return d.fence(op.Epoch)
	case checkpoint.SetGeneration:
		return d.setGeneration(op.Generation)
	case checkpoint.Place:
		d.place = &op
	}
	return nil
}

func (l *log) Append(at int64, record, frame []byte) error {
	return l.Write(checkpoint.Append{Step: at, Record: record, Frame: frame})
}

func (l *log) SetDigest(at int64, digest [32]byte) error {
	return l.Write(checkpoint.SetDigest{Step: at, Digest: digest})
}

func (l *log) Truncate(from int64) error { return l.Write(checkpoint.Truncate{From: from}) }

func (l *log) AddChange(change []byte) error { return l.Write(checkpoint.AddChange{Change: change}) }

func (l *log) Fence(epoch uint64) error { return l.Write(checkpoint.Fence{Epoch: epoch}) }

func (l *log) SetGeneration(g checkpoint.Generation) error {
	return l.Write(checkpoint.SetGeneration{Generation: g})
}

func (d *data) append(at int64, record, frame []byte) error {
	next := d.first + int64(len(d.steps))
	switch {
	case at < 0 || at == math.MaxInt64:
		return fmt.Errorf("appending step %d: %w: steps are 0 to 2^63-2", at, checkpoint.ErrOrder)
	case len(record)+len(frame) > checkpoint.MaxBytes:
		return fmt.Errorf("appending step %d: record and frame have %d bytes, at most %d are taken", at, len(record)+len(frame), checkpoint.MaxBytes)
	case d.has(at):
		return d.at(at).replay(at, record, frame)
	case len(d.steps) > 0 && at != next:
		return fmt.Errorf("appending step %d: %w: the log holds %d to %d", at, checkpoint.ErrOrder, d.first, next-1)
	case len(d.steps) == 0:
		d.first = at
	}
	d.steps = append(d.steps, step{record: bytes.Clone(record), frame: bytes.Clone(frame)})
	return nil
}

func (d *data) has(at int64) bool { return d.first <= at && at < d.first+int64(len(d.steps)) }
func (d *data) at(at int64) *step { return &d.steps[at-d.first] }

// replay compares a step with what the log holds of it.
func (x *step) replay(at int64, record, frame []byte) error {
	if !bytes.Equal(x.record, record) || frame != nil && x.frame != nil && !bytes.Equal(x.frame, frame) {
		return fmt.Errorf("step %d of the log: %w", at, checkpoint.ErrDiverged)
	}
	if x.frame == nil {
		x.frame = bytes.Clone(frame)
	}
	return nil
}

func (d *data) setDigest(at int64, digest [32]byte) error {
	if !d.has(at) {
		return fmt.Errorf("setting the digest of step %d: %w: it is not in the log", at, checkpoint.ErrOrder)
	}
	x := d.at(at)
	if x.digest != nil && *x.digest != digest {
		return fmt.Errorf("the digest of step %d of the log: %w", at, checkpoint.ErrDiverged)
	}
	x.digest = &digest
	return nil
}

func (l *log) Changes() (changes [][]byte, err error) {
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.store.mu.Unlock()
	for _, c := range l.store.changes {
		changes = append(changes, bytes.Clone(c))
	}
	return changes, nil
}

func (l *log) Epoch() uint64 {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	return l.store.epoch()
}

func (d *data) epoch() uint64 {
	if len(d.epochs) == 0 {
		return 0
	}
	return d.epochs[len(d.epochs)-1].Number
}

func (l *log) Epochs() ([]checkpoint.Epoch, error) {
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.store.mu.Unlock()
	return slices.Clone(l.store.epochs), nil
}

func (d *data) fence(epoch uint64) error {
	if epoch <= d.epoch() || epoch > math.MaxInt64 {
		return fmt.Errorf("fencing epoch %d: %w: the highest so far is %d", epoch, checkpoint.ErrOrder, d.epoch())
	}
	next := int64(0)
	if len(d.steps) > 0 {
		next = d.first + int64(len(d.steps))
	}
	d.epochs = append(slices.Clip(d.epochs), checkpoint.Epoch{Number: epoch, Step: next})
	return nil
}

func (d *data) setGeneration(g checkpoint.Generation) error {
	at, known := slices.BinarySearchFunc(d.history, g, func(a, b checkpoint.Generation) int { return cmp.Compare(a.Number, b.Number) })
	switch {
	case g.Step < 0 || g.Number > math.MaxInt64 || !known && at < len(d.history):
		return fmt.Errorf("generation %d from step %d on: %w", g.Number, g.Step, checkpoint.ErrOrder)
	case known && d.history[at] != g:
		return fmt.Errorf("generation %d from step %d on: %w", g.Number, g.Step, checkpoint.ErrDiverged)
	case !known:
		d.history = append(slices.Clip(d.history), g)
	}
	return nil
}

func (l *log) Place() (p checkpoint.Place, ok bool) {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if l.store.place == nil {
		return p, false
	}
	return *l.store.place, true
}

func (l *log) Generations() ([]checkpoint.Generation, error) {
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.store.mu.Unlock()
	return slices.Clone(l.store.history), nil
}

func (l *log) First() (step int64, ok bool) {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	return l.store.first, len(l.store.steps) > 0
}

func (l *log) Last() (step int64, ok bool) {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	return l.store.first + int64(len(l.store.steps)) - 1, len(l.store.steps) > 0
}

func (l *log) FrameDue(step int64) bool {
	_, some := l.Last()
	return !some || step%int64(l.opts.KeyFrameEvery) == 0
}

func (l *log) Records(from, to int64, fn func(step int64, record []byte) error) error {
	if err := l.enter(); err != nil {
		return err
	}
	first, steps := l.store.first, slices.Clone(l.store.steps)
	l.store.mu.Unlock()
	for i, x := range steps {
		if at := first + int64(i); from <= at && at < to {
			if err := fn(at, bytes.Clone(x.record)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *log) Frame(atOrBefore int64) (at int64, frame []byte, ok bool, err error) {
	if err := l.enter(); err != nil {
		return 0, nil, false, err
	}
	defer l.store.mu.Unlock()
	for i, x := range slices.Backward(l.store.steps) {
		if at := l.store.first + int64(i); at <= atOrBefore && x.frame != nil {
			return at, bytes.Clone(x.frame), true, nil
		}
	}
	return 0, nil, false, nil
}

func (l *log) ReadDigest(at int64) (digest [32]byte, ok bool, err error) {
	if err := l.enter(); err != nil {
		return digest, false, err
	}
	defer l.store.mu.Unlock()
	if !l.store.has(at) || l.store.at(at).digest == nil {
		return digest, false, nil
	}
	return *l.store.at(at).digest, true, nil
}

func (l *log) Close() error {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed, l.store.open = true, false
	return l.cause
}

func (l *log) Fail(cause error) {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if l.cause == nil {
		l.cause = fault.Lostf("the log has stopped: %w", cause)
		close(l.stopped)
	}
}

func (l *log) Stopped() <-chan struct{} { return l.stopped }

func (l *log) Err() error {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	return l.cause
}
