//go:build !amd64

package multibuffer

// fewest says that this processor has no lanes.
const fewest = none

// compress is never called.
func compress(*[8][lanes]uint32, *[lanes]*byte, *[64]uint32, int) {
	panic("bug: this processor has no lanes")
}
