package cost_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/planner/cost"
)

// steps reports n steps of a module that takes a s + b s² seconds for each sample.
// Samples are of 64 to 16384 tokens, log-uniform; noise is the relative standard
// deviation of a step's time.
func steps(rng *rand.Rand, n int, a, b, noise float64) []cost.Observation {
	out := make([]cost.Observation, n)
	for i := range out {
		o := &out[i]
		for range 4 + rng.IntN(12) {
			s := int64(64 * math.Exp(rng.Float64()*math.Log(256)))
			o.Sum, o.Squares = o.Sum+s, o.Squares+s*s
			o.Seconds += a*float64(s) + b*float64(s)*float64(s)
		}
		o.Seconds *= max(1+noise*rng.NormFloat64(), 0.1)
	}
	return out
}

func fit(tb testing.TB, observations []cost.Observation) (cost.Fit, error) {
	tb.Helper()
	var c cost.Calibrator
	for _, o := range observations {
		if err := c.Add(o); err != nil {
			tb.Fatal(err)
		}
	}
	return c.Fit()
}

// TestFitFindsWhatTookTheTime takes a and b that are known and times with 5 % of
// noise: 1000 steps give both within 5 % and their ratio within 8 %, where both
// have a fair part of the time (a:b of 3000 to 20000). Beyond that the time of each
// term is still within four of the standard errors that the fit reports.
func TestFitFindsWhatTookTheTime(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 4))
		a, want := 1e-7*math.Exp(4*rng.Float64()), 1000*math.Exp(rng.Float64()*math.Log(100))
		b := a / want
		observations := steps(rng, 1000, a, b, 0.05)
		f, err := fit(t, observations)
		if err != nil {
			t.Fatal(err)
		}
		ratio := float64(f.A) / float64(f.B)
		if want > 3000 && want < 20000 && (off(f.SecondsPerUnit, a) > 0.05 || off(f.SecondsPerSquare, b) > 0.05 || off(ratio, want) > 0.08) {
			t.Errorf("seed %d: %+v, want a=%g b=%g, ratio %g", seed, fields(f), a, b, want)
		}
		var sums, squares, seconds float64
		for _, o := range observations {
			sums += float64(o.Sum) * float64(o.Sum)
			squares += float64(o.Squares) * float64(o.Squares)
			seconds += o.Seconds * o.Seconds
		}
		errorA := math.Abs(f.SecondsPerUnit-a) * math.Sqrt(sums/seconds)
		errorB := math.Abs(f.SecondsPerSquare-b) * math.Sqrt(squares/seconds)
		if max(errorA, errorB) > 4*f.Uncertainty || f.Uncertainty > 0.02 {
			t.Errorf("seed %d: a is wrong by %.4f and b by %.4f of the time, with an uncertainty of %.4f", seed, errorA, errorB, f.Uncertainty)
		}
		if off(f.Residual, 0.05) > 0.2 || f.R2 < 0.9 || f.Observations != 1000 {
			t.Errorf("seed %d: %+v", seed, fields(f))
		}
	}
}

// fields prints all of a fit, which its String does not.
type fields cost.Fit

func off(got, want float64) float64 { return math.Abs(got/want - 1) }

// TestFitIsExactWithoutNoise recovers coefficients to three digits as integers.
func TestFitIsExactWithoutNoise(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 5))
	for _, tc := range []struct {
		a, b float64
		want string
	}{
		{24576, 1, "quadratic(a=24600, b=1)"},
		{55300, 1, "quadratic(a=55300, b=1)"},
		{1, 1, "quadratic(a=1, b=1)"},
		{1.5, 1, "quadratic(a=3, b=2)"},
		{12.34, 1, "quadratic(a=123, b=10)"},
		{0.999999, 1, "quadratic(a=1, b=1)"},
		{0.5, 1, "quadratic(a=1, b=2)"},
		{0.01, 1, "quadratic(a=0, b=1)"},
		{1, 0, "quadratic(a=1, b=0)"},
		{0, 1, "quadratic(a=0, b=1)"},
		{2e8, 1, "quadratic(a=1, b=0)"},
	} {
		f, err := fit(t, steps(rng, 200, tc.a*1e-9, tc.b*1e-9, 0))
		if err != nil || f.String() != tc.want || f.R2 < 0.999999 || f.Residual > 1e-6 {
			t.Errorf("%g:%g: %+v, %v, want %s", tc.a, tc.b, fields(f), err, tc.want)
		}
		if got := parse(t, f.String()).String(); got != tc.want {
			t.Errorf("the model of %v is %s", f, got)
		}
	}
}

