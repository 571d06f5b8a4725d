// Package trainer is a built-in trainer: it acts as every rank of a job, takes the
// batches of all ranks, and checks that together they are the global batch.
//
// It owns the ranks' clients and a digest chain of its own, computed from the
// delivered tensors alone: the rows are put together from all slices, and every
// slice is compared with the one that these rows give. `millrace run` and the
// determinism tests use it.
package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/constructor/assemble"
	"github.com/millrace-data/millrace/internal/planner/change"
	statepb "github.com/millrace-data/millrace/internal/proto/state"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/jobspec"
	"github.com/millrace-data/millrace/planner/mesh"
)

// Options configure a run. Address and Job are required.
type Options struct {
	Address  string
	Job      *jobspec.Job
	Steps    int64 // at most; 0 = to the end of the data
	Token    []byte
	Prefetch int           // of each rank's client; 0 = its default, negative = none
	Way      client.Way    // of each rank's client; "" = its default
	Deadline time.Duration // of one batch; 0 = the client's default
	Security rpc.Security
	Changes  []change.Change // made to the job before: one of the first step may give it another mesh
	OnStep   func(Step)      // called after each step, in order; may be nil
	Stop     <-chan struct{} // when it is closed, the run ends after the current step; may be nil
	// StateEvery makes every rank save its state every StateEvery steps; 0 = never.
	StateEvery int64
	OnState    func(step int64, token []byte)
	Log        *slog.Logger // of the ranks; default: discard, as the caller reports waits
}

// Step sums up one step of all ranks.
type Step struct {
	Step    int64
	Rows    []batch.Row
	Tokens  int64            // in all rows
	Room    int64            // rows * sequence length
	Sources map[string]int64 // tokens by source
	Bytes   int64            // delivered to all ranks
	// Images were encoded, by Encoders ranks. Those of Rows have their pixels as Data.
	Images, Encoders int
	Wait             time.Duration // of the rank that waited longest
	Digest           [32]byte      // chained
}

// Result sums a run up.
type Result struct {
	First, Next int64 // steps from First on, Next is the one after the last
	Ended       bool  // the data ended
	Digest      [32]byte
	Token       []byte // the position after the last step
}

