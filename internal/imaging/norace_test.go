//go:build !race

package imaging

// step: without the race detector every picture is decoded.
const step = 1
