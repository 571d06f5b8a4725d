package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

// loaderSession is one connected loader. It belongs to the loop; out may be used
// from anywhere. Orders in out are bounded by the blocks wanted at a time.
type loaderSession struct {
	id, address string
	out         *rpc.Outbox[*pb.LoaderOrder]
	usage       *pb.LoaderUsage
	heard       time.Time // when it last said something
	told        uint64    // the last change of floors that it was told of
	workers     int       // blocks it reads at a time
	buffer      int64     // bytes of samples it has memory for
	reader      uint32    // index into the readers of the planner's data
}

// Load implements the Planner service: the session of one loader.
func (p *Planner) Load(stream grpc.BidiStreamingServer[pb.LoaderReport, pb.LoaderOrder]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello == nil {
		return rpc.ToStatus(fault.Userf("a loader's session begins with a hello"))
	}
	l := &loaderSession{heard: time.Now(), id: hello.Id, address: hello.Address, out: rpc.NewOutbox[*pb.LoaderOrder](), workers: int(hello.Workers)}
	l.buffer = cmp.Or(int64(hello.Buffer), p.opts.Job.Resources.LoaderBuffer)
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	if err := p.do(ctx, func() { p.addLoader(l) }); err != nil {
		return rpc.ToStatus(err)
	}
	var blocks blockParts
	err = rpc.Answer(ctx, cancel, p.done, l.out, stream.Send, func() error {
		report, err := stream.Recv()
		if err != nil {
			return err
		}
		if report, err = blocks.add(report); report == nil || err != nil {
			return rpc.ToStatus(err)
		}
		return p.do(ctx, func() { p.loaderSays(l, report) })
	})
	p.do(context.WithoutCancel(ctx), func() { p.removeLoader(l, err) })
	return rpc.ToStatus(err)
}

// noteLeft logs the end of a role's session.
func (p *Planner) noteLeft(role, id string, err error) {
	if err == nil {
		p.opts.Log.Info(role+" left", role, id)
		return
	}
	if errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled {
		err = errors.New("its connection ended without a word: the process was killed, or the network broke")
	}
	p.opts.Log.Warn(role+" lost", role, id, "err", err)
}

func (p *Planner) addLoader(l *loaderSession) {
	p.loaders = append(p.loaders, l)
	l.reader = p.data.reader(l.String())
	p.opts.Log.Info("loader joined", "loader", l.id, "address", l.address)
	l.out.Put(&pb.LoaderOrder{Order: &pb.LoaderOrder_Job{
		Job: &pb.JobSpec{Name: p.id.name, Yaml: p.yaml, Directory: p.opts.Directory},
	}})
	for n := range p.entries {
		l.out.Put(p.addOrder(n))
	}
	for i, x := range p.indexed {
		if x != nil {
			l.out.Put(frozenOrder(i, x))
		}
	}
	l.out.Put(p.bansOrder()) // comes last: a loader answers constructors from then on
	p.placementChanged()
	if p.core == nil && len(p.loaders) == p.opts.Loaders {
		p.indexMissing()
	}
	p.wantOrphans()
	p.start() // it may have waited for a loader to ask
}

// removeLoader gives the work of a loader that left, or was lost with err, to the others.
func (p *Planner) removeLoader(l *loaderSession, err error) {
	p.loaders = slices.DeleteFunc(p.loaders, func(o *loaderSession) bool { return o == l })
	p.noteLeft("loader", l.id, err)
	maps.DeleteFunc(p.found, func(_ fileName, f *pb.FileFound) bool { return f == nil }) // it may have been the one that was asked
	if len(p.loaders) == 0 {
		return // constructors wait, with their deadlines, until one comes back
	}
	p.placementChanged()
	p.wantOrphans()
	p.indexMissing()
}

// indexMissing has the sources indexed that are not.
func (p *Planner) indexMissing() {
	for i, x := range p.indexed {
		if x == nil {
			p.index(int32(i))
		}
	}
}

// wantOrphans asks the loaders that are there for the blocks that one was asked
// for that is not.
func (p *Planner) wantOrphans() {
	for key, owner := range p.wanted {
		if !slices.Contains(p.loaders, owner) {
			p.want(key)
		}
	}
}

