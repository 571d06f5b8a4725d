package sizing

// demand is how many workers each source keeps busy: by time, from now on, and by source.
type demand [][]float64

// work is the demand until a loader that is asked for soon reads its sources.
func (s *Scaler) work(x Interval) demand {
	work := make(demand, 1+len(x.Sources[0].Ahead))
	for at := range work {
		work[at] = make([]float64, len(s.base))
	}
	for i := range s.base {
		l := &x.Sources[i]
		if s.mean[i] < 0 {
			s.mean[i] = l.Share
		}
		s.mean[i] += s.opts.Smooth * (l.Share - s.mean[i])
		work[0][i] = x.Rate * s.mean[i] * l.Cost
		for at, share := range l.Ahead {
			work[0][i], work[1+at][i] = x.Rate*l.Share*l.Cost, x.Rate*share*l.Cost
		}
	}
	return work
}

// of is what some sources keep busy together, at the most.
func (d demand) of(sources []int) (most float64) {
	for _, work := range d {
		sum := 0.0
		for _, i := range sources {
			sum += work[i]
		}
		most = max(most, sum)
	}
	return most
}

// busy is the part of each place's workers that is busy at the most, if each source is read by these places.
func busy(places []PlaceStatus, work demand, table [][]int) []float64 {
	most := make([]float64, len(places))
	for _, work := range work {
		part := make([]float64, len(places))
		for i, of := range table {
			for _, at := range of {
				if at < len(part) {
					part[at] += work[i] / float64(len(of)) / float64(max(places[at].Workers, 1))
				}
			}
		}
		for at := range most {
			most[at] = max(most[at], part[at])
		}
	}
	return most
}
