package balance

import "fmt"

// Sample is a sample of a stream as an [OutlierQueue] sees it.
type Sample struct {
	ID     int64 // the caller's
	Tokens int32
	Step   int64 // in which it was drawn
}

// OutlierQueue holds samples of outlying length back until there are as many as
// the microbatches of a step, so that each gets one and no microbatch is far
// dearer than the others: the outlier delay of WLB-LLM (OSDI 2025). The samples
// of one level wait together. An OutlierQueue is plain data and keeps nothing
// between calls: the samples that wait are the caller's to keep, in its state.
type OutlierQueue struct {
	Thresholds []int32 // tokens from which a sample is of a level, increasing
	Release    int     // samples of a level that end its wait, 1 and more
	Patience   int64   // steps that a sample waits at most, 0 and more
	Most       int     // samples of all levels that end their wait in one step; 0: any number
}

const maxLevels = 16

// Check says what is wrong with the fields, if anything.
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
		return fmt.Errorf("%d samples are to be released together; 1 and more are possible", q.Release)
	}
	if q.Patience < 0 {
		return fmt.Errorf("a patience of %d steps; 0 and more are possible", q.Patience)
	}
	if q.Most < 0 {
		return fmt.Errorf("at most %d samples are to end their wait in one step; 0 and more are possible", q.Most)
	}
	return nil
}

// Next is one step of the stream. waiting are the samples held back so far, as
// the last call returned them, and drawn are those of this step, with its number
// as theirs. It appends to now the samples that are in the step and to still
// those that wait on, both in the order of waiting and then drawn.
//
// Samples below all thresholds are in the step. Of a level, the oldest q.Release
// are if there are so many, or a multiple of it if there are more; and the oldest
// that have waited for q.Patience steps are in any case. Where that is more than
// q.Most in all, those of the patience come first, the oldest of them, and then
// what there is room for of the levels together, the highest level first: the
// others are in a later step. Next is a function of its arguments; q must pass
// [OutlierQueue.Check], and now and still must not share memory with the
// arguments before.
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

// released returns how many of each level, the oldest, are in a step.
func (q OutlierQueue) released(step int64, all [2][]Sample) (together [maxLevels + 1]int) {
	room := q.Most
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
