package planner

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/planner/mesh"
)

// Change implements the Planner service.
func (p *Planner) Change(ctx context.Context, req *pb.ChangeRequest) (*pb.ChangeReply, error) {
	if len(req.Identity) > 0 && !bytes.Equal(req.Identity, p.id.spec[:]) {
		return nil, rpc.ToStatus(fault.Userf("a change to spec %x was asked for, this service runs %x", head(req.Identity), p.id.spec[:6]))
	}
	c, err := change.Parse(req.Change)
	if err = cmp.Or(err, checkFrom(c, req.Token)); err != nil {
		return nil, rpc.ToStatus(err)
	}
	ctx, cancel := rpc.Early(ctx)
	defer cancel()
	reply := &pb.ChangeReply{}
	var refused error
	err = p.ask(ctx, func() bool {
		var done bool
		if len(req.Token) > 0 {
			reply.Step, done, refused = p.proceedFrom(c, req.Token)
		} else {
			reply.Step, done, refused = p.proceedChange(c)
		}
		return done || refused != nil
	})
	if err != nil {
		err = p.waitedFor(ctx, err)
	}
	return reply, rpc.ToStatus(cmp.Or(err, refused))
}

// proceedChange makes a change, or takes it as far as it goes now.
func (p *Planner) proceedChange(c change.Change) (step uint64, done bool, err error) {
	switch {
	case p.failed != nil:
		return 0, false, rpc.Final(p.failed)
	case p.core == nil:
		return 0, false, nil
	case !p.positioned:
		return 0, false, nil // the first trainer says at which step the job goes on
	case c.Cancel != nil:
		step, err = p.cancel(c)
		return step, err == nil, err
	case c.Add != nil:
		n := p.core.Sources() - p.base()
		if p.joining(n, c.Add.Source) {
			return 0, false, nil // another source is about to join
		}
		if ready, err := p.know(n, c.Add.Source); !ready || err != nil {
			return 0, false, err
		}
	case c.Ban != nil:
		if ready, err := p.find(&c); !ready || err != nil {
			return 0, false, err
		}
	}
	step, err = p.change(c)
	if n := p.core.Sources() - p.base(); err != nil && c.Add != nil && p.failed == nil && n >= p.joined {
		p.forget(n)
	}
	return step, err == nil, err
}

// fileName is a file as a person names it.
type fileName struct {
	source uint32
	name   string
}

// find has the file that a ban means under its own name.
func (p *Planner) find(c *change.Change) (ready bool, err error) {
	path, err := p.fileOf(c.Ban)
	if path == "" || err != nil {
		return false, err
	}
	c.Ban = &change.Record{Source: c.Ban.Source, File: path, Row: c.Ban.Row}
	return true, nil
}

// fileOf asks the loaders for the file that a ban means; "" until they answered.
func (p *Planner) fileOf(b *change.Record) (path string, err error) {
	i, err := change.Find(p.sourceNames(), b.Source)
	if err != nil {
		return "", err
	}
	key := fileName{uint32(i), b.File}
	found, asked := p.found[key]
	switch {
	case !asked && len(p.loaders) > 0:
		p.found[key] = nil
		p.loaderOf(int32(i), 0).out.Put(&pb.LoaderOrder{Order: &pb.LoaderOrder_Find{Find: &pb.FindFile{Source: key.source, Name: b.File}}})
		return "", nil
	case found == nil:
		return "", nil
	}
	delete(p.found, key)
	if found.Problem != "" {
		return "", fault.Userf("source %q: %s", b.Source, found.Problem)
	}
	if found.Below > 0 && b.Row >= int64(found.Below) {
		return "", fault.Userf("source %q: %s has no record %d: those of this file are below %d; `millrace explain` names them", b.Source, found.Path, b.Row, found.Below)
	}
	return found.Path, nil
}

// change makes a change: durable first, then in force.
func (p *Planner) change(c change.Change) (uint64, error) {
	c.Step = max(p.core.Effective(c.Step), p.loggedSteps())
	if p.ended >= 0 {
		return 0, fault.Userf("the data ends after step %d, and all steps are planned: there is none left to change", p.ended-1)
	}
	ch, err := p.resolve(p.core, c)
	if err != nil {
		return 0, err
	}
	if err := p.core.Check(ch); err != nil {
		return 0, err
	}
	if err := p.store(ch); err != nil {
		p.fail(err)
		return 0, err
	}
	p.enter(ch)
	p.apply(plan.Changed{Change: ch})
	return uint64(ch.Step), p.failed
}

// loggedSteps is the number of steps whose plans are in the log, whether they
// were planned again in this life or not.
func (p *Planner) loggedSteps() int64 {
	if p.log == nil {
		return 0
	}
	last, ok := p.log.Last()
	if !ok {
		return 0
	}
	return last + 1
}

// store makes a change durable.
func (p *Planner) store(ch plan.Change) error {
	if p.log == nil {
		return nil
	}
	return p.log.AddChange(ch.Text)
}

// enter takes a change into the journal, and tells those who have to know before
// the core acts upon it.
func (p *Planner) enter(ch plan.Change) {
	p.opts.Log.Info("change", "job", p.id.name, "change", string(ch.Text))
	p.journal, p.made = append(p.journal, ch), append(p.made, string(ch.Text))
	switch ch.Kind {
	case plan.BanSample:
		p.ban(ch.Ban)
	case plan.AddSource:
		p.joinedUpTo(1 + slices.IndexFunc(p.entries, func(e []byte) bool { return bytes.Equal(e, ch.Add.Spec) }))
	}
}

