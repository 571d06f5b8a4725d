package sourceloader

import (
	"fmt"
	"sync/atomic"
	"time"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// What a loader says of its waits: which file it reads, and whether anything of it moves.

// progress rises as long as something is read, made of what was read, or in the hands of a function.
func (l *Loader) progress() uint64 {
	moved := uint64(l.store.Meter().Bytes)
	select {
	case <-l.ready:
		moved += l.cache.work.Load()
		if l.executor != nil {
			moved += l.executor.calls.seconds()
		}
	default: // there is no job yet
	}
	return moved
}

// waiting returns what says what an answer waits for, and how long nothing has moved. It is for
// one goroutine.
func (l *Loader) waiting(req *pb.FetchRequest, at *atomic.Int64) func() *pb.Waiting {
	before, moved := l.progress(), time.Now()
	return func() *pb.Waiting {
		if now := l.progress(); now != before {
			before, moved = now, time.Now()
		}
		return &pb.Waiting{Reason: l.waits(req, at.Load()), IdleMs: uint64(time.Since(moved).Milliseconds())}
	}
}

// waits says what an answer waits for that is at a block of its request.
func (l *Loader) waits(req *pb.FetchRequest, at int64) string {
	select {
	case <-l.ready:
	default:
		return "has no job yet"
	}
	if at >= int64(len(req.Blocks)) {
		return "is putting its answer together"
	}
	b := req.Blocks[at]
	text := fmt.Sprintf("is at block %d of source %d", b.Seq, b.Source)
	_, lazy := l.known(b.Source)
	if lazy != nil {
		text = fmt.Sprintf("is at block %d of source %q", b.Seq, lazy.assigned.Name)
	}
	if file := l.cache.reads(blockID{b.Source, b.Seq}); file != "" {
		text += ", and reads " + file
	}
	return text + l.calling(lazy)
}

// reading is the file that has been read for longest, and what is called for its source; "" if none is read.
func (l *Loader) reading() string {
	id, file := l.cache.longest()
	if file == "" {
		return ""
	}
	_, lazy := l.known(id.source)
	return file + l.calling(lazy)
}

// calling says which call of a source, which may be nil, began first, and what it asks that does not answer.
func (l *Loader) calling(lazy *lazySource) (text string) {
	if lazy == nil || l.executor == nil {
		return ""
	}
	if longest := l.executor.calls.longest(lazy.assigned.Name); longest != "" {
		text = ", where " + longest
	}
	if away := l.executor.awaits(lazy.assigned.Name); away != "" {
		text += "; " + away
	}
	return text
}

// awaits says what the functions of a source ask that does not answer; "" if all does.
func (x *executor) awaits(source string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, f := range x.flows {
		if f.source.Spec.Name != source {
			continue
		}
		for _, asks := range f.asks {
			if away := asks.Awaits(); away != "" {
				return away
			}
		}
	}
	return ""
}

// reads is the file that is being read for a block; "" if none is.
func (c *cache) reads(id blockID) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[id].reads()
}

// longest is the block whose reading began first, and the file that is being read of it; "" if none is.
func (c *cache) longest() (id blockID, file string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var begun time.Time
	for of, e := range c.entries {
		if f := e.reads(); f != "" && (file == "" || e.begun.Before(begun)) {
			id, file, begun = of, f, e.begun
		}
	}
	return id, file
}

// reads is the file that is being read for an entry, which may be nil; "" if none is.
func (e *entry) reads() string {
	if e == nil {
		return ""
	}
	select {
	case <-e.done:
		return ""
	default:
	}
	if file := e.file.Load(); file != nil {
		return *file
	}
	return ""
}
