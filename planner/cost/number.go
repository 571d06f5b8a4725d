package cost

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"
)

// MaxDecimals is how many digits after the point a number of an expression has at
// most: finer than any cost is known, and coarse enough to leave ten digits before it.
const MaxDecimals = 9

var powersOfTen = [...]int64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9}

// decimal is the number mantissa / 10^decimals, in lowest terms if it came from
// a literal.
type decimal struct {
	mantissa int64
	decimals int // at most MaxDecimals
}

func (d decimal) normal() decimal {
	for d.decimals > 0 && d.mantissa%10 == 0 {
		d.mantissa, d.decimals = d.mantissa/10, d.decimals-1
	}
	return d
}

func (d decimal) String() string {
	return decimalText(big.NewRat(d.mantissa, powersOfTen[d.decimals]))
}

// decimalText prints a number of at most MaxDecimals decimals without loss.
func decimalText(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	return strings.TrimRight(r.FloatString(MaxDecimals), "0")
}

// parseDecimal reads a literal of the form that expr.NumberLength knows, such as 12,
// 1.5 or 2e-3, exactly.
func parseDecimal(literal string) (decimal, error) {
	number, power, scientific := strings.Cut(strings.ToLower(literal), "e")
	whole, fraction, _ := strings.Cut(number, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return decimal{}, nil
	}
	exponent := 0
	if scientific {
		var err error
		if exponent, err = strconv.Atoi(power); err != nil || max(exponent, -exponent) > 10_000 {
			return decimal{}, errors.New("the exponent is out of range")
		}
	}
	significant := strings.TrimRight(digits, "0")
	exponent += len(digits) - len(significant) - len(fraction)
	if exponent < -MaxDecimals {
		return decimal{}, fmt.Errorf("it has %d decimals, and at most %d are allowed", -exponent, MaxDecimals)
	}
	significant += strings.Repeat("0", min(max(exponent, 0), 20)) // 20 do not fit
	mantissa, err := strconv.ParseInt(significant, 10, 64)
	if err != nil {
		return decimal{}, fmt.Errorf("it does not fit in 64 bits: the largest number is %d, and with d decimals 10^d times less", int64(math.MaxInt64))
	}
	return decimal{mantissa, max(-exponent, 0)}, nil
}

// reason is why an operation has no result.
type reason uint8

const (
	fine reason = iota
	overflow
	byZero
	rootOfNegative
)

func (r reason) String() string {
	switch r {
	case byZero:
		return "division by zero"
	case rootOfNegative:
		return "the square root of a negative number"
	default:
		return "the result does not fit in 64 bits"
	}
}

func add(x, y int64) (int64, reason) {
	sum := x + y
	if (x^sum)&(y^sum) < 0 {
		return 0, overflow
	}
	return sum, fine
}

func subtract(x, y int64) (int64, reason) {
	difference := x - y
	if (x^y)&(x^difference) < 0 {
		return 0, overflow
	}
	return difference, fine
}

func multiply(x, y int64) (int64, reason) {
	hi, lo := bits.Mul64(uint64(x), uint64(y))
	// From the unsigned product's high half to the signed one's.
	hi -= uint64(x>>63)&uint64(y) + uint64(y>>63)&uint64(x)
	if hi != uint64(int64(lo)>>63) {
		return 0, overflow
	}
	return int64(lo), fine
}

func divide(x, y int64) (int64, reason) {
	switch {
	case y == 0:
		return 0, byZero
	case y == -1:
		return subtract(0, x)
	}
	return x / y, fine
}

func remainder(x, y int64) (int64, reason) {
	if y == 0 {
		return 0, byZero
	}
	return x % y, fine // Go defines x % -1 as 0
}

func magnitude(x int64) (int64, reason) {
	if x < 0 {
		return subtract(0, x)
	}
	return x, fine
}

// root is the largest integer whose square is at most x / unit.
func root(x, unit int64) (int64, reason) {
	if x < 0 {
		return 0, rootOfNegative
	}
	x /= unit
	// Rounding x and its root to the nearest float never falls below a whole root,
	// and reaches the next one at most.
	r := int64(math.Sqrt(float64(x)))
	if r*r > x {
		r--
	}
	return r, fine
}
