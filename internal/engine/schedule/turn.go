package schedule

// Turn is where a run stands among those that share slots and memory.
type Turn struct {
	Distance int64 // from where its pipeline is: 0 is needed now
	Weight   int64 // share of its pipeline in what is consumed; below 1 counts as 1
	Number   int64 // of the run, in the order they began
}

// Before reports whether run a goes before run b: the one that is needed sooner, as a
// pipeline with twice the weight comes to its next run in half the time; of equals, the one that began first.
func Before(a, b Turn) bool {
	x, y := float64(max(a.Distance, 0))/float64(max(a.Weight, 1)), float64(max(b.Distance, 0))/float64(max(b.Weight, 1))
	if x != y {
		return x < y
	}
	return a.Number < b.Number
}
