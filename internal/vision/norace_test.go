//go:build !race

package vision

// step: without the race detector every picture is decoded.
const step = 1
