package planner

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/jobspec"
)

// base is the number of sources of the job spec; those that joined come after.
func (p *Planner) base() int { return len(p.opts.Job.Sources) }

// adds are the entries of the sources that joined, in order.
func (p *Planner) adds() [][]byte { return p.entries[:p.joined] }

// joinedUpTo notes that the sources of the first n entries have joined.
func (p *Planner) joinedUpTo(n int) {
	for ; p.joined < n; p.joined++ {
		order := p.joinedOrder(p.joined)
		p.tell(func(*constructorSession) *pb.ConstructorOrder { return order })
	}
	p.readersChanged()
}

// joining says whether a source other than this one is being indexed to join as
// the n-th. When that is over and it did not join, nobody waits for it any more:
// it is forgotten.
func (p *Planner) joining(n int, entry []byte) bool {
	if n < p.joined || n >= len(p.entries) || bytes.Equal(p.entries[n], entry) {
		return false
	}
	if p.indexed[p.base()+n] == nil && p.refused == nil {
		return true
	}
	p.forget(n)
	return false
}

// forget makes room for another n-th source to join.
func (p *Planner) forget(n int) {
	i := p.base() + n
	p.refused = nil
	p.sources, p.indexed, p.entries = p.sources[:i], p.indexed[:i], p.entries[:n]
	p.ledger, p.limited = p.ledger[:i], p.limited[:i]
	p.data.forget(i)
}

// know makes sure that the n-th source to join is the one of this entry, and
// that loaders have indexed it. Until they have, it reports false and is to be
// asked again.
func (p *Planner) know(n int, entry []byte) (ready bool, err error) {
	i := p.base() + n
	switch {
	case n < len(p.entries) && !bytes.Equal(p.entries[n], entry):
		return false, fault.Userf("source %q joined this service as number %d, and the entry %s is another one: start a new service", p.sources[i].Name, i, entry)
	case n < len(p.entries) && p.indexed[i] == nil && p.refused != nil:
		err := p.refused
		p.forget(n)
		return false, fault.As(fault.User, fmt.Errorf("the source cannot join: %w", err))
	case n < len(p.entries):
		return p.indexed[i] != nil, nil
	}
	spec, findings := jobspec.ParseSource(p.opts.Job, entry)
	if err := findings.Err(); err != nil {
		return false, fault.As(fault.User, err)
	}
	if !p.unbound[string(entry)] {
		if err := p.opts.Job.CheckRoots(spec, p.opts.AllowRoots); err != nil {
			return false, err
		}
	}
	if slices.ContainsFunc(p.sources, func(s jobspec.Source) bool { return s.Name == spec.Name }) {
		return false, fault.Userf("there is a source %q already: give the new one another name, or resume the old one", spec.Name)
	}
	p.entries = append(p.entries, bytes.Clone(entry))
	p.addSource(spec)
	for _, l := range p.loaders {
		l.out.Put(p.addOrder(n))
	}
	p.index(int32(i))
	return false, nil
}

// addSource makes room for one more source.
func (p *Planner) addSource(spec jobspec.Source) {
	p.sources = append(p.sources, spec)
	p.indexed = append(p.indexed, nil)
	p.limited = append(p.limited, spec.Limit > 0)
	p.ledger = append(p.ledger, ledger{epochSkips: map[int64]skips{}})
	p.data.add()
}

func (p *Planner) addOrder(n int) *pb.LoaderOrder {
	add := &pb.AddSource{Source: uint32(p.base() + n), Yaml: p.entries[n]}
	if !p.unbound[string(add.Yaml)] {
		add.Roots = p.opts.AllowRoots
	}
	return &pb.LoaderOrder{Order: &pb.LoaderOrder_Add{Add: add}}
}

// index has a source indexed by the loader that reads it first.
func (p *Planner) index(i int32) {
	if len(p.loaders) > 0 {
		p.loaderOf(i, 0).out.Put(&pb.LoaderOrder{Order: &pb.LoaderOrder_Index{Index: &pb.IndexSource{Source: uint32(i)}}})
	}
}

// loaderFailed ends the job, or the attempt of a source to join it.
func (p *Planner) loaderFailed(f *pb.Failure) {
	i := int(f.Source) - 1
	if i == len(p.indexed)-1 && i >= p.base()+p.joined && p.indexed[i] == nil {
		p.refused = rpc.FromFailure(f)
		p.start() // that may wait for it
		return
	}
	p.fail(rpc.FromFailure(f))
}

// banOf is the ban of a record, with the number that it has in this service.
func (p *Planner) banOf(source int32, file string, row int64) plan.Ban {
	for _, b := range p.bans {
		if b.Source == source && b.File == file && b.Row == row {
			return b
		}
	}
	return plan.Ban{ID: uint32(len(p.bans)), Source: source, File: file, Row: row}
}

// prepareChanges has the sources indexed that changes before the start add, and
// the files found that they mean. Until that is done it reports false and is to be
// asked again.
func (p *Planner) prepareChanges() (ready bool, err error) {
	for ; p.prepared < len(p.restored); p.prepared++ {
		c := &p.restored[p.prepared]
		switch {
		case c.Add != nil:
			p.unbound[string(c.Add.Source)] = true
			n := 0
			for _, before := range p.restored[:p.prepared] {
				if before.Add != nil {
					n++
				}
			}
			ready, err = p.know(n, c.Add.Source)
		case c.Ban != nil:
			if ready, err = p.find(c); ready && p.prepared >= p.logged && indexOf(p.restored[:p.logged], *c) >= 0 {
				p.restored = slices.Delete(p.restored, p.prepared, p.prepared+1)
				p.prepared--
			}
		default:
			ready = true
		}
		if err != nil {
			return false, fault.As(fault.ClassOf(err), fmt.Errorf("%sthe change %s: %w", c.Origin, c, err))
		}
		if !ready {
			return false, nil
		}
	}
	return true, nil
}

// indexOf finds a change by its written form; -1 if there is none.
func indexOf(changes []change.Change, c change.Change) int {
	return slices.IndexFunc(changes, func(x change.Change) bool { return x.String() == c.String() })
}

// ban tells the loaders of a banned record, once.
func (p *Planner) ban(b plan.Ban) {
	if int(b.ID) < len(p.bans) {
		return
	}
	p.bans = append(p.bans, b)
	for _, l := range p.loaders {
		l.out.Put(p.bansOrder())
	}
}

func (p *Planner) bansOrder() *pb.LoaderOrder {
	bans := &pb.Bans{}
	for _, b := range p.bans {
		bans.Bans = append(bans.Bans, banProto(b))
	}
	return &pb.LoaderOrder{Order: &pb.LoaderOrder_Bans{Bans: bans}}
}

func banProto(b plan.Ban) *pb.Ban {
	return &pb.Ban{Id: b.ID, Source: uint32(b.Source), File: b.File, Row: b.Row}
}
