package control

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
	"github.com/millrace-data/millrace/jobspec"
)

// sources are those of the spec, then those that joined or are about to.
type sources struct {
	specs   []jobspec.Source
	entries [][]byte        // of the sources that joined, or are about to
	joined  int             // how many of entries have joined
	refused error           // why the one that is about to join cannot
	unbound map[string]bool // entries that the operator's changes or the log have: they may be read from anywhere
	indexed []*Indexed      // by source; nil until it is known
	found   map[fileName]*FileFound
	ledgers []ledger // by source
}

// fileName is a file as a person names it.
type fileName struct {
	source int
	name   string
}

func newSources() sources {
	return sources{unbound: map[string]bool{}, found: map[fileName]*FileFound{}}
}

func namesOf(sources []jobspec.Source) []string {
	names := make([]string, len(sources))
	for i, s := range sources {
		names[i] = s.Name
	}
	return names
}

// forgetLookups forgets the files that are looked for.
func (s *sources) forgetLookups() {
	maps.DeleteFunc(s.found, func(_ fileName, f *FileFound) bool { return f == nil })
}

// entry finds the entry of a source that joins, or returns -1.
func (s *sources) entry(entry []byte) int {
	return slices.IndexFunc(s.entries, func(e []byte) bool { return bytes.Equal(e, entry) })
}

// Sources are the sources of the spec, then those that joined or will.
func (c *Core) Sources() []jobspec.Source { return c.sources.specs }

// base is the number of sources of the job spec; those that joined come after.
func (c *Core) base() int { return len(c.cfg.Job.Sources) }

func (c *Core) sourceNames() []string { return namesOf(c.sources.specs) }

// addSource makes room for one more source.
func (c *Core) addSource(spec jobspec.Source) {
	s := &c.sources
	s.specs = append(s.specs, spec)
	s.indexed = append(s.indexed, nil)
	s.ledgers = append(s.ledgers, newLedger())
	c.data.add()
}

// joinedUpTo notes that the sources of the first n entries have joined.
func (c *Core) joinedUpTo(n int) {
	for ; c.sources.joined < n; c.sources.joined++ {
		c.sendAll(func(m *constructor) Effect { return c.joinedOrder(m, c.sources.joined) })
	}
	c.readersChanged()
}

// joinedOrder tells a constructor of the n-th source that joined.
func (c *Core) joinedOrder(m *constructor, n int) Effect {
	s := c.sources.specs[c.base()+n]
	return Joined{m.session, s.Name, s.Keep}
}

// addOrder tells a loader of the n-th source to join.
func (c *Core) addOrder(l *loader, n int) Effect {
	add := AddSource{To: l.session, Source: c.base() + n, Spec: c.sources.specs[c.base()+n]}
	if !c.sources.unbound[string(c.sources.entries[n])] {
		add.Roots = c.cfg.AllowRoots
	}
	return add
}

// joining says whether a source other than this one is being indexed to join as
// the n-th. When that is over and it did not join, nobody waits for it any more:
// it is forgotten.
func (c *Core) joining(n int, entry []byte) bool {
	s := &c.sources
	if n < s.joined || n >= len(s.entries) || bytes.Equal(s.entries[n], entry) {
		return false
	}
	if s.indexed[c.base()+n] == nil && s.refused == nil {
		c.wait(onSources)
		return true
	}
	c.forget(n)
	return false
}

// forget makes room for another n-th source to join.
func (c *Core) forget(n int) {
	s, i := &c.sources, c.base()+n
	s.refused = nil
	s.specs, s.indexed, s.entries = s.specs[:i], s.indexed[:i], s.entries[:n]
	s.ledgers = s.ledgers[:i]
	for _, l := range c.members.loaders {
		l.opened = l.opened[:min(len(l.opened), i)]
	}
	c.data.forget(i)
	c.raise(onSources)
}

// forgetRefused makes room for other sources once a token was refused that brought some, unless one is being indexed:
// what is heard of that would be taken for another one's.
func (c *Core) forgetRefused(at *token.Position) {
	s := &c.sources
	last := len(s.indexed) - 1
	if at != nil && len(at.Entries()) > s.joined && len(s.entries) > s.joined && (s.indexed[last] != nil || s.refused != nil) {
		c.forget(s.joined)
	}
}

