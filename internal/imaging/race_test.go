//go:build race

package imaging

// step is how many pictures of a set are passed over for one that is decoded. Loops over
// pixels take twenty times as long under the race detector, and one goroutine has no races
// to find: there, a part of each set is enough.
const step = 6
