package constructor

import (
	"strconv"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/telemetry"
)

// show shows the constructor on the board until the function that it returns is called.
func (c *Constructor) show() (remove func()) {
	return c.opts.Telemetry.Add(telemetry.Part{Role: "constructor", ID: c.opts.ID, Metrics: c.observe, Ready: c.unready})
}

// unready says what the constructor waits for before it serves ranks; "" when it does.
func (c *Constructor) unready() string {
	if c.session.Load() == nil {
		return "a planner at " + c.opts.Planner
	}
	return ""
}

// usage is what the constructor says of itself.
func (c *Constructor) usage() *pb.ConstructorUsage {
	u := c.steps.Usage()
	u.StaleRefused = c.epochs.Refused()
	c.peers.paced(func(p *pace) { u.Hedged, u.HedgesWon, u.Moved = p.made, p.won, p.moved })
	u.Gpus = c.gpus()
	return u
}

// gpus are what the GPUs of its machine did last.
func (c *Constructor) gpus() (all []*pb.GPUUsage) {
	if c.opts.GPUs == nil {
		return nil
	}
	for _, s := range c.opts.GPUs() {
		g := &pb.GPUUsage{Index: uint32(s.Device), Busy: s.Busy, Received: s.Received}
		if p := s.Profile; p != nil {
			g.Counted, g.Sm, g.Tensor = true, p.SM, p.Tensor
		}
		all = append(all, g)
	}
	return all
}

// observeGPUs gives the values of their metrics.
func (c *Constructor) observeGPUs(all []*pb.GPUUsage, put telemetry.Observe) {
	for _, g := range all {
		gpu := strconv.Itoa(int(g.Index))
		put(telemetry.GPUBusy, g.Busy, c.opts.ID, gpu)
		put(telemetry.GPUReceived, g.Received, c.opts.ID, gpu)
		if g.Counted {
			put(telemetry.GPUMultiprocessors, g.Sm, c.opts.ID, gpu)
			put(telemetry.GPUTensor, g.Tensor, c.opts.ID, gpu)
		}
	}
}

// observe gives the values of the constructor's metrics, from what it reports to the planner, too.
func (c *Constructor) observe(put telemetry.Observe) {
	id, u := c.opts.ID, c.usage()
	c.observeGPUs(u.Gpus, put)
	put(telemetry.ConstructorMemory, float64(u.HeldBytes), id)
	put(telemetry.ConstructorMemoryLimit, float64(u.BudgetBytes), id)
	put(telemetry.ConstructorDelivered, float64(u.DeliveredBytes), id)
	put(telemetry.ConstructorBatches, float64(u.DeliveredBatches), id)
	put(telemetry.ConstructorFetchTime, u.FetchSeconds, id)
	put(telemetry.ConstructorAssembleTime, u.AssembleSeconds, id)
	put(telemetry.ConstructorHedges, float64(u.Hedged), id, "hedged")
	put(telemetry.ConstructorHedges, float64(u.HedgesWon), id, "won")
	put(telemetry.ConstructorHedges, float64(u.Moved), id, "moved")
	put(telemetry.ConstructorAbsent, float64(u.Absent), id)
	put(telemetry.ConstructorStale, float64(u.StaleRefused), id)
	ranks := c.steps.Ranks()
	put(telemetry.ConstructorSteps, float64(ranks.Planned), id, "planned")
	put(telemetry.ConstructorSteps, float64(ranks.Building), id, "building")
	put(telemetry.ConstructorSteps, float64(ranks.Ready), id, "ready")
	for _, r := range ranks.All {
		put(telemetry.RankStep, float64(r.Step), id, r.Rank.Label())
		if r.Wait >= 0 {
			put(telemetry.RankWait, r.Wait.Seconds(), id, r.Rank.Label())
		}
	}
}