// know makes sure that the n-th source to join is the one of this entry, and
// that loaders have indexed it. Until they have, it reports false and is to be
// asked again.
func (c *Core) know(n int, entry []byte) (ready bool, err error) {
	s, i := &c.sources, c.base()+n
	switch {
	case n < len(s.entries) && !bytes.Equal(s.entries[n], entry):
		return false, fault.Userf("source %q joined this service as number %d, and the entry %s is another one: start a new service", s.specs[i].Name, i, entry)
	case n < len(s.entries) && s.indexed[i] == nil && s.refused != nil:
		err := s.refused
		c.forget(n)
		return false, fault.As(fault.User, fmt.Errorf("the source cannot join: %w", err))
	case n < len(s.entries) && s.indexed[i] != nil:
		return true, nil
	case n < len(s.entries):
		c.wait(onSources)
		return false, nil
	}
	spec, err := c.parse(entry)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(s.specs, func(s jobspec.Source) bool { return s.Name == spec.Name }) {
		return false, fault.Userf("there is a source %q already: give the new one another name, or resume the old one", spec.Name)
	}
	s.entries = append(s.entries, bytes.Clone(entry))
	c.addSource(spec)
	for _, l := range c.members.loaders {
		c.emit(c.addOrder(l, n))
	}
	c.index(i)
	c.wait(onSources)
	return false, nil
}

// trustEntry notes that the operator, or the log, has a change: a source that it adds may be read from anywhere.
func (c *Core) trustEntry(ch change.Change) {
	if ch.Add != nil {
		c.sources.unbound[string(ch.Add.Source)] = true
	}
}

// parse reads the entry of a source that joins. One that others sent may reach what the operator allows, and nothing else.
func (c *Core) parse(entry []byte) (jobspec.Source, error) {
	if c.sources.unbound[string(entry)] {
		spec, findings := jobspec.ParseSource(c.cfg.Job, entry)
		return spec, fault.As(fault.User, findings.Err())
	}
	spec, findings := jobspec.ParseSource(c.cfg.Job, entry, jobspec.NoVariables())
	if err := findings.Err(); err != nil {
		return spec, fault.As(fault.User, err)
	}
	return spec, c.cfg.Job.CheckRoots(spec, c.cfg.AllowRoots)
}

// index has a source indexed by the loader that reads it first.
func (c *Core) index(i int) {
	if l := c.loaderOf(block{source: int32(i)}); l != nil {
		c.emit(Index{To: l.session, Source: i})
	}
}

// loaderFailed ends the job, or the attempt of a source to join it. What a block lacks ends a job that needs the block.
func (c *Core) loaderFailed(ev LoaderFailed) {
	i, s := ev.Source, &c.sources
	if i >= len(s.indexed) {
		return // it could not join, and was forgotten
	}
	if i >= 0 && i == len(s.indexed)-1 && i >= c.base()+s.joined && s.indexed[i] == nil {
		s.refused = ev.Err
		c.raise(onSources)
		c.start() // that may wait for it
		return
	}
	if c.readElsewhere(ev) {
		return
	}
	err := c.afterJoining(i, ev.Err)
	if c.plan != nil && i >= 0 && ev.Block >= 0 {
		c.tell(plan.BlockUnread{Source: int32(i), Seq: ev.Block, Err: err})
		return
	}
	c.fail(err)
}

// afterJoining says how a job goes on without a source that joined it and cannot be read: the change is in its log, and
// so may steps be that have the source, none of which needed what cannot be read.
func (c *Core) afterJoining(source int, err error) error {
	n := source - c.base()
	if n < 0 || fault.ClassOf(err) != fault.User {
		return err
	}
	for _, e := range c.journal.entries {
		if e.Add == nil {
			continue
		}
		if n == 0 {
			drop := e.Step
			if c.plan != nil {
				drop = max(drop, c.plan.Planned())
			}
			return fault.As(fault.User, fmt.Errorf("%w; it joined at step %d: to go on without it, start the service again with --changes FILE, of a line {\"step\": %d, \"drop\": %q}", err, e.Step, drop, c.sources.specs[source].Name))
		}
		n--
	}
	return err
}

