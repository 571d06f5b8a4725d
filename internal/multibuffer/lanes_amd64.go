package multibuffer

import "github.com/klauspost/cpuid/v2"

// fewest is the number of messages from which lanes take less time than one message after the other does.
//
// Lanes have registers of 256 bits, with the instructions that came with those of 512: rotations, and functions of three
// operands. The wide ones hash little faster, and slow down whatever runs on the core before and
// after by 15 %, as processors lower its frequency for them (Xeon, Cascade Lake).
var fewest = fewestOf(cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512VL), cpuid.CPU.Supports(cpuid.SHA))

func fewestOf(able, sha bool) int {
	switch {
	case !able:
		return none
	case sha:
		return lanes
	default:
		return 3
	}
}

// compress has the state of each lane take blocks of 64 bytes of that lane's input; rounds are the
// constants of the rounds.
//
//go:noescape
func compress(state *[8][lanes]uint32, input *[lanes]*byte, rounds *[64]uint32, blocks int)
