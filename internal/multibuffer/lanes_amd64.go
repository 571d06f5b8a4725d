package multibuffer

import "github.com/klauspost/cpuid/v2"

// width is how many lanes this processor computes in at most, 0 if in none; fewest is the number of messages from which lanes
// take less time than one message after the other does.
//
// Eight lanes lie in registers of 256 bits, with the instructions that came with those of 512: rotations, and functions of
// three operands. Sixteen lie in those of 512, on AMD's processors, which keep their frequency with them: on Zen 5 they take the
// time of eight. Intel's gain little by them, and slow down what runs on the core before and after by 15 % (Xeon, Cascade Lake).
var width, fewest = widthOf(cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512VL), cpuid.CPU.VendorID == cpuid.AMD, cpuid.CPU.Supports(cpuid.SHA))

func widthOf(able, amd, sha bool) (width, fewest int) {
	switch {
	case !able:
		return 0, none
	case amd:
		width = 16
	default:
		width = 8
	}
	if sha {
		return width, 8
	}
	return width, 3
}

// compress has the state of each of 8 or 16 lanes take blocks of 64 bytes of that lane's input.
func compress(lanes int, state *[8 * widest]uint32, input *[widest]*byte, blocks int) {
	if lanes == 16 {
		compress16(&state[0], &input[0], &constants, blocks)
		return
	}
	compress8(&state[0], &input[0], &constants, blocks)
}

//go:noescape
func compress8(state *uint32, input **byte, rounds *[64]uint32, blocks int)

//go:noescape
func compress16(state *uint32, input **byte, rounds *[64]uint32, blocks int)
