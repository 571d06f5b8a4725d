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
	"maps"
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
	steps
	changes [][]byte
	epochs  []checkpoint.Epoch
	history []checkpoint.Generation
	place   *checkpoint.Place
	lines   checkpoint.History // its branches
	left    map[uint64]steps   // branches that were left, as they were then
	trimmed int64
}

// steps are those of a branch, from first on.
type steps struct {
	first int64
	all   []step
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
	s.mu.Lock()
	defer s.mu.Unlock()
	switch anyone := opts.ReadOnly && opts.Identity == [32]byte{}; {
	case s.open:
		return nil, fault.Userf("the log is open already")
	case opts.ReadOnly && !s.begun:
		return nil, fault.Userf("there is no log in this store")
	case s.begun && s.job != opts.Identity && !anyone:
		return nil, fault.Userf("the log belongs to the job with identity %x, not to this one, %x", s.job, opts.Identity)
	}
	if !s.begun {
		s.begun, s.job, s.lines = true, opts.Identity, checkpoint.NewHistory()
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
		s.all = slices.Clone(s.all) // do changes steps in place; to the other slices it only appends
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
		if n := max(op.From, d.first) - d.first; n < int64(len(d.all)) {
			d.leave(op.From)
			d.all = slices.Clone(d.all[:n])
		}
	case checkpoint.Fork:
		d.fork(op)
	case checkpoint.Trim:
		d.trim(op.Before)
	case checkpoint.InBranch:
		return d.goOnIn(op.Number)
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

func (l *log) Trim(before int64) error { return l.Write(checkpoint.Trim{Before: before}) }

func (l *log) AddChange(change []byte) error { return l.Write(checkpoint.AddChange{Change: change}) }

func (l *log) Fence(epoch uint64) error { return l.Write(checkpoint.Fence{Epoch: epoch}) }

func (l *log) SetGeneration(g checkpoint.Generation) error {
	return l.Write(checkpoint.SetGeneration{Generation: g})
}

// leave keeps the steps of the branch that is written, and opens another one.
func (d *data) leave(from int64) {
	d.left = maps.Clone(d.left)
	if d.left == nil {
		d.left = map[uint64]steps{}
	}
	d.left[d.lines.Current().Number] = steps{d.first, slices.Clone(d.all)}
	d.lines = slices.Clone(d.lines).Truncated(from)
	delete(d.left, d.lines.Current().Number) // it has begun again
}

// fork keeps the steps of the branch that is written, and goes on from those of another one.
func (d *data) fork(op checkpoint.Fork) {
	last := d.lines.Current().Number
	d.lines = slices.Clone(d.lines).Forked(op)
	kept, from := map[uint64]steps{}, d.left[op.Parent]
	if op.Parent == last {
		from = d.steps
	}
	for _, b := range d.lines[:len(d.lines)-1] {
		if kept[b.Number] = d.left[b.Number]; b.Number == last {
			kept[last] = d.steps
		}
	}
	d.left = kept
	if d.steps = (steps{}); from.has(op.From - 1) {
		d.steps = steps{from.first, slices.Clone(from.all[:op.From-from.first])}
	}
}

// trim lets go of the steps before the last key frame at or before a step.
func (d *data) trim(before int64) {
	d.trimmed = max(d.trimmed, before)
	at, _, framed := d.frame(before)
	if !framed || at == d.first {
		return
	}
	d.lines = slices.Clone(d.lines).Trimmed(at)
	d.steps = d.from(at)
	kept := map[uint64]steps{}
	for _, b := range d.lines {
		if was, ok := d.left[b.Number]; ok {
			kept[b.Number] = was.from(at)
		}
	}
	d.left = kept
}

// from are the steps from one on.
func (x steps) from(at int64) steps {
	n := min(max(at-x.first, 0), int64(len(x.all)))
	return steps{x.first + n, slices.Clone(x.all[n:])}
}

func (d *data) goOnIn(number uint64) error {
	if last := d.lines.Current(); len(d.all) > 0 || number < last.Number || number > math.MaxInt64 {
		return fmt.Errorf("going on in branch %d: %w: the log has %s", number, checkpoint.ErrOrder, last)
	}
	d.lines = slices.Clone(d.lines)
	*d.lines.Current() = checkpoint.Branch{Number: number, Parent: number}
	return nil
}

func (d *data) append(at int64, record, frame []byte) error {
	next := d.first + int64(len(d.all))
	switch {
	case at < 0 || at == math.MaxInt64:
		return fmt.Errorf("appending step %d: %w: steps are 0 to 2^63-2", at, checkpoint.ErrOrder)
	case len(record)+len(frame) > checkpoint.MaxBytes:
		return fmt.Errorf("appending step %d: record and frame have %d bytes, at most %d are taken", at, len(record)+len(frame), checkpoint.MaxBytes)
	case d.has(at):
		return d.at(at).replay(at, record, frame)
	case len(d.all) > 0 && at != next:
		return fmt.Errorf("appending step %d: %w: the log holds %d to %d", at, checkpoint.ErrOrder, d.first, next-1)
	case len(d.all) == 0:
		d.first = at
	}
	d.lines = slices.Clone(d.lines)
	d.lines.Add(at)
	d.all = append(d.all, step{record: bytes.Clone(record), frame: bytes.Clone(frame)})
	return nil
}

func (x *steps) has(at int64) bool { return x.first <= at && at < x.first+int64(len(x.all)) }
func (x *steps) at(at int64) *step { return &x.all[at-x.first] }

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
	if len(d.all) > 0 {
		next = d.first + int64(len(d.all))
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

func (l *log) First() (step int64, ok bool) { return l.head().First() }
func (l *log) Last() (step int64, ok bool)  { return l.head().Last() }

func (l *log) Branches() []checkpoint.Branch {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	return slices.Clone(l.store.lines)
}

func (l *log) Branch(number uint64) (checkpoint.Steps, error) {
	for _, b := range l.Branches() {
		if b.Number == number {
			return branch{l, number}, nil
		}
	}
	return nil, fault.Userf("the log has no branch %d", number)
}

func (l *log) Trimmed() int64 {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	return l.store.trimmed
}

func (l *log) Records(from, to int64, fn func(step int64, record []byte) error) error {
	return l.head().Records(from, to, fn)
}

func (l *log) Frame(atOrBefore int64) (at int64, frame []byte, ok bool, err error) {
	return l.head().Frame(atOrBefore)
}

func (l *log) ReadDigest(at int64) (digest [32]byte, ok bool, err error) {
	return l.head().ReadDigest(at)
}

// branch is the steps of one.
type branch struct {
	log    *log
	number uint64
}

// head is the branch that is written.
func (l *log) head() branch {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	return branch{l, l.store.lines.Current().Number}
}

// steps are the branch's. The store is locked.
func (b branch) steps() *steps {
	if left, ok := b.log.store.left[b.number]; ok {
		return &left
	}
	return &b.log.store.steps
}

func (b branch) First() (step int64, ok bool) {
	b.log.store.mu.Lock()
	defer b.log.store.mu.Unlock()
	x := b.steps()
	return x.first, len(x.all) > 0
}

func (b branch) Last() (step int64, ok bool) {
	b.log.store.mu.Lock()
	defer b.log.store.mu.Unlock()
	x := b.steps()
	return x.first + int64(len(x.all)) - 1, len(x.all) > 0
}

func (b branch) Records(from, to int64, fn func(step int64, record []byte) error) error {
	if err := b.log.enter(); err != nil {
		return err
	}
	x := steps{b.steps().first, slices.Clone(b.steps().all)}
	b.log.store.mu.Unlock()
	for i, step := range x.all {
		if at := x.first + int64(i); from <= at && at < to {
			if err := fn(at, bytes.Clone(step.record)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b branch) Frame(atOrBefore int64) (at int64, frame []byte, ok bool, err error) {
	if err := b.log.enter(); err != nil {
		return 0, nil, false, err
	}
	defer b.log.store.mu.Unlock()
	at, frame, ok = b.steps().frame(atOrBefore)
	return at, bytes.Clone(frame), ok, nil
}

// frame is the last key frame up to a step.
func (x *steps) frame(atOrBefore int64) (at int64, frame []byte, ok bool) {
	for i, step := range slices.Backward(x.all) {
		if at := x.first + int64(i); at <= atOrBefore && step.frame != nil {
			return at, step.frame, true
		}
	}
	return 0, nil, false
}

func (b branch) ReadDigest(at int64) (digest [32]byte, ok bool, err error) {
	if err := b.log.enter(); err != nil {
		return digest, false, err
	}
	defer b.log.store.mu.Unlock()
	x := b.steps()
	if !x.has(at) || x.at(at).digest == nil {
		return digest, false, nil
	}
	return *x.at(at).digest, true, nil
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