func (p *Planner) want(key wantKey) {
	if len(p.loaders) == 0 {
		p.wanted[key] = nil
		return
	}
	l := p.loaderOf(key.source, key.seq)
	p.wanted[key] = l
	l.out.Put(&pb.LoaderOrder{Order: &pb.LoaderOrder_Read{Read: &pb.ReadBlock{Source: uint32(key.source), Seq: uint64(key.seq)}}})
}

func (p *Planner) loaderSays(l *loaderSession, report *pb.LoaderReport) {
	l.heard = time.Now()
	switch r := report.Report.(type) {
	case *pb.LoaderReport_Indexed:
		p.sourceIndexed(l, r.Indexed)
	case *pb.LoaderReport_Block:
		p.blockRead(l, r.Block)
	case *pb.LoaderReport_Usage:
		l.usage = r.Usage
	case *pb.LoaderReport_Found:
		p.found[fileName{r.Found.Source, r.Found.Name}] = r.Found
		p.start()
	case *pb.LoaderReport_Failure:
		p.loaderFailed(r.Failure)
	}
}

func (p *Planner) blockRead(l *loaderSession, b *pb.BlockRead) {
	if int(b.Source) >= len(p.sources) {
		return // it joined, and was forgotten
	}
	if err := p.data.compareBlock(b, l.reader); err != nil {
		p.fail(p.inSource(b.Source, err))
		return
	}
	key := wantKey{int32(b.Source), int64(b.Seq)}
	if _, ok := p.wanted[key]; !ok {
		return
	}
	delete(p.wanted, key)
	p.data.keep(b, l.reader)
	if !p.note(b) {
		return
	}
	ev, err := blockEvent(b)
	if err != nil {
		p.fail(err)
		return
	}
	p.apply(ev)
}

// blockEvent is what the core is told of a block.
func blockEvent(b *pb.BlockRead) (ev plan.BlockRead, err error) {
	ev = plan.BlockRead{Source: int32(b.Source), Seq: int64(b.Seq), Lengths: make([]int32, len(b.Lengths)), Bans: int(b.BansKnown), Bytes: int64(b.Bytes)}
	ev.Lost = plan.Lost{Filtered: int64(b.Filtered), Dropped: int64(b.Dropped), Empty: int64(b.Empty), Bad: int64(len(b.Skips))}
	for _, s := range b.Skips[:min(len(b.Skips), plan.FirstBad)] {
		ev.Lost.First = append(ev.Lost.First, skipText(s))
	}
	ev.Lost.Absent = nowhere(b)
	for i, n := range b.Lengths {
		ev.Lengths[i] = int32(n)
	}
	for i, index := range b.Banned {
		ev.Banned = append(ev.Banned, plan.Banned{Index: int32(index), Ban: b.Bans[i]})
	}
	ev.Images, err = imagesRead(b)
	return ev, err
}

// constructorSession is one connected constructor; it belongs to the loop. What
// waits in out is bounded by the steps planned ahead, the joins under way and the
// times the job was moved.
type constructorSession struct {
	id, address string
	number      int
	buckets     []uint32 // DP ranks it serves
	out         *rpc.Outbox[*pb.ConstructorOrder]
	unsent      int // parts of plans in out
	usage       *pb.ConstructorUsage
	heard       time.Time           // when it last said something
	joining     map[uint64]*joining // joins it was asked about
	generation  uint64              // that it said it is in
}

// Construct implements the Planner service: the session of one constructor.
func (p *Planner) Construct(stream grpc.BidiStreamingServer[pb.ConstructorReport, pb.ConstructorOrder]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello == nil {
		return rpc.ToStatus(fault.Userf("a constructor's session begins with a hello"))
	}
	c := &constructorSession{heard: time.Now(), id: hello.Id, address: hello.Address, out: rpc.NewOutbox[*pb.ConstructorOrder](), joining: map[uint64]*joining{}}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	var refused error
	if err := p.do(ctx, func() { refused = p.addConstructor(c) }); err != nil || refused != nil {
		return rpc.ToStatus(cmp.Or(err, refused))
	}
	send := func(o *pb.ConstructorOrder) error {
		if err := stream.Send(o); err != nil || o.GetPlan() == nil {
			return err
		}
		return p.do(ctx, func() { p.partSent(c) })
	}
	err = rpc.Answer(ctx, cancel, p.done, c.out, send, func() error {
		report, err := stream.Recv()
		if err != nil {
			return err
		}
		return p.do(ctx, func() { p.constructorSays(c, report) })
	})
	p.do(context.WithoutCancel(ctx), func() { p.removeConstructor(c, err) })
	return rpc.ToStatus(err)
}

