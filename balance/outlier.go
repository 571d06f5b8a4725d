package balance

import "fmt"

// Sample is a sample of a stream as an [OutlierQueue] sees it.
type Sample struct {
	ID     int64 // the caller's
	Tokens int32
	Step   int64 // in which it was drawn
}

// OutlierQueue holds back samples of outlying length until there is one for each
// microbatch of a step, so that no microbatch costs far
// more than the others: the outlier delay of WLB-LLM (OSDI 2025). The samples
// of one level wait together. An OutlierQueue is plain data and keeps nothing
// between calls: the caller keeps the waiting samples in its state.
type OutlierQueue struct {
	Thresholds []int32 // least tokens of each level, increasing
	Release    int     // samples of a level that are released together, 1 and more
	Patience   int64   // steps that a sample waits at most, 0 and more
	MaxPerStep int     // samples of all levels released in one step; 0: any number
}

const maxLevels = 16

// Check returns an error if a field is out of range.
func (q OutlierQueue) Check() error {
	if len(q.Thresholds) > maxLevels {
		return fmt.Errorf("%d thresholds; at most %d are possible", len(q.Thresholds), maxLevels)
	}
	for i, n := range q.Thresholds {
		if n < 1 || i > 0 && n <= q.Thresholds[i-1] {
			return fmt.Errorf("thresholds %v do not increase from 1; give each level's shortest length, the lowest level first", q.Thresholds)
		}
	}
	if q.Release < 1 {
		return fmt.Errorf("%d samples released together; 1 and more are possible", q.Release)
	}
	if q.Patience < 0 {
		return fmt.Errorf("a patience of %d steps; 0 and more are possible", q.Patience)
	}
	if q.MaxPerStep < 0 {
		return fmt.Errorf("at most %d samples released in one step; 0 and more are possible", q.MaxPerStep)
	}
	return nil
}

// Next is one step of the stream. waiting are the samples held back so far, as
// the last call returned them, and drawn are those of this step, with its number
// as theirs. It appends to now the samples that are in the step and to still
// those that wait on, both in the order of waiting and then drawn.
//
// Samples below all thresholds are in the step. A level releases its oldest samples
// in multiples of q.Release; samples that have waited for q.Patience steps are
// released in any case. Where that exceeds q.MaxPerStep in all, those out of
// patience come first, oldest first, then whole multiples while there is room, the
// highest level first; the others are in a later step. Next is a pure function; q
// must pass [OutlierQueue.Check], and now and still must not share memory with
// waiting and drawn.
func (q OutlierQueue) Next(step int64, waiting, drawn, now, still []Sample) (present, held []Sample) {
	all := [...][]Sample{waiting, drawn}
	together := q.released(step, all)
	for _, samples := range all {
		for _, s := range samples {
			level := q.Level(s.Tokens)
			if level > 0 && together[level] == 0 {
				still = append(still, s)
				continue
			}
			together[level]--
			now = append(now, s)
		}
	}
	return now, still
}

// released returns how many of each level's oldest samples are in a step.
func (q OutlierQueue) released(step int64, all [2][]Sample) (together [maxLevels + 1]int) {
	room := q.MaxPerStep
	if room == 0 {
		room = len(all[0]) + len(all[1])
	}
	var count, late [maxLevels + 1]int
	for _, samples := range all {
		for _, s := range samples {
			level := q.Level(s.Tokens)
			count[level]++
			if level > 0 && room > 0 && step-s.Step >= q.Patience {
				late[level]++
				room--
			}
		}
	}
	for level := len(q.Thresholds); level > 0; level-- {
		n := count[level] - count[level]%q.Release
		for n > late[level] && n-late[level] > room {
			n -= q.Release
		}
		together[level] = max(n, late[level])
		room -= together[level] - late[level]
	}
	return together
}

// Level returns the level of a sample, from 1 on; 0 for an ordinary one, which
// never waits.
func (q OutlierQueue) Level(tokens int32) (level int) {
	for level < len(q.Thresholds) && tokens >= q.Thresholds[level] {
		level++
	}
	return level
}
