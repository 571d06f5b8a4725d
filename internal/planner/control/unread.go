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
	if !wanted || owner != l && slices.Contains(m.unread[b], l) {
		return true // another one has read it, or does
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
	return true
}