// Run feeds all ranks of a job for some steps.
func Run(ctx context.Context, opts Options) (*Result, error) {
	t := &run{opts: opts}
	defer t.close()
	if err := t.start(ctx); err != nil {
		return nil, err
	}
	first := t.ranks[0].Step()
	res := &Result{First: first, Next: first}
	var err error
	for (opts.Steps == 0 || res.Next < first+opts.Steps) && !t.stopped() {
		step, err := t.step(ctx)
		if change, ok := errors.AsType[*client.TopologyError](err); ok {
			if err := t.remesh(ctx, change); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		if step == nil {
			res.Ended = true
			break
		}
		res.Next++
		if opts.OnStep != nil {
			opts.OnStep(*step)
		}
		if opts.StateEvery > 0 && (res.Next-first)%opts.StateEvery == 0 {
			if err := t.save(ctx, res.Next); err != nil {
				return nil, err
			}
		}
	}
	res.Digest = t.digest
	res.Token, err = t.state(ctx, res.Next)
	return res, err
}

// stopped reports whether no other step is wanted.
func (t *run) stopped() bool {
	select {
	case <-t.opts.Stop:
		return true
	default:
		return false
	}
}

type run struct {
	opts   Options
	mesh   mesh.Sizes
	layout assemble.Layout
	ranks  []*client.Client
	places []client.Rank
	digest [32]byte
}

// start joins all ranks of the mesh at the position to go on from.
func (t *run) start(ctx context.Context) error {
	ctx, joined := context.WithCancel(ctx)
	defer joined()
	go func() { // there is no step yet that Stop could wait for
		select {
		case <-t.opts.Stop:
			joined()
		case <-ctx.Done():
		}
	}()
	t.mesh = meshOf(t.opts.Job, t.opts.Token, t.opts.Changes)
	if err := t.open(ctx, t.opts.Token); err != nil {
		return err
	}
	_, digest, err := t.ranks[0].State(ctx)
	if err != nil {
		return fmt.Errorf("asking for the digest of step %d: %w", t.ranks[0].Step(), err)
	}
	t.digest = digest
	return nil
}

// meshOf is the mesh at a token's position: the job spec's, unless the job was
// moved to another one, or is moved by a change of this step.
func meshOf(job *jobspec.Job, token []byte, changes []change.Change) mesh.Sizes {
	topo := job.Topology
	sizes := mesh.Sizes{DP: topo.DP, CP: topo.CP, PP: topo.PP, TP: topo.TP, Order: topo.Order}
	var t statepb.ResumeToken
	moved := proto.Unmarshal(token, &t) == nil && t.Settings.GetTopology() != ""
	for _, p := range t.Pending {
		c, err := change.Parse(p.Json) // weights have none that can be read
		moved = moved || err == nil && c.Topology != nil && c.Step <= int64(t.Step)
	}
	if m := t.Mesh; moved {
		sizes = mesh.Sizes{DP: int(m.GetDp()), CP: int(m.GetCp()), PP: int(m.GetPp()), TP: int(m.GetTp()), Order: topo.Order}
	}
	if left, err := change.InForce(changes); err == nil { // else the service reports the error
		changes = left
	}
	for _, c := range changes {
		for axis, size := range map[string]*int{"dp": &sizes.DP, "cp": &sizes.CP, "pp": &sizes.PP, "tp": &sizes.TP} {
			if n, given := c.Topology[axis]; given && c.Step == int64(t.Step) {
				*size = n
			}
		}
	}
	return sizes
}

// remesh saves the state and goes on from it as the ranks of another mesh.
func (t *run) remesh(ctx context.Context, change *client.TopologyError) error {
	token, err := t.state(ctx, change.Step)
	if err != nil {
		return err
	}
	tree, err := mesh.Parse(change.Topology)
	if err != nil {
		return err
	}
	t.close()
	t.mesh, t.ranks, t.places = tree.Sizes(), nil, nil
	return t.open(ctx, token)
}

// open joins all ranks that fetch.
func (t *run) open(ctx context.Context, token []byte) error {
	t.arrange()
	return t.join(ctx, token)
}

// arrange finds the ranks of the mesh that fetch, and how batches are cut for them.
func (t *run) arrange() {
	topo, job := t.mesh, t.opts.Job
	t.layout = assemble.Layout{
		Format: job.Output.Format, CPSlicing: job.Output.CPSlicing, PadID: job.Output.PadID, DocumentMultiple: job.Output.DocumentMultiple,
		CP: topo.CP, PP: topo.PP, Packed: job.Batch.Packing, Split: job.Pool(),
		Masks: slices.ContainsFunc(job.Sources, func(s jobspec.Source) bool { return s.Masks() }),
	}
	if t.layout.Split {
		t.layout.CP = 1
	}
	tps := topo.TP
	if t.opts.Job.Output.BroadcastAt == "tp" {
		tps = 1
	}
	for dp := range topo.DP {
		for cp := range topo.CP {
			for pp := range topo.PP {
				for tp := range tps {
					t.places = append(t.places, client.Rank{DP: dp, CP: cp, PP: pp, TP: tp})
				}
			}
		}
	}
}

// join opens the clients of all places side by side: without a token, each waits for the others.
func (t *run) join(ctx context.Context, token []byte) error {
	identity, topo := t.opts.Job.Identity(), t.mesh
	ranks := make([]*client.Client, len(t.places))
	joins, ctx := errgroup.WithContext(ctx)
	for i, rank := range t.places {
		joins.Go(func() (err error) {
			ranks[i], err = client.Open(ctx, t.opts.Address, client.Options{
				Log:  cmp.Or(t.opts.Log, slog.New(slog.DiscardHandler)),
				Rank: rank, Mesh: client.Mesh{DP: topo.DP, CP: topo.CP, PP: topo.PP, TP: topo.TP},
				Job: t.opts.Job.Name, Identity: identity[:], Token: token,
				Prefetch: t.opts.Prefetch, Way: t.opts.Way, Deadline: t.opts.Deadline, Security: t.opts.Security,
			})
			return err
		})
	}
	err := joins.Wait()
	t.ranks = slices.DeleteFunc(ranks, func(c *client.Client) bool { return c == nil })
	return err
}

func (t *run) close() {
	for _, c := range t.ranks {
		c.Close()
	}
}

// step takes the next batch of every rank and checks them against each other;
// nil at the end of the data.
func (t *run) step(ctx context.Context) (*Step, error) {
	batches := make([]*client.Batch, len(t.ranks))
	ended := make([]bool, len(t.ranks))
	g, gctx := errgroup.WithContext(ctx)
	for i, c := range t.ranks {
		g.Go(func() error {
			b, err := c.Next(gctx)
			if errors.Is(err, io.EOF) {
				ended[i] = true
				return nil
			}
			batches[i] = b
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for i := range ended {
		if ended[i] != ended[0] {
			return nil, fmt.Errorf("the data ended for one of %s and %s, not for the other", t.places[0], t.places[i])
		}
	}
	if ended[0] {
		return nil, nil
	}
	return t.check(batches)
}

// check rebuilds the global batch of a step from all ranks' parts.
func (t *run) check(batches []*client.Batch) (*Step, error) {
	s := &Step{Step: batches[0].Step, Rows: make([]batch.Row, batches[0].Rows), Sources: map[string]int64{}}
	t.layout.SequenceLength = batches[0].SequenceLength
	byPlace := map[client.Rank]*client.Batch{}
	for i, b := range batches {
		s.Bytes += int64(b.Bytes)
		s.Wait = max(s.Wait, b.Wait)
		byPlace[t.places[i]] = b
		if b.Step != s.Step {
			return nil, fmt.Errorf("%s got step %d, %s got step %d", t.places[i], b.Step, t.places[0], s.Step)
		}
	}
	images, err := t.readImages(batches)
	if err != nil {
		return nil, err
	}
	for i := range batches {
		place := t.places[i]
		if place.PP > 0 {
			continue
		}
		for m := range batches[i].Microbatches {
			group, err := t.groupOf(byPlace, place, m)
			if err == nil && group.ranks[0] == place {
				err = t.microbatch(s, byPlace, images, group, m)
			}
			if err != nil {
				return nil, fmt.Errorf("step %d, %s, microbatch %d: %w", s.Step, place, m, err)
			}
		}
	}
	s.Images, s.Encoders = images.total()
	if images.left > 0 {
		return nil, fmt.Errorf("step %d: %d images were given to encoders and belong to no row", s.Step, images.left)
	}
	digests := make([][32]byte, len(s.Rows))
	for i, r := range s.Rows {
		digests[i] = batch.RowDigest(r)
		s.Tokens += int64(r.Tokens())
	}
	s.Room = int64(len(s.Rows) * t.layout.SequenceLength)
	if t.layout.Split {
		s.Room = int64(t.mesh.DP * t.mesh.CP * len(batches[0].Microbatches) * t.layout.SequenceLength)
	}
	t.digest = batch.Chain(t.digest, batch.StepDigest(s.Step, digests))
	s.Digest = t.digest
	return s, nil
}

// microbatch checks one microbatch of the ranks that share it, over all PP ranks.
func (t *run) microbatch(s *Step, byPlace map[client.Rank]*client.Batch, encoders *encoded, group group, m int) error {
	at := group.ranks[0]
	info, err := byPlace[at].Microbatches[m].Rows()
	if err != nil {
		return err
	}
	lengths := make([][]int, len(info))
	for i, r := range info {
		lengths[i] = r.Lengths
		if at.TP > 0 {
			continue
		}
		for k, n := range r.Lengths {
			s.Sources[r.Sources[k]] += int64(n)
		}
	}
	first := byPlace[at].Microbatches[m].Tensors
	var others [][]batch.Tensor
	for _, rank := range group.ranks[1:] {
		if b := byPlace[rank]; m < len(b.Microbatches) {
			others = append(others, b.Microbatches[m].Tensors)
		}
	}
	if at.TP > 0 {
		others = append(others, byPlace[client.Rank{DP: at.DP, CP: at.CP}].Microbatches[m].Tensors)
	}
	images, sources, err := imagesOf(first, others, len(info))
	if err != nil {
		return err
	}
	var missing error
	rows, err := group.layout.VerifyImages(lengths, images, func(cp, pp int) []batch.Tensor {
		rank := group.ranks[cp]
		rank.PP = pp
		b := byPlace[rank]
		if m >= len(b.Microbatches) {
			missing = fmt.Errorf("cp=%d pp=%d has %d microbatches", cp, pp, len(b.Microbatches))
			return nil
		}
		model, _ := assemble.SplitKept(b.Microbatches[m].Tensors)
		model, _ = assemble.SplitImages(model)
		return model
	})
	if err := errors.Join(missing, err); err != nil {
		return err
	}
	_, kept := assemble.SplitKept(first)
	if err := assemble.ReadKept(kept, rows); err != nil {
		return err
	}
	if at.TP > 0 { // the rows are those of the first rank of the group
		for i, r := range info {
			if r.Number >= len(s.Rows) || batch.RowDigest(rows[i]) != batch.RowDigest(s.Rows[r.Number]) {
				return fmt.Errorf("row %d is not the one that tp=0 has", r.Number)
			}
		}
		return nil
	}
	if err := encoders.claim(rows, sources, at.DP, m); err != nil {
		return err
	}
	for i, r := range info {
		if r.Number >= len(s.Rows) {
			return fmt.Errorf("row %d of %d", r.Number, len(s.Rows))
		}
		s.Rows[r.Number] = rows[i]
	}
	return nil
}

// state asks every rank for its state and checks that they agree.
func (t *run) state(ctx context.Context, step int64) ([]byte, error) {
	var token []byte
	for i, c := range t.ranks {
		got, digest, err := c.State(ctx)
		if err != nil {
			return nil, fmt.Errorf("saving the state of %s: %w", t.places[i], err)
		}
		if i > 0 && string(got) != string(token) {
			return nil, fmt.Errorf("the states of %s and %s at step %d differ", t.places[0], t.places[i], step)
		}
		if digest != t.digest {
			return nil, fmt.Errorf("step %d: the service's digest is %x, that of the delivered batches is %x", step, digest, t.digest)
		}
		token = got
	}
	return token, nil
}

func (t *run) save(ctx context.Context, step int64) error {
	token, err := t.state(ctx, step)
	if err == nil && t.opts.OnState != nil {
		t.opts.OnState(step, token)
	}
	return err
}
