package trainsim

import (
	"math"
	"math/rand/v2"
)

// Sample is a training sample, by what its cost depends on.
type Sample struct {
	Tokens  int64 // of the backbone: text and image tokens
	Images  int32 // images (or tiles) encoded each on its own; 0 = text only
	Patches int64 // of each image
}

// Lengths draws a length of at least 1.
type Lengths func(*rand.Rand) int64

// Pareto has P(X > x) = (least/x)^alpha for x >= least. With alpha <= 1 it has no
// mean: where it is clipped decides how uneven samples are.
func Pareto(alpha float64, least int64) Lengths {
	return func(r *rand.Rand) int64 {
		x := float64(least) * math.Pow(1-r.Float64(), -1/alpha)
		return int64(math.Min(x, math.MaxInt32))
	}
}

// Lognormal has the given median; sigma is the deviation of the logarithm.
func Lognormal(median, sigma float64) Lengths {
	return func(r *rand.Rand) int64 {
		return max(1, int64(median*math.Exp(sigma*r.NormFloat64())))
	}
}

// Trace draws from the given lengths, each as likely as the others.
func Trace(lengths []int64) Lengths {
	return func(r *rand.Rand) int64 { return lengths[r.IntN(len(lengths))] }
}

// CaptionText draws text lengths like those that the paper gives for coyo-700M:
// 98.23 % have at most 64 tokens, and the others hold 9.3 % of all tokens.
// It publishes no more; the shape on either side of 64 is chosen here.
func CaptionText() Lengths {
	const (
		short     = 64
		shortPart = 0.9823
		tailMean  = 40 // tokens above short
	)
	captions := Lognormal(15.5, 0.65)
	return func(r *rand.Rand) int64 {
		if r.Float64() >= shortPart {
			return short + 1 + int64(tailMean*r.ExpFloat64())
		}
		for {
			if n := captions(r); n <= short {
				return n
			}
		}
	}
}

// Data draws a sample of at most context tokens.
type Data func(r *rand.Rand, context int64) Sample

// Captioned draws samples of one image and its text. A patch is a token of the
// backbone. The image is clipped at the context, the text at what is left of it.
func Captioned(patches, text Lengths) Data {
	return func(r *rand.Rand, context int64) Sample {
		p := min(patches(r), context)
		return Sample{Tokens: min(p+text(r), context), Images: 1, Patches: p}
	}
}

// Resample draws from the given samples, each as likely as the others. Tokens
// past the context are cut off; images are encoded whole.
func Resample(samples []Sample) Data {
	return func(r *rand.Rand, context int64) Sample {
		s := samples[r.IntN(len(samples))]
		s.Tokens = min(s.Tokens, context)
		return s
	}
}