// sourceIndexed takes what a loader says its files of a source are: the first one's are
// the source's, and all others' have to be the same.
func (c *Core) sourceIndexed(ev Indexed) {
	l := c.members.loader(ev.Session)
	if l == nil || ev.Source >= len(c.sources.indexed) {
		return // the source could not join, and was forgotten
	}
	if ev.Source < 0 || len(ev.Manifest) != 32 || ev.Blocks == 0 {
		c.fail(fmt.Errorf("a loader indexed source %d with %d blocks, which cannot be", ev.Source, ev.Blocks))
		return
	}
	if first := c.sources.indexed[ev.Source]; first == nil {
		c.freeze(l, &ev)
	} else if err := c.data.compareFiles(first, &ev, l.String(), c.cfg.Listing); err != nil {
		c.fail(c.inSource(ev.Source, err))
		return
	}
	c.start()
}

// freeze takes what a loader said of a source as what the source is.
func (c *Core) freeze(l *loader, ev *Indexed) {
	c.sources.indexed[ev.Source] = ev
	if !c.data.list(ev.Source, l.String(), len(ev.Listing)) {
		ev.Listing = nil
	}
	for _, other := range c.members.loaders {
		c.emit(Frozen{other.session, ev.Source, ev.Manifest})
		if other.place == noPlace {
			c.emit(Index{To: other.session, Source: ev.Source, Ahead: true})
		}
	}
	c.raise(onSources)
}

// inSource names the source that an error is about.
func (c *Core) inSource(i int, err error) error {
	return fault.As(fault.ClassOf(err), fmt.Errorf("source %q: %w", c.sources.specs[i].Name, err))
}

// find has the file that a ban means under its own name.
func (c *Core) find(ch *change.Change) (ready bool, err error) {
	path, err := c.fileOf(ch.Ban)
	if path == "" || err != nil {
		return false, err
	}
	ch.Ban = &change.Record{Source: ch.Ban.Source, File: path, Row: ch.Ban.Row}
	return true, nil
}

// fileOf asks the loaders for the file that a ban means; "" until they answered.
func (c *Core) fileOf(b *change.Record) (path string, err error) {
	i, err := change.Find(c.sourceNames(), b.Source)
	if err != nil {
		return "", err
	}
	key := fileName{i, b.File}
	found, asked := c.sources.found[key]
	if l := c.loaderOf(block{source: int32(i)}); !asked && l != nil {
		c.sources.found[key] = nil
		c.emit(Find{l.session, i, b.File})
	}
	if found == nil {
		c.wait(onFiles)
		return "", nil
	}
	delete(c.sources.found, key)
	c.raise(onFiles) // another question that waits for the file asks for itself
	if found.Problem != "" {
		return "", fault.Userf("source %q: %s", b.Source, found.Problem)
	}
	if found.Below > 0 && b.Row >= found.Below {
		return "", fault.Userf("source %q: %s has no record %d: those of this file are below %d; `millrace explain` names them", b.Source, found.Path, b.Row, found.Below)
	}
	return found.Path, nil
}

func (c *Core) fileFound(ev FileFound) {
	key := fileName{ev.Source, ev.Name}
	if _, asked := c.sources.found[key]; !asked {
		return
	}
	c.sources.found[key] = &ev
	c.raise(onFiles)
	c.start()
}

// planSource is what the core of steps has to know of source i.
func (c *Core) planSource(i int) plan.Source {
	s := c.sources.specs[i]
	return plan.Source{Name: s.Name, Blocks: int64(c.sources.indexed[i].Blocks), Limit: s.Limit, Longest: int32(s.Long.Max)}
}

// added is what the core of steps has to know of a source that joins, which is indexed.
func (c *Core) added(entry []byte) (plan.Added, error) {
	n := c.sources.entry(entry)
	if n < 0 || c.sources.indexed[c.base()+n] == nil {
		return plan.Added{}, fmt.Errorf("the source %s is to join, but was not indexed", entry)
	}
	i := c.base() + n
	return plan.Added{Source: c.planSource(i), Spec: entry, Manifest: [32]byte(c.sources.indexed[i].Manifest)}, nil
}
