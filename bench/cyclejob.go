package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// cycleJob is a planner with its loaders and constructors.
type cycleJob struct {
	cycleCase
	planner      *process
	loaders      []*process
	conn         rpc.Conn
	cancel       context.CancelFunc
	constructors [cycleConstructors]*cycleConstructor // by number
	parts        chan cyclePart
}

func startCycle(ctx context.Context, cfg *config, c cycleCase) (*cycleJob, error) {
	spec, err := cycleSpec(cfg.dir)
	if err != nil {
		return nil, err
	}
	profile, err := cfg.profileOf(fmt.Sprintf("plancycle-%d-%v", c.loaders, c.pause), 0)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	j := &cycleJob{cycleCase: c, cancel: cancel, parts: make(chan cyclePart, cycleConstructors)}
	own := filepath.Join(cfg.dir, fmt.Sprintf("plancycle-%d", time.Now().UnixNano()))
	address := "unix:" + own + ".sock"
	if j.planner, err = start(ctx, "cycle-plan", cyclePlanArgs{Spec: spec, Address: address, LogDir: own + ".log", Loaders: c.loaders, Profile: profile}); err != nil {
		return nil, err
	}
	if err := j.planner.receive(&address); err != nil {
		return nil, err
	}
	for i := range c.loaders {
		l, err := start(ctx, "cycle-load", cycleLoadArgs{Planner: address, ID: fmt.Sprintf("loader %d", i)})
		if err != nil {
			return nil, err
		}
		j.loaders = append(j.loaders, l)
	}
	if j.conn, err = rpc.Dial(address, rpc.Security{}); err != nil {
		return nil, err
	}
	for range cycleConstructors {
		if err := j.construct(ctx, address); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// close ends all processes and takes their reports. err is the run's outcome.
func (j *cycleJob) close(run *cycleRun, err error) error {
	if run == nil {
		run = &cycleRun{}
	}
	errs := []error{err}
	for _, l := range j.loaders {
		l.stdin.Close()
	}
	for _, l := range j.loaders {
		var loaded cycleLoaded
		errs = append(errs, l.receive(&loaded), l.stop())
		run.loaded.Samples += loaded.Samples
		run.loaded.Bytes += loaded.Bytes
	}
	j.planner.stdin.Close()
	errs = append(errs, j.planner.receive(&run.times), j.planner.stop(), j.conn.Close())
	j.cancel()
	return errors.Join(errs...)
}

// run takes the plans of the first steps, and the token of the middle.
func (j *cycleJob) run(ctx context.Context, steps int) (*cycleRun, error) {
	r := &cycleRun{tokenStep: steps / 2}
	// Nobody saves a position of a job that no rank has joined.
	if _, err := pb.NewPlannerClient(j.conn).Join(ctx, &pb.JoinRequest{Rank: &pb.Coordinates{}, Protocol: rpc.Protocol}); err != nil {
		return r, err
	}
	begin := time.Now()
	var cpu, stolen time.Duration // when the clock started
	for n := range steps {
		step, err := j.gather(ctx, uint64(n))
		if err != nil {
			return r, err
		}
		step.begin = begin
		r.steps = append(r.steps, step)
		switch n + 1 {
		case r.tokenStep:
			r.token, err = j.token(ctx, uint64(n))
		case cycleWarm:
			if cpu, err = processCPU(j.planner.pid()); err == nil {
				stolen, err = machineStolen()
			}
		case steps:
			if r.cpu, err = processCPU(j.planner.pid()); err == nil {
				r.stolen, err = machineStolen()
			}
			r.cpu, r.stolen = r.cpu-cpu, r.stolen-stolen
			return r, err
		}
		if err != nil {
			return r, err
		}
		time.Sleep(j.pause)
		begin = time.Now()
		if err := j.each(func(c *cycleConstructor) error { return c.acknowledge(uint64(n)) }); err != nil {
			return r, err
		}
	}
	return r, nil
}

// resume goes on from a token.
func (j *cycleJob) resume(ctx context.Context, token []byte, steps int) (*cycleRun, error) {
	reply, err := pb.NewPlannerClient(j.conn).Join(ctx, &pb.JoinRequest{Rank: &pb.Coordinates{}, Token: token, Protocol: rpc.Protocol})
	if err != nil {
		return nil, err
	}
	r := &cycleRun{}
	for n := range uint64(steps) {
		step, err := j.gather(ctx, reply.NextStep+n)
		if err != nil {
			return r, err
		}
		r.steps = append(r.steps, step)
		if err := j.each(func(c *cycleConstructor) error { return c.acknowledge(reply.NextStep + n) }); err != nil {
			return r, err
		}
	}
	return r, nil
}

// token is the resume token of the position after step n, which is not acknowledged.
func (j *cycleJob) token(ctx context.Context, n uint64) ([]byte, error) {
	if err := j.each(func(c *cycleConstructor) error { return c.assembled(n) }); err != nil {
		return nil, err
	}
	reply, err := pb.NewPlannerClient(j.conn).State(ctx, &pb.StateRequest{Step: n + 1})
	return reply.GetToken(), err
}

func (j *cycleJob) each(do func(c *cycleConstructor) error) error {
	for _, c := range j.constructors {
		if err := do(c); err != nil {
			return err
		}
	}
	return nil
}

// gather takes all parts of a step. Parts of other steps are of a generation that
// ended.
func (j *cycleJob) gather(ctx context.Context, n uint64) (cycleStep, error) {
	var step cycleStep
	all, got := sha256.New(), [cycleConstructors]*cyclePart{}
	for left := cycleConstructors; left > 0; {
		select {
		case p := <-j.parts:
			if p.err != nil {
				return step, p.err
			}
			if p.plan.Step == n {
				got[p.from.number] = &p
				left--
			}
		case <-ctx.Done():
			return step, ctx.Err()
		}
	}
	for _, p := range got {
		if p.at.After(step.end) {
			step.end = p.at
		}
		hash := hashPart(p.plan)
		all.Write(hash[:])
		p.from.rows, p.from.generation = p.plan.Rows, p.plan.Generation
		step.samples += len(p.plan.SampleLength)
		step.bytes += proto.Size(p.plan)
	}
	step.hash = hex.EncodeToString(all.Sum(nil))
	return step, nil
}

// hashPart is SHA-256 over a part, without generations and loaders.
func hashPart(p *pb.StepPlan) [32]byte {
	b := binary.LittleEndian.AppendUint64(nil, p.Step)
	for _, column := range [][]uint32{p.Rows, p.RowRank, p.RowMicrobatch, p.RowSamples, p.SampleIndex, p.SampleLength} {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(column)))
		for _, v := range column {
			b = binary.LittleEndian.AppendUint32(b, v)
		}
	}
	for _, at := range p.SampleBlock {
		b = binary.LittleEndian.AppendUint32(b, p.Blocks[at].Source)
		b = binary.LittleEndian.AppendUint64(b, p.Blocks[at].Seq)
	}
	return sha256.Sum256(b)
}

