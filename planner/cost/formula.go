package cost

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/expr"
	"github.com/millrace-data/millrace/internal/fault"
)

// flopShift makes the unit of the models that count floating point operations:
// 2^20 of them. See the package comment for the sums it leaves room for.
const flopShift = 20

// formula is the cost (a x + b x² + fixed) / 2^shift, rounded up, of one count x.
type formula struct {
	text     string // canonical
	of       field
	a, b     uint64 // at most math.MaxInt64
	add      uint64 // fixed, and what rounds up
	shift    uint
	below    uint64 // counts below it cost so little that 64 bits are enough
	oneImage bool   // the cost is of one image
}

func (f *formula) String() string { return f.text }

// Cost computes a x + b x² in 192 bits, so that it overflows only if the cost does. Nearly all counts are small.
func (f *formula) Cost(s Sample) (int64, error) {
	x := uint64(s.get(f.of))
	if x < f.below && !s.negative() && (!f.oneImage || s.Images <= 1) {
		return int64(((f.b*x+f.a)*x + f.add) >> f.shift), nil
	}
	hi, lo := bits.Mul64(f.b, x)
	lo, carry := bits.Add64(lo, f.a, 0)
	hi += carry // both are below 2^63 if they count
	top, mid := bits.Mul64(hi, x)
	hi, lo = bits.Mul64(lo, x)
	lo, carry = bits.Add64(lo, f.add, 0)
	hi, over := bits.Add64(hi, mid, carry)
	units := hi<<(64-f.shift) | lo>>f.shift
	if s.negative() || top|over|hi>>f.shift|units>>63 != 0 || f.oneImage && s.Images > 1 {
		return 0, f.refuse(s)
	}
	return int64(units), nil
}

func (f *formula) refuse(s Sample) error {
	switch {
	case s.negative():
		return negativeField(f.text, s)
	case f.oneImage && s.Images > 1:
		return fault.Userf("cost %s: a sample of %v has several images, and this is the cost of one: add up the costs of its images", f.text, s)
	}
	return fault.Userf("cost %s: a sample of %v costs more than %d units, the most there can be: check its length, or take smaller parameters",
		f.text, s, int64(math.MaxInt64))
}

// parameter is a number that a shape takes. Without a default it has to be given.
type parameter struct {
	name     string
	def      int64 // -1: there is none
	decimals bool  // may be a decimal fraction
	least    int64
}

// shape is a named family of formulas.
type shape struct {
	name   string
	params []parameter
	of     field
	anyOf  bool // takes of=
	shift  uint
	// build gives the coefficients, from the parameters in their order.
	build func(v []*big.Rat) (a, b, fixed *big.Rat)
}

var zero = new(big.Rat)

var shapes = []shape{
	{
		name: "linear", params: []parameter{{name: "a", def: 1}}, anyOf: true,
		build: func(v []*big.Rat) (a, b, fixed *big.Rat) { return v[0], zero, zero },
	},
	{
		name: "quadratic", params: []parameter{{name: "a", def: 24576}, {name: "b", def: 1}}, anyOf: true,
		build: func(v []*big.Rat) (a, b, fixed *big.Rat) { return v[0], v[1], zero },
	},
	{
		name: "memory", params: []parameter{{name: "bytes_per_token", def: -1}, {name: "fixed_bytes"}},
		build: func(v []*big.Rat) (a, b, fixed *big.Rat) { return v[0], zero, v[1] },
	},
	{
		name: "transformer", shift: flopShift,
		params: []parameter{{name: "layers", def: -1, least: 1}, {name: "hidden", def: -1, least: 1}, {name: "active", def: 12, decimals: true}},
		build: func(v []*big.Rat) (a, b, fixed *big.Rat) {
			layers, hidden, active := v[0], v[1], v[2]
			return product(big.NewRat(2, 1), layers, active, hidden, hidden), product(big.NewRat(2, 1), layers, hidden), zero
		},
	},
	{
		name: "encoder", shift: flopShift, of: patches,
		params: []parameter{{name: "layers", def: -1, least: 1}, {name: "hidden", def: -1, least: 1}},
		build: func(v []*big.Rat) (a, b, fixed *big.Rat) {
			layers, hidden := v[0], v[1]
			return product(big.NewRat(24, 1), layers, hidden, hidden), product(big.NewRat(4, 1), layers, hidden), zero
		},
	},
}

// presets are models of published sizes, each with what it stands for. active of
// the mixtures of experts is an estimate.
var presets = []struct{ name, text string }{
	{"llama-12b", "transformer(layers=45, hidden=4608, active=12)"},
	{"tmoe-25b", "transformer(layers=42, hidden=2048, active=20)"},
	{"mixtral-8x7b", "transformer(layers=32, hidden=4096, active=25)"},
	{"vit-1b", "encoder(layers=39, hidden=1408)"},
	{"vit-2b", "encoder(layers=48, hidden=1664)"},
}

func preset(name string) (text string, ok bool) {
	for _, p := range presets {
		if p.name == name {
			return p.text, true
		}
	}
	return "", false
}

