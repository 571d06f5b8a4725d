//go:build !amd64

package multibuffer

// This processor has no lanes.
const (
	width  = 0
	fewest = none
)

// compress is never called.
func compress(int, *[8 * widest]uint32, *[widest]*byte, int) {
	panic("bug: this processor has no lanes")
}
