package status

import "github.com/millrace-data/millrace/internal/telemetry"

// Observe gives the metrics that say what the status says, all but the job's name.
func (s *Service) Observe(put telemetry.Observe) {
	put(telemetry.JobState, 1, s.State)
	put(telemetry.StepPlanned, float64(s.Planned))
	put(telemetry.StepAcked, float64(s.Acked))
	put(telemetry.PlanLead, float64(s.Planned-s.Acked))
	put(telemetry.PlanFill, s.Fill)
	put(telemetry.PlanCarried, float64(s.Carried))
	put(telemetry.PlanHeld, float64(s.Held))
	for _, h := range s.Holdups {
		put(telemetry.HoldupTime, h.Seconds, h.Cause, h.Name)
	}
	if s.Joined || s.Trainers.Ranks > 0 { // an alert has something to look at, whoever is lost
		put(telemetry.TrainersWaitShare, s.Trainers.Share)
		for _, cause := range causes {
			is := 0.0
			if cause == s.Stall.Cause {
				is = 1
			}
			put(telemetry.StallBy, is, cause)
		}
	}
	put(telemetry.PlannerEpoch, float64(s.Epoch))
	put(telemetry.PlannerGeneration, float64(s.Generation))
	put(telemetry.PlannerStale, float64(s.StaleRefused))
	put(telemetry.PlannerAppendsRefused, float64(s.AppendsRefused))
	put(telemetry.Promotions, float64(s.Promotions))
	put(telemetry.BlocksAskedAgain, float64(s.ReadAgain))
	s.observeMembers(put)
	s.observeWays(put)
	s.observeSources(put)
}

func (s *Service) observeMembers(put telemetry.Observe) {
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
	if s.State == "starting" || s.State == "running" { // whoever is there later may go
		put(telemetry.MembersWanted, float64(s.Wanted.Loaders), "loader")
		put(telemetry.MembersWanted, float64(s.Wanted.Constructors), "constructor")
	}
}

// Want says how many members there are to be: the loaders are those of the scaling, where there is one.
func (s *Service) Want(loaders, constructors int) {
	s.Wanted = Wanted{loaders, constructors}
	if s.Scaling != nil {
		s.Wanted.Loaders = s.Scaling.Loaders
	}
}

func (s *Service) observeSources(put telemetry.Observe) {
	for _, x := range s.Sources {
		put(telemetry.SourceLag, x.Lag, x.Name)
		put(telemetry.SourceTokens, float64(x.Tokens), x.Name)
		if x.Samples != nil {
			put(telemetry.SourceSamples, float64(*x.Samples), x.Name)
		}
		if x.Realised != nil {
			put(telemetry.SourceShare, *x.Realised, x.Name)
		}
		put(telemetry.SourceShareScheduled, x.Scheduled, x.Name)
		put(telemetry.SourceEpoch, float64(x.Epoch), x.Name)
		put(telemetry.SourceRecords, float64(x.Filtered), x.Name, "filtered")
		put(telemetry.SourceRecords, float64(x.Dropped), x.Name, "dropped")
		put(telemetry.SourceRecords, float64(x.Empty), x.Name, "empty")
		put(telemetry.SourceRecords, float64(x.Skipped), x.Name, "skipped")
	}
}

func (s *Service) observeWays(put telemetry.Observe) {
	ranks := map[string]uint32{}
	for name := range wayNames {
		ranks[name] = 0
	}
	for _, c := range s.Constructors {
		for _, w := range c.Ways {
			ranks[w.Way] += w.Ranks
		}
	}
	for way, n := range ranks {
		put(telemetry.RanksByWay, float64(n), way)
	}
}