// addConstructor gives a new constructor a free number, the job, and all steps
// under way.
func (p *Planner) addConstructor(c *constructorSession) error {
	c.number = slices.Index(p.constructors, nil)
	if c.number < 0 {
		return fault.Userf("constructor %s is one too many: the job has %d; start the planner with --constructors %d",
			c.id, len(p.constructors), len(p.constructors)+1)
	}
	p.constructors[c.number] = c
	p.brief(c)
	p.opts.Log.Info("constructor joined", "constructor", c.id, "address", c.address, "buckets", c.buckets)
	if p.failed != nil {
		c.out.Put(&pb.ConstructorOrder{Order: &pb.ConstructorOrder_Failure{Failure: rpc.ToFailure(p.failed, -1)}})
		return nil
	}
	if p.core != nil {
		p.resend(c)
	}
	return nil
}

// brief gives a constructor the job, as it is on this mesh.
func (p *Planner) brief(c *constructorSession) {
	c.buckets = nil
	for d := c.number; d < p.tree.Sizes().DP; d += len(p.constructors) {
		c.buckets = append(c.buckets, uint32(d))
	}
	c.out.Put(&pb.ConstructorOrder{Order: &pb.ConstructorOrder_Job{Job: p.jobFor(c)}})
	for n := range p.adds() {
		c.out.Put(p.joinedOrder(n))
	}
	c.out.Put(p.placement())
}

// joinedOrder tells a constructor of the n-th source that joined.
func (p *Planner) joinedOrder(n int) *pb.ConstructorOrder {
	s := p.sources[p.base()+n]
	return &pb.ConstructorOrder{Order: &pb.ConstructorOrder_Joined{Joined: &pb.SourceJoined{Name: s.Name, Keep: s.Keep}}}
}

// resend brings a constructor to the present: reset to the acked position, then
// every step after it.
func (p *Planner) resend(c *constructorSession) {
	acked := p.core.Acked()
	c.out.Put(enteredOrder(p.joins))
	c.out.Put(&pb.ConstructorOrder{Order: &pb.ConstructorOrder_Restart{
		Restart: &pb.Restart{Generation: p.generation, NextStep: uint64(acked), Moved: p.moved},
	}})
	for k := acked; k < p.core.Planned(); k++ {
		if s := p.steps[k]; s != nil && (p.remesh == nil || k < p.remesh.Step) {
			images, err := p.imagesOf(s)
			if err != nil {
				p.fail(err)
				return
			}
			p.sendPart(c, p.partOf(s, images, c))
		}
	}
	if p.ended >= 0 || p.remesh != nil {
		c.out.Put(p.endOrder(c))
	}
}

func (p *Planner) removeConstructor(c *constructorSession, err error) {
	p.constructors[c.number] = nil
	p.noteLeft("constructor", c.id, err)
	p.orderLater() // it may be the one that was waited for
}

func (p *Planner) jobFor(c *constructorSession) *pb.ConstructorJob {
	job := p.opts.Job
	out := &pb.ConstructorJob{
		Name: job.Name, Identity: p.id.spec[:],
		SequenceLength: uint32(job.Batch.SequenceLength),
		MicrobatchSize: uint32(job.Batch.MicrobatchSize),
		Packing:        job.Batch.Packing,
		Mesh:           wireMesh(p.tree),
		Format:         job.Output.Format, CpSlicing: job.Output.CPSlicing, BroadcastAt: job.Output.BroadcastAt,
		PadId:            job.Output.PadID,
		DocumentMultiple: uint32(job.Output.DocumentMultiple),
		BufferBytes:      uint64(job.Resources.ConstructorBuffer),
		Buckets:          c.buckets,
		Images:           imageSteps(job),
		ContextSplit:     job.Batch.ContextSplit > 0,
		Ahead:            uint32(p.opts.Prefetch),
	}
	for _, s := range job.Sources {
		out.Sources = append(out.Sources, s.Name)
		out.Kept = append(out.Kept, &pb.KeptColumns{Names: s.Keep})
	}
	return out
}

// wireMesh is a mesh as ranks and constructors are told of it.
func wireMesh(t *mesh.Tree) *pb.Mesh {
	m := meshProto(t)
	m.Stride = stride(t)
	return m
}

