package planner

import (
	"encoding/hex"
	"slices"
	"strconv"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// A change of the topology may name the token it starts from, which is how a job goes on
// with the ranks that are left when others are lost: their checkpoint lies before steps
// that are planned. What was planned after it is void then, and planned again for the new mesh.

// proceedFrom makes a change of the topology at the position of a token, or takes it as
// far as it goes now.
func (p *Planner) proceedFrom(c change.Change, token []byte) (step uint64, done bool, err error) {
	switch {
	case p.failed != nil:
		return 0, false, rpc.Final(p.failed)
	case p.core == nil:
		return 0, false, nil
	}
	at, err := p.positionOf(token)
	if err != nil {
		return 0, false, err
	}
	if ready, err := p.knowAll(at); !ready || err != nil {
		return 0, false, err
	}
	step, err = p.remeshFrom(c, at)
	return step, err == nil, err
}

// checkFrom refuses what cannot start from a token.
func checkFrom(c change.Change, token []byte) error {
	switch {
	case len(token) > 0 && c.Topology == nil:
		return fault.Userf("only a change of the topology starts from a token; all others apply to steps that are not planned yet: leave the token out")
	case c.From != "":
		return fault.Userf("`from` is what the service writes of a token: give the token itself, as `millrace topology --from FILE` does")
	}
	return nil
}

// remeshFrom makes the change: durable first, then the job moves.
func (p *Planner) remeshFrom(c change.Change, at *token.Position) (uint64, error) {
	if c.Step != 0 && c.Step != at.State.Step {
		return 0, fault.Userf("the change is for step %d, and the token that it starts from is of step %d: leave the step out", c.Step, at.State.Step)
	}
	c.Step, c.From = at.State.Step, hex.EncodeToString(at.Digest[:])
	if slices.ContainsFunc(p.journal, func(ch plan.Change) bool { return string(ch.Text) == c.String() }) {
		return uint64(c.Step), nil // it was asked for before
	}
	state, err := p.whole(at)
	if err != nil {
		return 0, err
	}
	if err := p.checkHistory(state, at.Digest); err != nil {
		return 0, err
	}
	void := func(ch plan.Change) bool { return ch.Kind == plan.Remesh && ch.Step >= c.Step }
	state.Pending = slices.DeleteFunc(slices.Clone(state.Pending), void)
	cfg, err := p.config()
	if err != nil {
		return 0, err
	}
	core := plan.New(cfg) // to understand it by; it plans nothing
	core.Apply(plan.Rewind{State: state})
	ch, err := p.resolve(core, c)
	if err == nil {
		err = core.Check(ch)
	}
	if err != nil {
		return 0, err
	}
	if err := p.storeFrom(ch, void); err != nil {
		p.fail(err)
		return 0, err
	}
	p.enter(ch)
	state.Await(ch)
	tree := core.MeshAt(state)
	p.opts.Log.Info("job moved", "job", p.id.name, "by", "a change of the topology", "planned", p.core.Planned(), "to", state.Step, "topology", tree.Canonical())
	moved := &pb.Moved{To: uint64(state.Step), Topology: tree.Canonical()}
	return uint64(ch.Step), p.move(state, at.Digest, tree, moved, 0)
}

// checkHistory refuses a position that is not of this job's history, as far as that is
// known: by what the core holds and by the log.
func (p *Planner) checkHistory(state plan.State, digest [32]byte) error {
	if p.positioned && !p.holds(state, digest) {
		return offHistory(state.Step)
	}
	if p.log == nil || state.Step == 0 || state.Step > p.loggedSteps() {
		return nil
	}
	if logged, ok, err := p.log.ReadDigest(state.Step - 1); err == nil && ok && logged != digest {
		return offHistory(state.Step)
	}
	return nil // the log says itself what is wrong with it when it is written to
}

// storeFrom makes a change durable that starts from a token. The log forgets the steps from
// there on first, since their records are of another mesh; then the other changes of the topology
// are taken back that were made for them.
func (p *Planner) storeFrom(ch plan.Change, void func(plan.Change) bool) error {
	if p.log != nil {
		if err := p.log.Truncate(ch.Step); err != nil {
			return err
		}
	}
	for _, x := range slices.Clone(p.journal) {
		if !void(x) {
			continue
		}
		c, err := change.Parse(x.Text)
		if err == nil {
			err = p.write(change.Change{Step: x.Step, Cancel: &c, Reason: "its steps are void: the topology changes from a token of step " + strconv.FormatInt(ch.Step, 10)})
		}
		if err != nil {
			return err
		}
	}
	p.journal = slices.DeleteFunc(p.journal, void)
	return p.store(ch)
}
