package mesh

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/didyoumean"
	"github.com/millrace-data/millrace/internal/fault"
)

// Limits. They keep every product of sizes well inside 64 bits.
const (
	maxAxis  = 1 << 20 // ranks along one axis, as in the job spec
	maxWorld = 1 << 24 // ranks of a mesh, as in the job spec: far more than any cluster has
)

// Sizes is the shape of a trainer: sizes of its axes, each at least 1.
type Sizes struct {
	DP, CP, PP, TP int // ranks along each axis
	VPP            int // virtual pipeline stages on a rank; adds no ranks
	EP             int // expert parallel size; divides DP * CP, adds no ranks

	// Order names dp, cp, pp and tp once each, those with neighbouring ranks
	// first; ep and vpp may stand anywhere in it. Empty is Megatron's default:
	// tp, cp, dp, pp.
	Order []string
}

// axis is an axis of ranks, by its level in the hierarchy of distribution.
type axis int

const (
	dp axis = iota
	cp
	pp
	tp
	levels // number of axes that ranks are numbered along
)

// names are all axes, those of ranks first and by level.
var names = []string{"dp", "cp", "pp", "tp", "vpp", "ep"}

func (a axis) String() string { return names[a] }

// megatron is the default order: as Megatron-LM's tp-cp-ep-dp-pp, in which ep
// moves no rank.
var megatron = [levels]axis{tp, cp, dp, pp}

// sizes returns the sizes of a mesh in the order of names.
func (m *Sizes) sizes() [6]*int { return [6]*int{&m.DP, &m.CP, &m.PP, &m.TP, &m.VPP, &m.EP} }

// checkSizes checks each size alone and the number of ranks.
func checkSizes(m Sizes) error {
	sizes := m.sizes()
	for i, n := range sizes {
		if *n < 1 || *n > maxAxis {
			return fault.Userf("mesh: %s is %d, valid are 1 to %d", names[i], *n, maxAxis)
		}
	}
	world := int64(1)
	for _, n := range sizes[:levels] {
		if world *= int64(*n); world > maxWorld {
			return fault.Userf("mesh: dp %d * cp %d * pp %d * tp %d are more than %d ranks, the maximum",
				m.DP, m.CP, m.PP, m.TP, maxWorld)
		}
	}
	if ranks := m.DP * m.CP; ranks%m.EP != 0 {
		return fault.Userf("mesh: ep %d does not divide dp %d * cp %d = %d, the ranks that experts are laid over; %s",
			m.EP, m.DP, m.CP, ranks, validDivisors(ranks, m.EP))
	}
	return nil
}

// parseOrder checks an order and leaves ep and vpp out of it.
func parseOrder(order []string) (parsed [levels]axis, err error) {
	if len(order) == 0 {
		return megatron, nil
	}
	const valid = "valid is each of dp, cp, pp, tp once, and ep and vpp if you like"
	found := 0
	for i, name := range order {
		at := slices.Index(names, name)
		switch {
		case at < 0:
			return parsed, fault.Userf("mesh: order names an unknown axis %s%s", quote(name), instead(name, names, valid))
		case slices.Contains(order[:i], name):
			return parsed, fault.Userf("mesh: order names %s twice; %s", name, valid)
		case axis(at) < levels:
			parsed[found] = axis(at)
			found++
		}
	}
	for _, name := range names[:levels] {
		if !slices.Contains(order, name) {
			return parsed, fault.Userf("mesh: order lacks %s; %s", name, valid)
		}
	}
	return parsed, nil
}

// instead ends a message about an unknown word: with the nearest known word, if one
// is near, and the valid ones.
func instead(got string, words []string, valid string) string {
	if near := didyoumean.Nearest(got, words); near != "" {
		return fmt.Sprintf(", did you mean %q? V%s", near, strings.TrimPrefix(valid, "v"))
	}
	return "; " + valid
}

// quote quotes text from outside, cut to a length for messages.
func quote(text string) string {
	const most = 64
	if len(text) > most {
		return fmt.Sprintf("%q...", text[:most])
	}
	return fmt.Sprintf("%q", text)
}

// validDivisors names the divisors of n: all if they are few, else those around got.
func validDivisors(n, got int) string {
	const few = 12
	all := divisors(int64(n))
	switch {
	case len(all) == 1:
		return "valid is 1"
	case len(all) > few:
		return fmt.Sprintf("valid are the divisors of %d, such as %s", n, and(nearest(int64(got), all)))
	}
	return "valid are " + and(all)
}

// divisors returns the divisors of n, ascending.
func divisors(n int64) []int64 {
	var low, high []int64
	for d := int64(1); d*d <= n; d++ {
		if n%d == 0 {
			low = append(low, d)
			if d*d != n {
				high = append(high, n/d)
			}
		}
	}
	slices.Reverse(high)
	return append(low, high...)
}

// nearest returns the last of ascending numbers below got and the first not below.
func nearest(got int64, ascending []int64) []int64 {
	above, _ := slices.BinarySearch(ascending, got)
	return ascending[max(0, above-1):min(len(ascending), above+1)]
}

// and lists numbers in a sentence.
func and(numbers []int64) string {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = fmt.Sprint(n)
	}
	if last := len(words) - 1; last > 0 {
		return strings.Join(words[:last], ", ") + " and " + words[last]
	}
	return strings.Join(words, "")
}
