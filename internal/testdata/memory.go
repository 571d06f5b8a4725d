package testdata

import "runtime"

// Room stands for a budget of bytes in tests of what takes them: it notes what it was asked for.
type Room struct {
	Asked, Held int64
	Err         error // what it answers
}

// Take is asked before bytes are taken; the function that it returns is called when they are free again.
func (r *Room) Take(bytes int64) (func(), error) {
	r.Asked, r.Held = bytes, r.Held+bytes
	return func() { r.Held -= bytes }, r.Err
}

// Allocated is how many bytes are allocated while do runs, by all goroutines.
func Allocated(do func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}
