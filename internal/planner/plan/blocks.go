package plan

import (
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
)

// source is a source and what is known of its blocks.
type source struct {
	Source
	blocks   map[int64]block
	wanted   map[int64]bool
	unread   map[int64]error // of the wanted ones, those that no loader can read: what is drawn before the source goes may not need them
	released int64           // blocks before it were let go
	read     int64           // blocks and samples read so far, for the look-ahead
	samples  int64
	bytes    int64 // of them, in memory
	pace     int64 // samples drawn in the last step
	bans     int   // a reader must know this many of the job's bans to know all of this source
	// Whether it is drawn from soon, and its part of what its readers can do, as of the
	// last look at all sources; see share.
	soon       bool
	busy, room int64
}

// block is the metadata of one block.
type block struct {
	lengths   []int32
	images    *Images
	banned    []Banned
	discarded Discarded
}

// Banned names a sample of a block that comes from a banned record.
type Banned struct {
	Index int32
	Ban   uint32
}

func (c *Core) name(i int32) string { return c.sources[i].Name }

// names are those of all sources.
func (c *Core) names() []string {
	names := make([]string, len(c.sources))
	for i := range c.sources {
		names[i] = c.sources[i].Name
	}
	return names
}

func (c *Core) addSource(s Source) {
	if s.Longest == 0 {
		s.Longest = c.cfg.SequenceLength
	}
	c.sources = append(c.sources, source{Source: s, blocks: map[int64]block{}, wanted: map[int64]bool{}, unread: map[int64]error{}})
}

// ban has all blocks of a source told again: only then is it known which of
// their samples come from the banned record.
func (c *Core) ban(b Ban) {
	s := &c.sources[b.Source]
	s.bans = max(s.bans, int(b.ID)+1)
	clear(s.blocks)
}

func (c *Core) blockRead(ev BlockRead) {
	s := &c.sources[ev.Source]
	if !s.wanted[ev.Seq] {
		return // of another generation, or told twice
	}
	if ev.Bans < s.bans {
		c.emit(Want{ev.Source, ev.Seq}) // read before the last ban was known
		return
	}
	delete(s.wanted, ev.Seq)
	delete(s.unread, ev.Seq)
	for i, n := range ev.Lengths {
		if n < 1 || n > s.Longest {
			c.fail(c.errLength(ev, i, n))
			return
		}
	}
	s.blocks[ev.Seq] = block{ev.Lengths, ev.Images, ev.Banned, ev.Discarded}
	s.read++
	s.samples += int64(len(ev.Lengths))
	s.bytes += ev.Bytes
	if c.pending != nil && c.pending.blocked {
		c.prepared = false
	}
}

// BlockUnread says that no loader can read a block, and why.
type BlockUnread struct {
	Source int32
	Seq    int64
	Err    error
}

func (BlockUnread) event() {}

// blockUnread ends the job; if its source is going to be dropped or paused, or is, only once a sample of the block has to
// be drawn.
func (c *Core) blockUnread(ev BlockUnread) {
	if int(ev.Source) < len(c.sources) && c.sources[ev.Source].wanted[ev.Seq] && slices.Contains(c.ahead().Out, ev.Source) {
		c.sources[ev.Source].unread[ev.Seq] = ev.Err
		return
	}
	c.fail(ev.Err)
}

// release lets go of the blocks that no position from the acked one on needs.
func (c *Core) release() {
	low := make([]int64, len(c.sources))
	at := c.window[c.acked]
	for i, cur := range at.Cursors {
		low[i] = cur.Seq
	}
	for _, r := range at.Carry {
		low[r.Source] = min(low[r.Source], r.Seq)
	}
	for _, h := range at.Held {
		low[h.Source] = min(low[h.Source], h.Seq)
	}
	for i := range c.sources {
		s := &c.sources[i]
		if low[i] <= s.released {
			continue
		}
		for seq := range s.blocks {
			if seq < low[i] {
				delete(s.blocks, seq)
			}
		}
		for seq := range s.wanted { // nobody reads it any more
			if seq < low[i] {
				delete(s.wanted, seq)
				delete(s.unread, seq)
			}
		}
		s.released = low[i]
		c.emit(Release{int32(i), low[i]})
	}
}

// want asks for a block once.
func (c *Core) want(src int32, seq int64) {
	s := &c.sources[src]
	if _, known := s.blocks[seq]; known || s.wanted[seq] {
		return
	}
	s.wanted[seq] = true
	c.emit(Want{src, seq})
}

// Reader is what reads a source: Blocks at a time, with this many bytes of Memory.
// Sources of one Group share it; groups are numbered from 0, and no more than sources.
type Reader struct {
	Group, Blocks int
	Memory        int64
}

// Readers says what reads each source. No plan depends on it: it decides how far
// ahead blocks are asked for.
type Readers struct{ Of []Reader }

func (Readers) event() {}

// wantLimit bounds the blocks of one source that are being read at a time, unless its
// readers can do more: two keep a loader busy while one is on its way, four leave room
// for small ones.
const wantLimit = 4