func meshProto(t *mesh.Tree) *pb.Mesh {
	m := t.Sizes()
	return &pb.Mesh{Dp: uint32(m.DP), Cp: uint32(m.CP), Pp: uint32(m.PP), Tp: uint32(m.TP), Vpp: uint32(m.VPP)}
}

func (p *Planner) placement() *pb.ConstructorOrder {
	pl := &pb.Placement{}
	for _, l := range p.loaders {
		pl.Loaders = append(pl.Loaders, l.address)
	}
	return &pb.ConstructorOrder{Order: &pb.ConstructorOrder_Placement{Placement: pl}}
}

func (p *Planner) placementChanged() {
	p.tell(func(*constructorSession) *pb.ConstructorOrder { return p.placement() })
	p.readersChanged()
}

// partOf is the part of a plan that concerns a constructor; images are those of the
// step. It only reads the planner's state.
func (p *Planner) partOf(s *plan.Step, images *stepImages, c *constructorSession) *pb.ConstructorOrder {
	part := strategy.ConstructorDoPlan(s.Placed, s.Buffer, c.buckets)
	out := &pb.StepPlan{
		Generation: p.generation, Step: uint64(s.Step),
		Rows: part.Rows, RowSamples: part.RowSamples, RowRank: part.Rank, RowMicrobatch: part.Microbatch, RowWidth: part.Width,
		SampleBlock: part.SampleBlock, SampleIndex: part.SampleIndex, SampleLength: part.SampleLength,
		SequenceLength: uint32(s.Shape.SequenceLength), Microbatches: uint32(s.Placed.Microbatches), GlobalRows: uint32(len(s.Rows)),
	}
	for _, b := range part.Blocks {
		out.Blocks = append(out.Blocks, p.planBlock(wantKey{b.Source, b.Seq}))
	}
	if images != nil {
		p.addImages(out, images, &part, c.buckets)
	}
	return &pb.ConstructorOrder{Order: &pb.ConstructorOrder_Plan{Plan: out}}
}

func (p *Planner) planBlock(key wantKey) *pb.PlanBlock {
	b := &pb.PlanBlock{Source: uint32(key.source), Seq: uint64(key.seq), Sum: p.data.sources[key.source].blocks[uint64(key.seq)]}
	if len(p.loaders) > 0 {
		b.Loader = uint32(p.loaderIndex(key.source, key.seq))
	}
	return b
}

func (p *Planner) constructorSays(c *constructorSession, report *pb.ConstructorReport) {
	c.heard = time.Now()
	switch r := report.Report.(type) {
	case *pb.ConstructorReport_Assembled:
		p.assembled(r.Assembled)
	case *pb.ConstructorReport_Acked:
		p.ackedBy(r.Acked)
	case *pb.ConstructorReport_Usage:
		c.usage = r.Usage
		p.noteAbsent(time.Now())
	case *pb.ConstructorReport_Admitted:
		p.admitted(c, r.Admitted)
	case *pb.ConstructorReport_Restarted:
		c.generation = r.Restarted
	case *pb.ConstructorReport_Failure:
		p.fail(rpc.FromFailure(r.Failure))
	}
}

func (p *Planner) assembled(a *pb.Assembled) {
	if a.Generation != p.generation {
		return
	}
	if len(a.Digests) != 32*len(a.Rows) {
		p.fail(fmt.Errorf("step %d: %d bytes of digests for %d rows", a.Step, len(a.Digests), len(a.Rows)))
		return
	}
	ev := plan.Assembled{Step: int64(a.Step), Rows: a.Rows, Digests: make([][32]byte, len(a.Rows))}
	for i := range ev.Digests {
		ev.Digests[i] = [32]byte(a.Digests[32*i:])
	}
	p.apply(ev)
}

// ackedBy moves the job's acked position to that of the slowest bucket.
func (p *Planner) ackedBy(a *pb.Acked) {
	if a.Generation != p.generation || p.core == nil {
		return
	}
	p.acks[a.Bucket] = a
	if len(p.acks) < p.tree.Sizes().DP {
		return
	}
	slowest := a.Step
	for _, b := range p.acks {
		slowest = min(slowest, b.Step)
	}
	if int64(slowest) <= p.core.Acked() {
		return
	}
	for k := p.core.Acked(); k < int64(slowest); k++ {
		delete(p.steps, k)
		delete(p.saved, k)
	}
	p.apply(plan.Acked{Step: int64(slowest)})
}
