package cost

// resolver settles what is known of numbers before any sample is seen: how many
// decimals each has, and the value of those without a field. Numbers that meet
// get equal decimals, by products with powers of ten.
type resolver struct{ src string }

func (r *resolver) resolve(n *node) (*node, error) {
	for i, arg := range n.args {
		var err error
		if n.args[i], err = r.resolve(arg); err != nil {
			return nil, err
		}
	}
	switch n.op {
	case "number":
		n.decimals = n.value.decimals
	case "negative":
		n = &node{op: "-", pos: n.pos, args: []*node{{op: "number", pos: n.pos}, n.args[0]}}
		return r.operator(n)
	case "abs":
		n.decimals = n.args[0].decimals
		return r.folded(n)
	case "sqrt":
		return r.folded(n)
	case "if":
		err := r.align(n.pos, n.args[1:])
		n.decimals = n.args[1].decimals
		return n, err
	case "==", "!=", "<", "<=", ">", ">=":
		return n, r.align(n.pos, n.args)
	case "+", "-", "*", "/", "%":
		return r.operator(n)
	case "min", "max":
		left := n.args[0]
		for _, right := range n.args[1:] {
			var err error
			if left, err = r.operator(&node{op: n.op, pos: n.pos, args: []*node{left, right}}); err != nil {
				return nil, err
			}
		}
		return left, nil
	}
	return n, nil
}

// operator resolves a node of two numbers.
func (r *resolver) operator(n *node) (*node, error) {
	n.decimals = n.args[0].decimals + n.args[1].decimals
	if n.op != "*" {
		if err := r.align(n.pos, n.args); err != nil {
			return nil, err
		}
		n.decimals = n.args[0].decimals
	}
	if y := n.args[1]; (n.op == "/" || n.op == "%") && y.op == "number" && y.value.mantissa == 0 {
		return nil, errorAt(r.src, n.pos, "%v, whatever the sample", byZero)
	}
	if n.op == "/" {
		n.decimals = 0
		if err := r.whole(n); err != nil {
			return nil, err
		}
	}
	if n.decimals > MaxDecimals {
		return nil, errorAt(r.src, n.pos, "the product needs %d decimals, and at most %d are allowed: round its factors, or divide by a power of ten at the end",
			n.decimals, MaxDecimals)
	}
	return r.folded(n)
}

// whole refuses a quotient of constants that is not a whole number.
func (r *resolver) whole(n *node) error {
	x, y := n.args[0], n.args[1]
	if x.op != "number" || y.op != "number" || x.value.mantissa%y.value.mantissa == 0 {
		return nil
	}
	return errorAt(r.src, n.pos, "%v / %v is not a whole number, and / drops the fraction: write a decimal, such as 1.5 for 3 / 2, or multiply before you divide",
		x.value.normal(), y.value.normal())
}

// folded is n, or its value in lowest terms if it has only constants.
func (r *resolver) folded(n *node) (*node, error) {
	for _, arg := range n.args {
		if arg.op != "number" {
			return n, nil
		}
	}
	value, failed := constantProgram(n).run(Sample{})
	if failed != 0 {
		return nil, errorAt(r.src, n.pos, "%v, whatever the sample", failed.reason())
	}
	d := decimal{value, n.decimals}.normal()
	return &node{op: "number", pos: n.pos, value: d, decimals: d.decimals}, nil
}

// align gives all numbers the decimals of the one that has most.
func (r *resolver) align(pos int, numbers []*node) error {
	most := 0
	for _, n := range numbers {
		most = max(most, n.decimals)
	}
	for i, n := range numbers {
		if n.decimals == most {
			continue
		}
		power := powersOfTen[most-n.decimals]
		if n.op != "number" {
			factor := &node{op: "number", pos: pos, value: decimal{mantissa: power}}
			numbers[i] = &node{op: "*", pos: pos, args: []*node{n, factor}, decimals: most}
			continue
		}
		mantissa, why := multiply(n.value.mantissa, power)
		if why != fine {
			return errorAt(r.src, pos, "%v in units of 10^-%d: %v", n.value, most, why)
		}
		numbers[i] = &node{op: "number", pos: n.pos, value: decimal{mantissa, most}, decimals: most}
	}
	return nil
}