func shapeNamed(name string) *shape {
	if name == "vit" {
		name = "encoder"
	}
	i := slices.IndexFunc(shapes, func(s shape) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return &shapes[i]
}

func modelNames() []string {
	var names []string
	for _, s := range shapes {
		names = append(names, s.name)
	}
	names = append(names, "vit")
	for _, p := range presets {
		names = append(names, p.name)
	}
	return names
}

func product(factors ...*big.Rat) *big.Rat {
	p := big.NewRat(1, 1)
	for _, f := range factors {
		p.Mul(p, f)
	}
	return p
}

// parse reads the parameters of the shape: name=value, with commas between.
func (h *shape) parse(text string) (Model, error) {
	values, of := make([]*big.Rat, len(h.params)), h.of
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(text) == "" {
			break
		}
		name, value, ok := strings.Cut(part, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		i := slices.IndexFunc(h.params, func(p parameter) bool { return p.name == name })
		switch {
		case !ok:
			return nil, fault.Userf("cost %s: %q is not a parameter: write name=value, as in %s", h.name, shortened(strings.TrimSpace(part)), h.usage())
		case seen[name]:
			return nil, fault.Userf("cost %s: %s is given twice", h.name, shortened(name))
		case name == "of" && h.anyOf:
			if of, ok = fieldNamed(value); !ok {
				return nil, fault.Userf("cost %s: of=%s is not a field%s; valid are %s", h.name, shortened(value), meant(value, fieldNames), strings.Join(fieldNames, ", "))
			}
		case i < 0:
			return nil, fault.Userf("cost %s: there is no parameter %q%s; it is %s", h.name, shortened(name), meant(name, h.paramNames()), h.usage())
		default:
			number, err := h.params[i].parse(value)
			if err != nil {
				return nil, fault.Userf("cost %s: %w", h.name, err)
			}
			values[i] = number
		}
		seen[name] = true
	}
	return h.formula(values, of)
}

func (p *parameter) parse(value string) (*big.Rat, error) {
	d, err := parseDecimal(value)
	switch {
	case value == "" || expr.NumberLength(value) != len(value):
		return nil, fmt.Errorf("%s=%s is not a number of 0 or more, as 12 is", p.name, shortened(value))
	case err != nil:
		return nil, fmt.Errorf("%s=%s: %w", p.name, shortened(value), err)
	case d.decimals > 0 && !p.decimals:
		return nil, fmt.Errorf("%s=%s: it has to be a whole number", p.name, shortened(value))
	case d.mantissa < p.least:
		return nil, fmt.Errorf("%s=%s: it is at least %d", p.name, shortened(value), p.least)
	}
	return big.NewRat(d.mantissa, powersOfTen[d.decimals]), nil
}

func (h *shape) formula(values []*big.Rat, of field) (Model, error) {
	var text []string
	for i, p := range h.params {
		if values[i] == nil && p.def < 0 {
			return nil, fault.Userf("cost %s: %s has to be given: it is %s", h.name, p.name, h.usage())
		}
		if values[i] == nil {
			values[i] = big.NewRat(p.def, 1)
		}
		text = append(text, p.name+"="+decimalText(values[i]))
	}
	if of != h.of {
		text = append(text, "of="+of.String())
	}
	f := &formula{
		text: h.name + "(" + strings.Join(text, ", ") + ")",
		of:   of, shift: h.shift, add: 1<<h.shift - 1, oneImage: h.name == "encoder",
	}
	a, b, fixed := h.build(values)
	var fits [3]bool
	f.a, fits[0] = ceiling(a)
	f.b, fits[1] = ceiling(b)
	add, ok := ceiling(fixed)
	f.add, fits[2] = f.add+add, ok
	if fits != [3]bool{true, true, true} {
		return nil, fault.Userf("cost %s: its parameters are too large: a count of 1 costs more than %d units", f.text, int64(math.MaxInt64)>>h.shift)
	}
	f.below = f.smallCounts()
	return f, nil
}

// smallCounts returns what counts are below whose a x, b x² and rest are less than 2^61 each, a power of two; 0 if none is.
func (f *formula) smallCounts() uint64 {
	const most = 61
	k := min(most-bits.Len64(f.a), (most-bits.Len64(f.b))/2)
	if k < 0 || bits.Len64(f.add) > most {
		return 0
	}
	return 1 << k
}

// ceiling rounds up to a whole number, and reports whether it fits in 63 bits.
func ceiling(r *big.Rat) (uint64, bool) {
	n := new(big.Int).Add(r.Num(), r.Denom())
	n.Sub(n, big.NewInt(1)).Quo(n, r.Denom())
	return n.Uint64(), n.IsInt64()
}

func (h *shape) paramNames() []string {
	var names []string
	for _, p := range h.params {
		names = append(names, p.name)
	}
	if h.anyOf {
		names = append(names, "of")
	}
	return names
}

// usage shows the shape with its parameters: quadratic(a=24576, b=1, of=tokens).
func (h *shape) usage() string {
	var text []string
	for _, p := range h.params {
		value := "..."
		if p.def >= 0 {
			value = fmt.Sprint(p.def)
		}
		text = append(text, p.name+"="+value)
	}
	if h.anyOf {
		text = append(text, "of="+h.of.String())
	}
	return h.name + "(" + strings.Join(text, ", ") + ")"
}
