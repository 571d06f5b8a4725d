package cost

import (
	"fmt"
	"math"
	"strconv"

	"github.com/millrace-data/millrace/internal/fault"
)

// Limits of a fit.
const (
	minObservations = 8
	maxUncertainty  = 0.1  // of the time
	minSpread       = 1e-9 // squared sine between both sums: below it is rounding
)

// Observation is a measured time of a module: that of the rank or microbatch which
// the step waited for, and what it had to do.
type Observation struct {
	Sum     int64   // of the counts s of its samples (tokens, or patches)
	Squares int64   // of their s²
	Seconds float64 // without what does not depend on the samples, such as an all-reduce
}

// Calibrator fits the time a s + b s² of one module to observations, in constant
// memory. The zero value is ready. One goroutine uses it at a time.
type Calibrator struct {
	n                     int
	sum, squares, seconds float64 // sums of products of each with itself
	cross                 float64 // of sum and squares
	sumTime, squaresTime  float64 // of each with seconds
	totalTime             float64
}

// Fit is the result of a calibration. A and B are what a job may use: integers
// without a common factor whose ratio is the fitted one, rounded to three
// significant digits. The others are for reading.
type Fit struct {
	A, B int64

	SecondsPerUnit   float64 // a, at least 0
	SecondsPerSquare float64 // b, at least 0
	Observations     int
	R2               float64 // share of the variance of times that the fit explains; 0 if times do not vary
	Residual         float64 // root mean square of what is left, relative to that of times
	Uncertainty      float64 // standard error of the time that goes to one term and not to the other, relative to all
}

// String is the model of tokens, as Parse reads it; for an encoder add of=patches.
func (f Fit) String() string { return fmt.Sprintf("quadratic(a=%d, b=%d)", f.A, f.B) }

// Add takes an observation in. An error is of class fault.User and leaves the
// calibrator as it was.
func (c *Calibrator) Add(o Observation) error {
	s, q, t := float64(o.Sum), float64(o.Squares), o.Seconds
	switch {
	case o.Sum <= 0:
		return fault.Userf("calibration: the sum of counts is %d; it has to be positive", o.Sum)
	case o.Squares < o.Sum || q > s*s*(1+1e-9):
		return fault.Userf("calibration: the sum of squares is %d, for counts that sum to %d; it lies between the sum and its square", o.Squares, o.Sum)
	case !(t > 0) || t > 1e9:
		return fault.Userf("calibration: the step took %v seconds; it has to be a positive number of at most 1e9", t)
	}
	c.n++
	// A conversion keeps machines from fusing product and sum, so all round alike.
	c.sum += float64(s * s)
	c.squares += float64(q * q)
	c.cross += float64(s * q)
	c.sumTime += float64(s * t)
	c.squaresTime += float64(q * t)
	c.seconds += float64(t * t)
	c.totalTime += t
	return nil
}

// Observations counts those that were taken in.
func (c *Calibrator) Observations() int { return c.n }

// Fit returns the a and b of at least 0 with the least squares of what is left
// of the times. It fails, with class fault.User, if the observations are few or do
// not tell a from b: if the mean square of a step's counts hardly varies between
// steps, or less than the times' noise allows for.
func (c *Calibrator) Fit() (Fit, error) {
	if c.n < minObservations {
		return Fit{}, fault.Userf("calibration: %d observations; at least %d are needed", c.n, minObservations)
	}
	spread := 1 - float64(c.cross/c.sum)*float64(c.cross/c.squares)
	if spread < minSpread {
		return Fit{}, fault.Userf("calibration: sum and sum of squares have the same ratio in all %d observations, so a cannot be told from b: report steps with samples of other lengths",
			c.n)
	}
	a, b := c.solve(spread)
	left := c.left(a, b)
	f := Fit{
		SecondsPerUnit: a, SecondsPerSquare: b, Observations: c.n,
		Residual:    math.Sqrt(left / c.seconds),
		Uncertainty: math.Sqrt(left / float64(c.n-2) / spread / c.seconds),
	}
	if variance := c.seconds - float64(c.totalTime*c.totalTime)/float64(c.n); variance > minSpread*c.seconds {
		f.R2 = 1 - left/variance
	}
	if f.Uncertainty > maxUncertainty {
		return Fit{}, fault.Userf("calibration: after %d observations it is open where %.0f%% of the time goes, to a or to b (at most %.0f%% may be): the times have %.1f%% of noise, and the steps' lengths are too alike; report more steps, or steps with samples of other lengths",
			c.n, 100*f.Uncertainty, 100*maxUncertainty, 100*f.Residual)
	}
	f.A, f.B = integerRatio(a, b)
	return f, nil
}

// solve gives the best a and b of at least 0. The squares that are left are convex
// in both: if one of them would be negative, the best lies where it is 0.
func (c *Calibrator) solve(spread float64) (a, b float64) {
	determinant := float64(c.sum*c.squares) * spread
	a = (float64(c.squares*c.sumTime) - float64(c.cross*c.squaresTime)) / determinant
	b = (float64(c.sum*c.squaresTime) - float64(c.cross*c.sumTime)) / determinant
	switch {
	case a < 0:
		return 0, c.squaresTime / c.squares
	case b < 0:
		return c.sumTime / c.sum, 0
	}
	return a, b
}

// left is the sum of squares of seconds - a sum - b squares.
func (c *Calibrator) left(a, b float64) float64 {
	explained := 2 * (float64(a*c.sumTime) + float64(b*c.squaresTime))
	model := float64(a*float64(a*c.sum)) + 2*float64(a*float64(b*c.cross)) + float64(b*float64(b*c.squares))
	return max(c.seconds-explained+model, 0)
}

// integerRatio rounds a:b to three significant digits and cancels common factors.
// It drops a term of about a thousandth or less: b s² for samples of at most 100k
// tokens, a s for those of at least 100. So costs stay small enough to be summed.
func integerRatio(a, b float64) (int64, int64) {
	switch {
	case b == 0 || a/b >= 1e8:
		return 1, 0
	case a/b < 0.1:
		return 0, 1
	}
	text := strconv.FormatFloat(a/b, 'e', 2, 64) // d.dde±dd, correctly rounded
	digits, _ := strconv.ParseInt(text[:1]+text[2:4], 10, 64)
	exponent, _ := strconv.Atoi(text[5:])
	x, y := digits, int64(1)
	for ; exponent > 2; exponent-- {
		x *= 10
	}
	for ; exponent < 2; exponent++ {
		y *= 10
	}
	g := gcd(x, y)
	return x / g, y / g
}

func gcd(x, y int64) int64 {
	for y != 0 {
		x, y = y, x%y
	}
	return x
}
