package multibuffer

import "github.com/klauspost/cpuid/v2"

// fewest is the number of messages from which lanes take less time than one message after the other does. A lane alone is
// some half as fast as the processor's ordinary instructions are, and a tenth as fast as those for SHA-256.
var fewest = fewestOf(cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512BW), cpuid.CPU.Supports(cpuid.SHA))

func fewestOf(wide, sha bool) int {
	switch {
	case !wide:
		return none
	case sha:
		return 12
	default:
		return 4
	}
}

// compress has the state of each lane take blocks of 64 bytes of that lane's input; rounds are the
// constants of the rounds.
//
//go:noescape
func compress(state *[8][lanes]uint32, input *[lanes]*byte, rounds *[64]uint32, blocks int)