// cyclePart is a part of a plan, as received.
type cyclePart struct {
	from *cycleConstructor
	plan *pb.StepPlan
	at   time.Time
	err  error
}

// cycleConstructor is a constructor with synthetic rows. After construct, the caller
// of gather owns only the fields that gather sets.
type cycleConstructor struct {
	number     int
	buckets    []uint32
	stream     grpc.BidiStreamingClient[pb.ConstructorReport, pb.ConstructorOrder]
	sender     *rpc.Sender[*pb.ConstructorReport]
	generation uint64
	rows       []uint32 // of the last step
}

// construct opens a constructor's session and begins to listen.
func (j *cycleJob) construct(ctx context.Context, address string) error {
	conn, err := rpc.Dial(address, rpc.Security{})
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	stream, err := pb.NewPlannerClient(conn).Construct(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	c := &cycleConstructor{stream: stream, sender: rpc.NewSender(stream.Send)}
	hello := &pb.ConstructorHello{Id: "constructor", Address: "127.0.0.1:1"}
	if err := c.sender.Send(&pb.ConstructorReport{Report: &pb.ConstructorReport_Hello{Hello: hello}}); err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	job := first.GetJob()
	if job == nil {
		return fmt.Errorf("a constructor received %v first", first)
	}
	c.buckets, c.number = job.Buckets, int(job.Buckets[0])
	j.constructors[c.number] = c
	go j.listen(ctx, c)
	return nil
}

// listen forwards a constructor's messages.
func (j *cycleJob) listen(ctx context.Context, c *cycleConstructor) {
	for {
		order, err := c.stream.Recv()
		part := cyclePart{from: c, plan: order.GetPlan(), at: time.Now(), err: err}
		switch o := order.GetOrder().(type) {
		case *pb.ConstructorOrder_Admit:
			part.err = c.sender.Send(&pb.ConstructorReport{Report: &pb.ConstructorReport_Admitted{Admitted: &pb.Admitted{Join: o.Admit.Join}}})
		case *pb.ConstructorOrder_Restart:
			part.err = c.sender.Send(&pb.ConstructorReport{Report: &pb.ConstructorReport_Restarted{Restarted: o.Restart.Generation}})
		case *pb.ConstructorOrder_Failure:
			part.err = rpc.FromFailure(o.Failure)
		}
		if part.plan == nil && part.err == nil {
			continue
		}
		select {
		case j.parts <- part:
		case <-ctx.Done():
			return
		}
		if cmp.Or(err, part.err) != nil {
			return
		}
	}
}

// assembled reports the digests of the constructor's rows in a step: synthetic, but
// unique to each row.
func (c *cycleConstructor) assembled(step uint64) error {
	digests := make([]byte, 32*len(c.rows))
	for i, row := range c.rows {
		binary.LittleEndian.PutUint32(digests[32*i:], row)
	}
	return c.sender.Send(&pb.ConstructorReport{Report: &pb.ConstructorReport_Assembled{
		Assembled: &pb.Assembled{Generation: c.generation, Step: step, Rows: c.rows, Digests: digests},
	}})
}

// acknowledge says that all ranks of a constructor are done with a step.
func (c *cycleConstructor) acknowledge(step uint64) error {
	if err := c.assembled(step); err != nil {
		return err
	}
	for _, bucket := range c.buckets {
		err := c.sender.Send(&pb.ConstructorReport{Report: &pb.ConstructorReport_Acked{
			Acked: &pb.Acked{Generation: c.generation, Bucket: bucket, Step: step + 1},
		}})
		if err != nil {
			return err
		}
	}
	return nil
}
