package control

import (
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
)

// What one machine cannot read another one may: its disk, its memory or its mount can be what
// is at fault. A block counts as unreadable when several loaders, where there are as many,
// could not read it.

// maxUnread is the number of loaders that try to read a block before the job fails: with
// two others, no one machine's fault ends it, and damaged data ends it soon.
const maxUnread = 3

// readElsewhere has a block read by another loader than the one that could not. It says
// whether the failure is taken care of by that; if not it is the job's.
func (c *Core) readElsewhere(ev LoaderFailed) bool {
	l := c.members.loader(ev.Session)
	if l == nil || ev.Source < 0 || ev.Block < 0 || fault.ClassOf(ev.Err) == fault.Bug {
		return false
	}
	b, m := block{int32(ev.Source), ev.Block}, &c.members
	owner, wanted := m.wanted[b]
	if !wanted {
		return !c.unreadAgain(l, b, ev.Err)
	}
	if owner != l && slices.Contains(m.unread[b], l) {
		return true // another one does
	}
	tried := append(m.unread[b], l)
	m.unread[b] = tried
	if owner != l {
		return true // who does was asked when l was in doubt
	}
	at := slices.IndexFunc(m.loaders, func(x *loader) bool { return m.reads(x) && !slices.Contains(tried, x) })
	if at < 0 || len(tried) >= maxUnread {
		return false
	}
	next := m.loaders[at]
	c.note(Warn, fmt.Sprintf("a block could not be read by %s: %s reads it", l, next), "source", c.sources.specs[b.source].Name, "block", b.seq, "err", ev.Err)
	m.wanted[b] = next
	c.emit(Read{next.session, b.source, b.seq})
	c.doubtReader(l, ev.Err)
	return true
}

// A block that was read once is read again when the loader that has it is lost, or let go of it. It is
// then that blocks are found that come as something else each time, to one loader or to all.

const (
	// unreadAgainTime is how long no loader may give the samples of a block before the job fails: time
	// for all to be asked more than once, and for a mount to come back.
	unreadAgainTime Millis = 15_000
	// reportedLately is how old the report of a loader is that counts.
	reportedLately Millis = 15_000
)

// failures are those of loaders to read a block again.
type failures struct {
	since Millis // one followed another from then on
	at    Millis // the last
	last  map[*loader]Millis
}

// unreadAgain notes that a loader cannot read a block again that was read, and says whether no loader
// can: all that are there said so for a while.
func (c *Core) unreadAgain(l *loader, b block, err error) (nobody bool) {
	blocks := c.data.sources[b.source].blocks
	x, known := blocks[b.seq]
	if !known {
		return false // nobody asks for it any more
	}
	if x.failed == nil || c.now-x.failed.at > reportedLately {
		x.failed = &failures{since: c.now, last: map[*loader]Millis{}}
		blocks[b.seq] = x
	}
	x.failed.at, x.failed.last[l] = c.now, c.now
	c.doubtReader(l, err)
	for _, other := range c.members.loaders {
		if at, said := x.failed.last[other]; !said || c.now-at > reportedLately {
			return false
		}
	}
	return c.now-x.failed.since >= unreadAgainTime
}

// doubtReader makes a loader suspect that cannot read what others may. Where half of the loaders are, it
// is not they who are at fault.
func (c *Core) doubtReader(l *loader, err error) {
	if fault.ClassOf(err) == fault.Lost && 2*(c.members.suspects()+1) <= len(c.members.loaders) {
		c.doubtLoader(l, "it cannot read a block: "+err.Error())
	}
}