// allSources is in place of the one of which a block was read.
const allSources = -1

// lookAhead asks for blocks until Window samples, or those of the steps that are
// planned ahead twice over, of each active source are known or on their way; and for
// as many as keep its readers busy, if they have memory for them. It asks for at most
// an epoch, or 64 blocks, ahead. Only a step or a change gives more than one source
// something to ask for: after each of the hundreds of small blocks that a step may
// take, it looks at that one's source.
func (c *Core) lookAhead(read int32) {
	if read != allSources {
		if c.sources[read].soon {
			c.lookAheadIn(read)
		}
		return
	}
	out := c.state.Settings.out(len(c.sources))
	rates := make([]int64, len(c.readers)) // of the sources of each group, together
	for i := range min(len(c.readers), len(c.sources)) {
		rates[c.readers[i].Group] += c.sources[i].rate()
	}
	for i := range c.state.Cursors {
		s := &c.sources[i]
		if s.soon = !out[i] && c.active(i); !s.soon {
			continue
		}
		s.busy, s.room = 0, 0
		if i < len(c.readers) {
			r := &c.readers[i]
			s.busy, s.room = share(r, s.rate(), rates[r.Group])
		}
		c.lookAheadIn(int32(i))
	}
}

// rate is about how many bytes of a source the last step drew.
func (s *source) rate() int64 { return s.inMemory(s.pace) }

// inMemory is about how many bytes a number of samples take.
func (s *source) inMemory(n int64) int64 { return n * s.bytes / max(s.samples, 1) }

// share is how many blocks beyond the one that is drawn from keep a source's part of
// its readers busy, one being ready, and how many bytes they may take: most of the
// memory is for what is drawn from, and for what reading takes.
func share(r *Reader, rate, all int64) (busy, room int64) {
	if rate <= 0 || all <= 0 { // nothing was read, or more than can be counted
		return 0, 0
	}
	if busy = int64(r.Blocks) * rate / all; busy > 0 {
		busy++
	}
	return busy, int64(float64(r.Memory/4) * float64(rate) / float64(all))
}

// active says whether the mix will draw from a source soon.
func (c *Core) active(i int) bool {
	s := c.state.Settings
	switch {
	case i < len(s.Shares):
		return s.Shares[i] > 0
	case i >= len(c.cfg.Sources):
		return true
	case c.cfg.Grain == grainEpoch:
		epoch := c.cfg.epoch(c.state)
		return c.cfg.Schedule.Active(i, epoch, epoch+1)
	default:
		return c.cfg.Schedule.Active(i, c.state.Step, c.state.Step+2*c.cfg.Ahead)
	}
}

// lookAheadIn is lookAhead for one source.
func (c *Core) lookAheadIn(i int32) {
	s, cur := &c.sources[i], c.state.Cursors[i]
	usual := int64(c.cfg.Window) // samples of a block that is not known
	if s.read > 0 {
		usual = max(s.samples/s.read, 1)
	}
	end := cur.Seq + max(s.Blocks, 64)
	if c.cfg.Epochs > 0 {
		end = min(end, c.cfg.Epochs*s.Blocks)
	}
	left := s.Limit - cur.InEpoch // samples until the epoch's limit, if there is one
	known := -int64(cur.Index)
	// A source that gives many samples to a step needs a block read while the
	// steps planned ahead use up the one before it.
	enough := max(int64(c.cfg.Window), 2*c.cfg.Ahead*s.pace)
	for seq := cur.Seq; seq < end && (known < enough || seq-cur.Seq <= s.busy && s.inMemory(known) < s.room); {
		if s.Limit > 0 && left <= 0 {
			seq, left = (seq/s.Blocks+1)*s.Blocks, s.Limit
			continue
		}
		n := usual
		if b, ok := s.blocks[seq]; ok {
			n = int64(len(b.lengths))
		} else if !s.wanted[seq] && int64(len(s.wanted)) >= max(wantLimit, s.busy) {
			break
		} else {
			c.want(i, seq)
		}
		known += n
		left -= n
		if seq++; seq%s.Blocks == 0 {
			left = s.Limit
		}
	}
}

// errDrawn says that a sample that was drawn, maybe in an earlier life of the job, is
// not what its block says now.
func (c *Core) errDrawn(r Ref, lengths []int32) error {
	now := "is not there now"
	if int(r.Index) < len(lengths) {
		now = fmt.Sprintf("has %d now", lengths[r.Index])
	}
	return fault.Userf("source %q, block %d: sample %d had %d tokens when it was drawn, and %s: the data changed; "+
		"put back the files that the job began with, or begin without a resume token", c.name(r.Source), r.Seq, r.Index, r.Length, now)
}

// errLength says that a block holds a sample that no row has room for.
func (c *Core) errLength(ev BlockRead, i int, n int32) error {
	return fmt.Errorf("source %q, block %d: sample %d has %d tokens, which cannot be (1 to %d)",
		c.name(ev.Source), ev.Seq, i, n, c.sources[ev.Source].Longest)
}
