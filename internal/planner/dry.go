package planner

import (
	"bytes"
	"slices"

	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/jobspec"
)

// Dry is a planner without sessions, log or trainers: it turns what changes,
// resume tokens and loaders say into what the core knows, by the code that serves
// a job. Whoever holds one drives a core of his own. It is not safe for concurrent
// use.
type Dry struct {
	p     *Planner
	index Indexer
}

// Indexer indexes source i of a job: those of the spec first, then those that
// changes and tokens add, each once.
type Indexer func(i int, spec jobspec.Source) (*pb.SourceIndexed, error)

// NewDry indexes the sources of a job.
func NewDry(job *jobspec.Job, names compile.Registry, index Indexer) (*Dry, error) {
	opts := Options{Job: job, Registry: names}
	opts.withDefaults()
	p, err := newPlanner(opts)
	if err != nil {
		return nil, err
	}
	d := &Dry{p, index}
	for i := range p.sources {
		if err := d.indexed(i); err != nil {
			return nil, err
		}
	}
	if err := p.openLog(); err != nil {
		return nil, err
	}
	cfg, err := p.config()
	if err != nil {
		return nil, err
	}
	p.core = plan.New(cfg)
	return d, nil
}

func (d *Dry) indexed(i int) (err error) {
	d.p.indexed[i], err = d.index(i, d.p.sources[i])
	return err
}

// Config is the configuration of the job's core.
func (d *Dry) Config() (plan.Config, error) { return d.p.config() }

// Root is the chain value before the first step; the job's step log has it as
// its identity.
func (d *Dry) Root() [32]byte { return d.p.root() }

// Sources are the sources of the spec, then those that joined or will.
func (d *Dry) Sources() []jobspec.Source { return d.p.sources }

// Bans are all banned records, whether in force or not.
func (d *Dry) Bans() (bans []*pb.Ban) {
	for _, b := range d.p.bans {
		bans = append(bans, banProto(b))
	}
	return bans
}

// Position is where data, a resume token or a key frame of the log, stands; without
// one, the start of the job. Changes that the token does not know are made on top,
// at their steps; those of steps before it belong to its past, and are refused if
// they stand in a file and it does not have them. It is called once.
func (d *Dry) Position(data []byte, changes []change.Change) (plan.State, error) {
	p, state, start := d.p, plan.Start(d.p.base()), plan.Start(d.p.base())
	for _, c := range changes {
		if c.Cancel != nil {
			p.cancelled[c.Cancel.String()] = true
		}
	}
	changes, err := change.InForce(changes)
	if err != nil {
		return state, err
	}
	if len(data) > 0 {
		at, err := token.Decode(p.id.job(p.limited), data)
		if err != nil {
			return state, err
		}
		at.Pending = slices.DeleteFunc(at.Pending, func(c change.Change) bool { return p.cancelled[c.String()] })
		changes = append(at.Pending[:len(at.Pending):len(at.Pending)], change.Without(changes, at.Pending)...)
		at.Pending = nil
		if state, err = d.resume(at); err != nil {
			return state, err
		}
	}
	for _, c := range changes {
		at := &state
		if at.Step > c.Step {
			at = &start
		}
		if at == &start && c.Origin == "" {
			continue
		}
		if err := d.change(at, c); err != nil {
			return state, err
		}
	}
	return state, p.agree(state)
}

// resume is a token's position, with the sources that joined before it.
func (d *Dry) resume(at *token.Position) (plan.State, error) {
	for _, entry := range at.Entries() {
		if err := d.join(entry); err != nil {
			return at.State, err
		}
	}
	state, err := d.p.whole(at)
	if state.Settings.Mesh != nil {
		d.p.tree = state.Settings.Mesh
	}
	return state, err
}

// change makes one more change part of a position.
func (d *Dry) change(state *plan.State, c change.Change) error {
	if c.Add != nil {
		if err := d.join(c.Add.Source); err != nil {
			return err
		}
	}
	return d.p.resume(state, []change.Change{c}, byUser)
}

// join indexes a source that joins, once.
func (d *Dry) join(entry []byte) error {
	n := len(d.p.entries)
	if slices.ContainsFunc(d.p.entries, func(e []byte) bool { return bytes.Equal(e, entry) }) {
		return nil
	}
	if _, err := d.p.know(n, entry); err != nil {
		return err
	}
	return d.indexed(d.p.base() + n)
}

// BlockRead is what the core is told of a block. It is an error if the source
// has more bad records than its policy allows.
func (d *Dry) BlockRead(b *pb.BlockRead) (plan.BlockRead, error) {
	if !d.p.note(b) {
		return plan.BlockRead{}, d.p.failed
	}
	return blockEvent(b)
}
