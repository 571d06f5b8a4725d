package trainsim

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestCostGoldens holds costs worked out by hand.
func TestCostGoldens(t *testing.T) {
	for _, c := range []struct {
		model Transformer
		n     int64
		want  int64
	}{
		{Transformer{Layers: 1, Hidden: 10, Active: 12, Causal: true}, 5, 2*12*100*5 + 2*10*25},
		{Transformer{Layers: 3, Hidden: 10, Active: 12}, 5, 3 * (24*100*5 + 4*10*25)},
		{Backbones[0], 1, 45 * (24*4608*4608 + 2*4608)},
		{Encoders[1], 1024, 48 * (24*1664*1664*1024 + 4*1664*1024*1024)},
	} {
		if got := c.model.FLOPs(c.n); got != c.want {
			t.Errorf("%+v: %d tokens cost %d, want %d", c.model, c.n, got, c.want)
		}
	}
}

// TestPaperImbalance checks the paper's example: with the same tokens in all, two
// texts of 30 and 70 cost 16 % more attention than two of 50.
func TestPaperImbalance(t *testing.T) {
	attention := Transformer{Layers: 45, Hidden: 4608, Causal: true}
	uneven, even := attention.FLOPs(30)+attention.FLOPs(70), attention.FLOPs(50)+attention.FLOPs(50)
	if uneven*100 != even*116 {
		t.Errorf("30+70 costs %d, 50+50 %d: want 16 %% more", uneven, even)
	}
}

const draws = 200_000

func TestCaptionText(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	text := CaptionText()
	short, tail, all := 0, int64(0), int64(0)
	for range draws {
		n := text(r)
		all += n
		if n <= 64 {
			short++
		} else {
			tail += n
		}
	}
	near(t, "texts of at most 64 tokens", float64(short)/draws, 0.9823, 0.001)
	near(t, "tokens in longer texts", float64(tail)/float64(all), 0.093, 0.005)
	near(t, "mean length of longer texts", float64(tail)/float64(draws-short), 105, 3)
}

func TestDistributions(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 0))
	pareto, lognormal := Pareto(0.6, 48), Lognormal(700, 1.1)
	over, below, least := 0, 0, int64(math.MaxInt64)
	for range draws {
		n := pareto(r)
		least = min(least, n)
		if n >= 4096 {
			over++
		}
		if lognormal(r) < 700 {
			below++
		}
	}
	if least != 48 {
		t.Errorf("the least Pareto draw is %d, want 48", least)
	}
	near(t, "Pareto draws from 4096", float64(over)/draws, math.Pow(48./4096, 0.6), 0.002)
	near(t, "lognormal draws below the median", float64(below)/draws, 0.5, 0.005)
}

// TestClipping checks that no sample is longer than the context, and that longer
// images are clipped to it.
func TestClipping(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 0))
	data, clipped := Captioned(Pareto(0.6, 48), CaptionText()), 0
	for range draws {
		s := data(r, 4096)
		if s.Tokens > 4096 || s.Patches > s.Tokens || s.Images != 1 {
			t.Fatalf("drew %+v for a context of 4096", s)
		}
		if s.Patches == 4096 {
			clipped++
		}
	}
	near(t, "clipped images", float64(clipped)/draws, math.Pow(48./4096, 0.6), 0.002)

	from := []Sample{{Tokens: 10, Images: 1, Patches: 4}, {Tokens: 9000, Images: 5, Patches: 1024}, {Tokens: 7}}
	counts := map[Sample]int{}
	resample := Resample(from)
	for range 3000 {
		counts[resample(r, 4096)]++
	}
	from[1].Tokens = 4096
	for _, s := range from {
		near(t, "share of a resampled sample", float64(counts[s])/3000, 1./3, 0.05)
	}
	near(t, "mean of a trace", float64(Trace([]int64{6, 6, 6})(r)), 6, 0)
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance {
		t.Errorf("%s: %.4f, want %.4f within %g", what, got, want, tolerance)
	}
}