// maker says where a change comes from that is made before its step is near.
type maker int

const (
	byLog   maker = iota // an earlier life of the log: it was checked then
	byToken              // an earlier life, which may have had another log
	byUser               // it is new
)

// resume enters changes in the journal and makes them part of a position. The
// sources that they add are indexed.
func (p *Planner) resume(state *plan.State, changes []change.Change, by maker) error {
	if len(changes) == 0 {
		return nil
	}
	cfg, err := p.config()
	if err != nil {
		return err
	}
	at := plan.New(cfg) // to understand them by; it plans nothing
	for _, c := range changes {
		at.Apply(plan.Rewind{State: *state})
		ch, err := p.resolve(at, c)
		if err == nil && by == byUser {
			err = cmp.Or(p.unlogged(ch), at.Check(ch))
		}
		if err != nil {
			return fault.As(fault.ClassOf(err), fmt.Errorf("%sthe change %s: %w", c.Origin, c, err))
		}
		p.enter(ch)
		p.origins[string(ch.Text)] = c.Origin
		state.Await(ch)
	}
	if by == byLog {
		return nil
	}
	for _, ch := range p.journal[len(p.journal)-len(changes):] { // all or, if one was refused, none
		if err := p.store(ch); err != nil {
			return err
		}
	}
	return nil
}

// unlogged refuses a change that would make a step another one than the log has.
func (p *Planner) unlogged(ch plan.Change) error {
	if n := p.loggedSteps(); ch.Step < n {
		return fault.Userf("the log in %s has the steps before %d already: valid is step %d or later, or a log folder of its own", p.opts.LogDir, n, n)
	}
	return nil
}

// resolve turns the names of a change, whose step is final, into numbers. core has
// all changes before it.
func (p *Planner) resolve(core *plan.Core, c change.Change) (ch plan.Change, err error) {
	ch = plan.Change{Step: c.Step, Text: []byte(c.String())}
	all := p.sourceNames()
	names := all[:min(core.SourcesAt(c.Step), len(all))]
	if source := c.Source(); source != "" {
		i, err := change.Find(names, source)
		if err != nil && slices.Contains(all[:min(core.Sources(), len(all))], source) {
			err = fault.Userf("source %q joins after step %d", source, c.Step)
		}
		if err != nil {
			return ch, err
		}
		ch.Source = int32(i)
	}
	switch {
	case c.Weights != nil:
		ch.Kind = plan.SetShares
		if ch.Weights, err = c.WeightsOf(names); err != nil {
			return ch, err
		}
		ch.Shares = mix.FromWeights(ch.Weights)
	case c.Schedule:
		ch.Kind = plan.UseSchedule
	case c.Pause != "":
		ch.Kind = plan.Pause
	case c.Resume != "":
		ch.Kind = plan.Unpause
	case c.Drop != "":
		ch.Kind = plan.Drop
	case c.Add != nil:
		ch.Kind = plan.AddSource
		ch.Add, err = p.added(c.Add)
	case c.Topology != nil:
		ch.Kind, ch.From = plan.Remesh, c.From != ""
		if ch.Mesh, err = remeshed(core.Mesh(), c.Topology); err == nil {
			err = p.reshaped(int(core.SequenceLength()), ch.Mesh)
		}
	case c.Skip > 0:
		ch.Kind, ch.Steps = plan.Skip, c.Skip
	case c.Ban != nil:
		ch.Kind = plan.BanSample
		ch.Ban = p.banOf(ch.Source, c.Ban.File, c.Ban.Row)
	default:
		if c.SequenceLength > 0 {
			err = p.reshaped(c.SequenceLength, core.Mesh())
		}
		ch.Kind, ch.Batch = plan.Resize, plan.Shape{SequenceLength: int32(c.SequenceLength), Rows: c.Sequences}
	}
	return ch, err
}

// reshaped refuses rows that constructors could not cut for a mesh: they would find
// out when the step is planned and logged.
func (p *Planner) reshaped(length int, tree *mesh.Tree) error {
	return p.opts.Job.Reshape(length, tree.Sizes().CP, tree.Sizes().TP)
}

// remeshed is a mesh with other sizes of some axes, whose names were checked.
func remeshed(tree *mesh.Tree, sizes map[string]int) (*mesh.Tree, error) {
	var m mesh.Sizes
	axes := map[string]*int{"dp": &m.DP, "cp": &m.CP, "pp": &m.PP, "tp": &m.TP, "vpp": &m.VPP, "ep": &m.EP}
	for name, n := range sizes {
		*axes[name] = n
	}
	return tree.Change(m)
}

// added is what the core has to know of a source that joins, which is indexed.
func (p *Planner) added(a *change.Add) (plan.Added, error) {
	i := slices.IndexFunc(p.entries, func(e []byte) bool { return bytes.Equal(e, a.Source) })
	if i < 0 || p.indexed[p.base()+i] == nil {
		return plan.Added{}, fmt.Errorf("the source %s is to join, but was not indexed", a.Source)
	}
	i += p.base()
	return plan.Added{
		Source: p.coreSource(i), Share: uint64(a.Weight * (1 << mix.Bits)),
		Spec: a.Source, Manifest: [32]byte(p.indexed[i].Manifest),
	}, nil
}

// coreSource is what the core has to know of source i.
func (p *Planner) coreSource(i int) plan.Source {
	s := p.sources[i]
	return plan.Source{Name: s.Name, Blocks: int64(p.indexed[i].Blocks), Limit: s.Limit, Longest: int32(s.Long.Max)}
}