// TestFitIsNeverNegative takes times that fall with one of the terms: the
// coefficient is 0, and the other that of its own least squares.
func TestFitIsNeverNegative(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 6))
	for _, tc := range []struct{ a, b float64 }{{1e-6, -5e-12}, {-1e-7, 1e-9}} {
		observations := steps(rng, 500, tc.a, tc.b, 0)
		var xt, xx float64
		for i := range observations {
			o := &observations[i]
			o.Seconds = max(o.Seconds, 1e-6)
			x := float64(o.Sum)
			if tc.a < 0 {
				x = float64(o.Squares)
			}
			xt, xx = xt+x*o.Seconds, xx+x*x
		}
		f, err := fit(t, observations)
		got, zero := f.SecondsPerUnit, f.SecondsPerSquare
		if tc.a < 0 {
			got, zero = zero, got
		}
		if err != nil || zero != 0 || off(got, xt/xx) > 1e-9 || f.A+f.B != 1 {
			t.Errorf("%+v: %+v, %v, want %g", tc, fields(f), err, xt/xx)
		}
	}
}

// TestFitIsTheBest compares the squares that are left with those around the fit.
func TestFitIsTheBest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	observations := steps(rng, 300, 1e-6, 5e-11, 0.1)
	f, err := fit(t, observations)
	if err != nil {
		t.Fatal(err)
	}
	left := func(a, b float64) (sum float64) {
		for _, o := range observations {
			d := o.Seconds - a*float64(o.Sum) - b*float64(o.Squares)
			sum += d * d
		}
		return sum
	}
	best := left(f.SecondsPerUnit, f.SecondsPerSquare)
	for _, by := range [][2]float64{{1.001, 1}, {0.999, 1}, {1, 1.001}, {1, 0.999}, {1.001, 0.999}, {0.999, 1.001}} {
		if other := left(f.SecondsPerUnit*by[0], f.SecondsPerSquare*by[1]); other < best {
			t.Errorf("%v times the fit leaves %g, the fit %g", by, other, best)
		}
	}
}

func TestFitRefuses(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 8))
	alike := make([]cost.Observation, 50) // n samples of 4096 tokens each
	for i := range alike {
		n := int64(1 + i%9)
		alike[i] = cost.Observation{Sum: n * 4096, Squares: n * 4096 * 4096, Seconds: float64(n) * (1 + 0.01*rng.NormFloat64())}
	}
	near := make([]cost.Observation, 50) // lengths that hardly differ, and noise
	for i := range near {
		s := int64(4096 + i%5)
		near[i] = cost.Observation{Sum: s, Squares: s * s, Seconds: 1 + 0.01*rng.NormFloat64()}
	}
	for want, observations := range map[string][]cost.Observation{
		"calibration: 7 observations; at least 8 are needed": alike[:7],
		"calibration: sum and sum of squares have the same ratio in all 50 observations, so a cannot be told from b: report steps with samples of other lengths": alike,
		"calibration: after 50 observations it is open where ": near,
	} {
		f, err := fit(t, observations)
		if err == nil || !strings.HasPrefix(err.Error(), want) || fault.ClassOf(err) != fault.User || f != (cost.Fit{}) {
			t.Errorf("%+v, %v, want %s", fields(f), err, want)
		}
	}
}

func TestAddRefuses(t *testing.T) {
	for want, o := range map[string]cost.Observation{
		"calibration: the sum of counts is 0; it has to be positive":                                                {Sum: 0, Squares: 0, Seconds: 1},
		"calibration: the sum of squares is 9, for counts that sum to 10; it lies between the sum and its square":   {Sum: 10, Squares: 9, Seconds: 1},
		"calibration: the sum of squares is 101, for counts that sum to 10; it lies between the sum and its square": {Sum: 10, Squares: 101, Seconds: 1},
		"calibration: the step took 0 seconds; it has to be a positive number of at most 1e9":                       {Sum: 10, Squares: 50, Seconds: 0},
		"calibration: the step took NaN seconds; it has to be a positive number of at most 1e9":                     {Sum: 10, Squares: 50, Seconds: math.NaN()},
		"calibration: the step took +Inf seconds; it has to be a positive number of at most 1e9":                    {Sum: 10, Squares: 50, Seconds: math.Inf(1)},
	} {
		var c cost.Calibrator
		if err := c.Add(o); err == nil || err.Error() != want || fault.ClassOf(err) != fault.User || c != (cost.Calibrator{}) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
}
