package engine

import (
	"slices"

	"github.com/millrace-data/millrace/internal/engine/schedule"
)

// Spill keeps partitions outside of memory. It is safe for concurrent use.
type Spill interface {
	// Reserve keeps room for a partition, and says whether there is any. It returns at once: the executor's loop
	// calls it.
	Reserve(p Partition) bool
	// Write writes a partition for which room was reserved; an error gives the room back, and the partition stays
	// where it is.
	Write(p Partition) (Spilled, error)
}

// Spilled is a partition outside of memory.
type Spilled interface {
	// Bytes is what is left of it in memory.
	Bytes() int64
	// Read returns the partition. After an error it is made again from what it was made of.
	Read() (Partition, error)
	// Close gives up the room, whatever Read does. It is called once.
	Close()
}

// A partition that waits, for a task or for its turn to be collected, is written only if nothing works any more; so a
// pipeline within its limit never does. It comes back when what takes it can begin. What the disk lost stays in memory
// once it was made again: else a disk that keeps nothing would have the same work done for ever.

// move is a partition on its way to the disk or back. A slot that is given up or made again meanwhile has
// another or none, and what comes of this one is dropped.
type move struct{}

// The events of moves.
type (
	written struct {
		slot *slot
		move *move
		part Partition
		file Spilled
		err  error
	}
	fetched struct {
		slot *slot
		move *move
		part Partition
		err  error
	}
)

// spillOne has the partition written that is needed last of those that wait. It says whether there is one, and room
// for it.
func (e *Executor) spillOne() bool {
	if e.spill == nil {
		return false
	}
	s := e.latest()
	if s == nil || !e.spill.Reserve(s.part) {
		return false
	}
	if s.to != nil && s.to.state == queued {
		s.from.src.run.pipeline.unqueue(s.to)
		s.to.state = blocked
	}
	part, m := s.part, e.moves(s)
	s.part = nil
	e.wait.Go(func() {
		file, err := e.spill.Write(part)
		e.inbox <- written{s, m, part, file, err}
	})
	return true
}

// moves begins a move of a slot.
func (e *Executor) moves(s *slot) *move {
	s.move = &move{}
	e.moving++
	return s.move
}

// latest is the partition that is needed last of those that wait, nil if there is none. What the first source's
// next task takes is not among them.
func (e *Executor) latest() (found *slot) {
	var next *node
	if s := e.first(); s != nil {
		next = s.next()
	}
	waits := func(s *slot) {
		if s.held && !s.stays && s.part != nil && (s.to == nil && s.from.op+1 == len(s.from.src.run.pipeline.stages) || s.to != nil && s.to != next && (s.to.state == queued || s.to.state == blocked)) {
			found = s // the tree is walked in the order of the data
		}
	}
	for _, p := range slices.Backward(e.active) {
		for _, r := range slices.Backward(p.runs) {
			for _, s := range slices.Backward(r.sources[r.first:]) {
				if s.root.each(waits); found != nil {
					return found
				}
			}
		}
	}
	return nil
}

func (ev written) apply(e *Executor) {
	e.moving--
	s := ev.slot
	if s.move != ev.move {
		if ev.err == nil {
			ev.file.Close()
		}
		return
	}
	s.move = nil
	r := s.from.src.run
	if ev.err != nil {
		e.back(s, ev.part)
		return
	}
	s.held, s.file = false, ev.file
	e.store(r.pipeline, s.from.op, ev.file.Bytes()-s.bytes)
	r.spilled = append(r.spilled, s)
	r.pipeline.spilled, r.pipeline.written = r.pipeline.spilled+s.bytes, r.pipeline.written+s.bytes
	e.seen.spilled.Add(s.bytes)
	e.seen.written.Add(s.bytes)
}

// back has a partition in memory again.
func (e *Executor) back(s *slot, part Partition) {
	s.part, s.held = part, true
	if s.to != nil && s.to.state == blocked && s.to.complete() {
		s.to.state = idle
		e.again(s.to)
	}
}

// fetch brings a partition back. Room for it is the caller's to see.
func (e *Executor) fetch(s *slot) {
	e.store(s.from.src.run.pipeline, s.from.op, s.bytes-s.file.Bytes())
	file, m := s.file, e.moves(s)
	s.held = true
	e.wait.Go(func() {
		part, err := file.Read()
		e.inbox <- fetched{s, m, part, err}
	})
}

func (ev fetched) apply(e *Executor) {
	e.moving--
	s := ev.slot
	if s.move != ev.move {
		return // its file is closed
	}
	e.unfile(s)
	if ev.err != nil || digestOf(ev.part) != s.digest {
		s.stays = true
		e.loseSlot(s.from.src.run.pipeline, s)
		return
	}
	e.back(s, ev.part)
}

// unfile gives up what a slot has outside of memory, or on the way.
func (e *Executor) unfile(s *slot) {
	s.move = nil
	if s.file == nil {
		return
	}
	s.file.Close()
	s.file = nil
	r := s.from.src.run
	r.pipeline.spilled -= s.bytes
	e.seen.spilled.Add(-s.bytes)
	r.spilled = slices.DeleteFunc(r.spilled, func(other *slot) bool { return other == s })
}

// fetchAll brings back what can be used at once: for a task that has a slot, if no other task of its stage has its
// input. Who waits for room goes first.
func (e *Executor) fetchAll() {
	if len(e.waiting) > 0 {
		return
	}
	for _, p := range e.active {
		for _, r := range p.runs {
			if s := r.usable(e); s != nil {
				e.fetch(s)
			}
		}
	}
}

// usable is the first of a run's spilled partitions that a task can take now, nil if there is none.
func (r *run) usable(e *Executor) (found *slot) {
	p := r.pipeline
	var of *source
	var next, tried *node
	var snap *schedule.Snapshot
	for _, s := range r.spilled {
		n := s.to
		if s.move != nil || n == nil || n == tried || n.state != blocked || p.ops[n.op].Queued > 0 || found != nil && found.to.before(n) <= 0 {
			continue
		}
		if tried = n; n.src != of {
			of, next, snap = n.src, n.src.next(), e.roomFor(n.src)
		}
		if of.narrow && n != next {
			continue
		}
		missing, in := int64(0), int64(0)
		for _, other := range n.in {
			if in += other.bytes; other.file != nil {
				missing += other.bytes
			}
		}
		if missing+snap.Growth(n.op, in) <= snap.Room(n.op-1) && e.place(n) != nil {
			found = s
		}
	}
	return found
}

// fetchNext brings back what is collected next, if there is room.
func (e *Executor) fetchNext(s *slot) {
	p := s.from.src.run.pipeline
	if s.move == nil && s.bytes-s.file.Bytes() <= e.limitOf(p)-p.used-p.prom {
		e.fetch(s)
	}
}

// fetchNeeded brings back what the first source waits for, whether there is room or not: nothing else is in
// memory. It says whether there was anything.
func (e *Executor) fetchNeeded(first *source) (any bool) {
	needed := first.next()
	for _, s := range slices.Clone(first.run.spilled) {
		collected, _ := first.root.next(len(first.run.pipeline.stages) - 1)
		if s.move == nil && (s == collected || needed != nil && s.to == needed) {
			e.fetch(s)
			any = true
		}
	}
	return any
}
