package audio

import (
	"crypto/sha256"
	"math"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
)

// The filter that changes rates. A longer one has a narrower slope from what is kept to
// what is stopped; the window's beta sets how far down that is.
const (
	crossings = 32   // of zero, on each side
	edge      = 0.92 // of the lower Nyquist frequency
	beta      = 9
)

// weightBits is the place of the point in a weight. A sum of weights is below 4, so a
// sum of samples of at most 8 stays within 62 bits.
const (
	weightBits = 30
	one        = 1 << weightBits
)

// maxWeights bounds the memory of filters, 4 bytes a weight. Only rates without any common
// divisor have more.
const maxWeights = 1 << 23

// filter makes samples at rate up of samples at rate down, both divided by what they have
// in common.
type filter struct {
	up, down int
	half     int     // samples on each side
	weights  []int32 // 2*half of each of up phases: phase p lies p/up behind a sample
}

// filter returns the filter between two rates, which later calls share.
func (d *Decoder) filter(from, to int) (*filter, error) {
	g := gcd(from, to)
	key := [2]int{to / g, from / g}
	if f := d.filters[key]; f != nil {
		return f, nil
	}
	up, down := key[0], key[1]
	half := crossings
	if down > up {
		half = (crossings*down + up - 1) / up
	}
	half = int(math.Ceil(float64(half) / edge))
	n := 2 * half * up
	if n > maxWeights {
		return nil, fault.Userf("%d samples a second cannot become %d: the two have little in common, and the filter would take %d MiB; convert the file to a usual rate", from, to, n>>18)
	}
	if d.weights+n > maxWeights {
		d.filters, d.weights = nil, 0
	}
	if d.filters == nil {
		d.filters = map[[2]int]*filter{}
	}
	f := &filter{up: up, down: down, half: half, weights: make([]int32, 0, n)}
	exact := make([]float64, 2*half)
	for phase := range up {
		f.phase(exact, phase)
	}
	d.filters[key] = f
	d.weights += n
	return f, nil
}

// phase appends the weights of a phase. They add up to one exactly.
func (f *filter) phase(exact []float64, phase int) {
	cut := edge * min(1, float64(f.up)/float64(f.down))
	sum := 0.0
	for i := range exact { // sample i lies i-half+1 from the one before the phase
		at := float64((i-f.half+1)*f.up-phase) / float64(f.up)
		x := float64(at * cut)
		exact[i] = float64(sinc(x) * kaiser(x/crossings))
		sum += exact[i]
	}
	left, begin := int64(one), len(f.weights)
	for _, v := range exact {
		w := int64(math.RoundToEven(float64(v/sum) * one))
		f.weights = append(f.weights, int32(w))
		left -= w
	}
	f.weights[begin+f.half-1] += int32(left) // a few units, beside the center
}

// apply appends the samples at the other rate, channel by channel side by side. Before the
// first sample and after the last one there is silence.
func (f *filter) apply(dst, samples []int32, channels int) []int32 {
	n := len(samples) / channels
	count := (n*f.up + f.down - 1) / f.down
	dst = slices.Grow(dst, count*channels)
	for j := range count {
		at := j * f.down
		before := at/f.up - f.half + 1 // the first sample of the sum
		weights := f.weights[2*f.half*(at%f.up):][:2*f.half]
		if before < 0 {
			weights, before = weights[-before:], 0
		}
		weights = weights[:max(min(len(weights), n-before), 0)]
		for c := range channels {
			sum := int64(one / 2)
			if channels == 1 {
				for i, v := range samples[before:][:len(weights)] {
					sum += int64(weights[i]) * int64(v)
				}
			} else {
				for i, w := range weights {
					sum += int64(w) * int64(samples[(before+i)*channels+c])
				}
			}
			dst = append(dst, int32(min(max(sum>>weightBits, -most), most)))
		}
	}
	return dst
}

func gcd(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// In what follows every product is rounded by a conversion before it is added to anything.

// sinc is sin(pi x) / (pi x).
func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	return sinPi(x) / float64(math.Pi*x)
}

// sinPi is sin(pi x): x is brought to -1/2 to 1/2, where the series ends soon.
func sinPi(x float64) float64 {
	n := math.RoundToEven(x)
	y := float64(math.Pi * (x - n)) // x - n is exact
	square := float64(y * y)
	sum := 1.0
	for k := 12; k >= 1; k-- {
		sum = 1 - float64(square*sum)/float64(2*k*(2*k+1))
	}
	if math.Mod(n, 2) != 0 {
		return -float64(y * sum)
	}
	return float64(y * sum)
}

// kaiser is the window at x of -1 to 1, 0 beyond.
func kaiser(x float64) float64 {
	if x <= -1 || x >= 1 {
		return 0
	}
	return bessel(float64(beta*math.Sqrt(1-float64(x*x)))) / bessel(beta)
}

// bessel is the modified Bessel function of order 0, by its series of positive terms.
func bessel(x float64) float64 {
	quarter := float64(x*x) / 4
	sum, term := 1.0, 1.0
	for k := 1; term > sum*1e-18; k++ {
		term = float64(term*quarter) / float64(k*k)
		sum += term
	}
	return sum
}

// revision is raised when this package takes other files, or makes other samples of them, that the fixed sound does
// not show: 2 reads WAV files with unfinished headers to their end, and bounds what changing a rate gives.
const revision = 2

// Fingerprint is the SHA-256 of a fixed sound at other rates, and of revision. It is part of a job's
// identity: a build that makes other samples of the same file has another one.
func Fingerprint() [32]byte {
	samples := make([]int32, 500)
	for i := range samples {
		samples[i] = int32(i*i*7919%(1<<25)) - 1<<scaleBits
	}
	var d Decoder
	var out []byte
	for _, rates := range [][2]int{{44_100, 16_000}, {8_000, 16_000}} {
		f, err := d.filter(rates[0], rates[1])
		if err != nil {
			panic("audio: " + err.Error())
		}
		out = Wave{samples: f.apply(nil, samples, 1)}.AppendFloat32(out)
	}
	return sha256.Sum256(append(out, revision))
}
