package planner

import (
	"context"
	"sync/atomic"

	"github.com/millrace-data/millrace/internal/planner/status"
	"github.com/millrace-data/millrace/internal/telemetry"
)

// What the planner shows of itself, beside its status: the same numbers, by name.

// counted is what only telemetry wants to know. It may be read from anywhere.
type counted struct {
	loaders, constructors atomic.Uint64 // sessions that began
	joins                 atomic.Uint64 // of ranks, that were granted
}

// show shows the planner on the board until the function that it returns is called.
func (p *Planner) show() (remove func()) {
	return p.opts.Telemetry.Add(telemetry.Part{Role: "planner", Metrics: p.observe, Ready: p.unready})
}

// standby shows a planner that waits for its turn.
func standby(b *telemetry.Board) (remove func()) {
	return b.Add(telemetry.Part{Role: "planner", Ready: func() string { return "the log of the job, which another planner may have open" }})
}

// unready says what the planner waits for before it plans for ranks; "" when it does.
func (p *Planner) unready() string {
	ctx, cancel := context.WithTimeout(context.Background(), slowStatus)
	defer cancel()
	s, err := p.look(ctx)
	switch {
	case err != nil && p.busyFor() > 0:
		return "" // it plans, and that takes long
	case err != nil:
		return err.Error()
	case s.State == "failed":
		return "someone to mend what failed the job: " + s.Error
	case s.State == "starting":
		return s.WaitingFor
	}
	return ""
}

// observe gives the values of the planner's metrics. While the loop is busy with one step for long, there are none.
func (p *Planner) observe(put telemetry.Observe) {
	ctx, cancel := context.WithTimeout(context.Background(), slowStatus)
	defer cancel()
	put(telemetry.MemberSessions, float64(p.counted.loaders.Load()), "loader")
	put(telemetry.MemberSessions, float64(p.counted.constructors.Load()), "constructor")
	put(telemetry.RankJoins, float64(p.counted.joins.Load()))
	s, err := p.look(ctx)
	if err != nil {
		return
	}
	put(telemetry.JobState, 1, s.Job, s.State)
	put(telemetry.StepPlanned, float64(s.Planned))
	put(telemetry.StepAcked, float64(s.Acked))
	put(telemetry.PlanLead, float64(s.Planned-s.Acked))
	put(telemetry.PlanAhead, float64(p.opts.Prefetch))
	put(telemetry.PlanFill, s.Fill)
	put(telemetry.PlanCarried, float64(s.Carried))
	put(telemetry.PlanHeld, float64(s.Held))
	for _, h := range s.Holdups {
		put(telemetry.HoldupTime, h.Seconds, h.Cause, h.Name)
	}
	if s.Trainers.Ranks > 0 {
		put(telemetry.TrainersWaitShare, s.Trainers.Share)
	}
	put(telemetry.PlannerEpoch, float64(s.Epoch))
	put(telemetry.PlannerGeneration, float64(s.Generation))
	put(telemetry.PlannerStale, float64(s.StaleRefused))
	put(telemetry.PlannerAppendsRefused, float64(s.AppendsRefused))
	put(telemetry.Promotions, float64(s.Promotions))
	put(telemetry.BlocksAskedAgain, float64(s.ReadAgain))
	observeMembers(s, put)
	observeSources(s, put)
}

func observeMembers(s status.Service, put telemetry.Observe) {
	count := map[[2]string]int{{"loader", "ok"}: 0, {"loader", "suspect"}: 0, {"loader", "shadow"}: 0, {"constructor", "ok"}: 0, {"constructor", "suspect"}: 0, {"constructor", "spare"}: 0}
	for _, l := range s.Loaders {
		switch {
		case l.Suspect != "":
			count[[2]string{"loader", "suspect"}]++
		case l.Place < 0:
			count[[2]string{"loader", "shadow"}]++
		default:
			count[[2]string{"loader", "ok"}]++
		}
	}
	for _, c := range s.Constructors {
		switch {
		case c.Suspect != "":
			count[[2]string{"constructor", "suspect"}]++
		case len(c.Buckets) == 0:
			count[[2]string{"constructor", "spare"}]++
		default:
			count[[2]string{"constructor", "ok"}]++
		}
	}
	for of, n := range count {
		put(telemetry.Members, float64(n), of[0], of[1])
	}
}

func observeSources(s status.Service, put telemetry.Observe) {
	for _, x := range s.Sources {
		put(telemetry.SourceLag, x.Lag, x.Name)
		put(telemetry.SourceTokens, float64(x.Tokens), x.Name)
		put(telemetry.SourceSamples, float64(x.Samples), x.Name)
		put(telemetry.SourceShare, x.Realised, x.Name)
		put(telemetry.SourceShareScheduled, x.Scheduled, x.Name)
		put(telemetry.SourceEpoch, float64(x.Epoch), x.Name)
		put(telemetry.SourceRecords, float64(x.Filtered), x.Name, "filtered")
		put(telemetry.SourceRecords, float64(x.Dropped), x.Name, "dropped")
		put(telemetry.SourceRecords, float64(x.Empty), x.Name, "empty")
		put(telemetry.SourceRecords, float64(x.Skipped), x.Name, "skipped")
	}
}
