package cost

// operand is where a number is: slot and imm add up to it.
type operand struct {
	slot uint8
	imm  int64
}

// compiler writes the program of a resolved expression.
type compiler struct {
	src     string
	program program
}

// compile returns the program of an expression.
func compile(src string, n *node) (program, error) {
	c := &compiler{src: src}
	err := c.into(firstSlot, n)
	return c.program, err
}

// constantProgram is the program of an operator over constants. Its depth is one,
// so it always has room.
func constantProgram(n *node) program {
	p, _ := compile("", n)
	return p
}

// emit writes the instruction that sets dst to x op y. y is not in dst if x is a
// constant.
func (c *compiler) emit(op opcode, n *node, dst uint8, x, y operand) operand {
	if x.imm != 0 { // only y has room for a constant
		c.emit(opMove, n, dst, operand{slot: zeroSlot}, x)
		x = operand{slot: dst}
	}
	c.program = append(c.program, instruction{op, dst, x.slot, y.slot, uint16(n.pos), y.imm})
	return operand{slot: dst}
}

// part writes the code of n. Its result is a field, a constant, or in slot free;
// slots from free on are unused.
func (c *compiler) part(n *node, free uint8) (operand, error) {
	if free == slots {
		return operand{}, errorAt(c.src, n.pos, "more than %d results wait for their operator here: begin with what is nested most, or write a Go function", slots-int(firstSlot))
	}
	switch n.op {
	case "number":
		return operand{zeroSlot, n.value.mantissa}, nil
	case "field":
		return operand{slot: uint8(n.field)}, nil
	case "and":
		return c.connective(opJumpIfZero, n, free)
	case "or":
		return c.connective(opJumpUnless, n, free)
	case "if":
		return c.choice(n, free)
	}
	x, err := c.part(n.args[0], free)
	if err != nil {
		return x, err
	}
	switch n.op {
	case "not":
		return c.emit(opEqual, n, free, x, operand{slot: zeroSlot}), nil
	case "abs":
		return c.emit(opAbs, n, free, operand{slot: zeroSlot}, x), nil
	case "sqrt":
		return c.emit(opRoot, n, free, x, operand{zeroSlot, powersOfTen[n.args[0].decimals]}), nil
	}
	next := free
	if x.slot == free || x.imm != 0 {
		next++
	}
	y, err := c.part(n.args[1], next)
	if err != nil {
		return y, err
	}
	if x.imm != 0 && commutes(n.op) {
		x, y = y, x
	}
	return c.emit(opcodes[n.op], n, free, x, y), nil
}

func commutes(op string) bool {
	switch op {
	case "+", "*", "min", "max", "==", "!=":
		return true
	}
	return false
}

// into writes the code of n, with its result in slot dst.
func (c *compiler) into(dst uint8, n *node) error {
	o, err := c.part(n, dst)
	if err == nil && o.slot != dst {
		c.emit(opMove, n, dst, operand{slot: zeroSlot}, o)
	}
	return err
}

// jump writes a jump over what over writes, taken depending on slot x.
func (c *compiler) jump(op opcode, n *node, x uint8, over func() error) error {
	from := len(c.program)
	c.emit(op, n, 0, operand{slot: x}, operand{slot: zeroSlot})
	err := over()
	c.program[from].imm = int64(len(c.program))
	return err
}

// connective is l and r, or l or r: r is not evaluated if l decides.
func (c *compiler) connective(op opcode, n *node, dst uint8) (operand, error) {
	err := c.into(dst, n.args[0])
	if err == nil {
		err = c.jump(op, n, dst, func() error { return c.into(dst, n.args[1]) })
	}
	return operand{slot: dst}, err
}

// choice is if(condition, then, else).
func (c *compiler) choice(n *node, dst uint8) (operand, error) {
	if err := c.into(dst, n.args[0]); err != nil {
		return operand{}, err
	}
	var toEnd int
	err := c.jump(opJumpIfZero, n, dst, func() error {
		err := c.into(dst, n.args[1])
		toEnd = len(c.program)
		c.emit(opJump, n, 0, operand{slot: zeroSlot}, operand{slot: zeroSlot})
		return err
	})
	if err == nil {
		err = c.into(dst, n.args[2])
	}
	c.program[toEnd].imm = int64(len(c.program))
	return operand{slot: dst}, err
}
