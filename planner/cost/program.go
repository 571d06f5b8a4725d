package cost

// opcode is what an instruction does with x and y.
type opcode uint8

const (
	opMove opcode = iota // y
	opAdd
	opSubtract
	opMultiply
	opDivide
	opRemainder
	opMin
	opMax
	opAbs  // |y|
	opRoot // of x / y, where y is a power of ten
	opEqual
	opUnequal
	opLess
	opLessEqual
	opGreater
	opGreaterEqual
	opJump       // to imm
	opJumpIfZero // to imm, if x is 0
	opJumpUnless // to imm, if x is not 0
)

var opcodes = map[string]opcode{
	"+": opAdd, "-": opSubtract, "*": opMultiply, "/": opDivide, "%": opRemainder, "min": opMin, "max": opMax,
	"==": opEqual, "!=": opUnequal, "<": opLess, "<=": opLessEqual, ">": opGreater, ">=": opGreaterEqual,
}

// Slots hold the fields, a zero, and results that wait for their operator.
const (
	zeroSlot  = uint8(images) + 1
	firstSlot = zeroSlot + 1
	slots     = 32 // a power of two: an index needs no check
)

// instruction sets slot dst to x op y, with x in slot l and y the sum of slot r
// and imm, so that a constant is the zero slot and imm.
type instruction struct {
	op        opcode
	dst, l, r uint8
	pos       uint16 // in the expression, for errors
	imm       int64
}

// program is a compiled expression. Its result is in firstSlot. Its memory is
// one frame on the stack, so that it runs without allocating.
type program []instruction

// failure is where and why a run has no result, 0 if there is a result.
type failure uint32

func at(pos uint16, why reason) failure { return failure(pos)<<8 | failure(why) }

func (f failure) pos() int       { return int(f >> 8) }
func (f failure) reason() reason { return reason(f) }

// run evaluates the program. Conditions are 1 or 0.
func (p program) run(s Sample) (int64, failure) {
	var frame [slots]int64
	frame[tokens], frame[patches], frame[images] = s.Tokens, s.Patches, s.Images
	for pc := 0; pc < len(p); pc++ {
		in := &p[pc]
		x, y := frame[in.l%slots], frame[in.r%slots]+in.imm
		why := fine
		switch in.op {
		case opAdd:
			y, why = add(x, y)
		case opSubtract:
			y, why = subtract(x, y)
		case opMultiply:
			y, why = multiply(x, y)
		case opDivide:
			y, why = divide(x, y)
		case opRemainder:
			y, why = remainder(x, y)
		case opMin:
			y = min(x, y)
		case opMax:
			y = max(x, y)
		case opAbs:
			y, why = magnitude(y)
		case opRoot:
			y, why = root(x, y)
		case opEqual:
			y = truth(x == y)
		case opUnequal:
			y = truth(x != y)
		case opLess:
			y = truth(x < y)
		case opLessEqual:
			y = truth(x <= y)
		case opGreater:
			y = truth(x > y)
		case opGreaterEqual:
			y = truth(x >= y)
		case opJump, opJumpIfZero, opJumpUnless:
			if in.op == opJump || (x == 0) == (in.op == opJumpIfZero) {
				pc = int(in.imm) - 1
			}
			continue
		}
		if why != fine {
			return 0, at(in.pos, why)
		}
		frame[in.dst%slots] = y
	}
	return frame[firstSlot], 0
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
