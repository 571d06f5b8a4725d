//go:build race

package imaging

// step: one picture in step is decoded. Loops over pixels take twenty times as long
// under the race detector, and one goroutine has no races to find.
const step = 6
