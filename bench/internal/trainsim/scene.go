package trainsim

import (
	"fmt"
	"math/rand/v2"
)

// Packing is how the vanilla loader fills microbatches.
type Packing int

// The ways to fill microbatches in arrival order.
const (
	FixedCount Packing = iota // the same number of samples in each
	NextFit                   // rows of at most the context, closed by the first sample that does not fit
)

// Barrier is how often all GPUs wait for each other's images.
type Barrier int

// The places of the encoder's barrier.
const (
	PerIteration Barrier = iota
	PerMicrobatch
)

// Scene is a training job whose iterations are simulated.
type Scene struct {
	Name         string
	Data         Data
	Context      int64 // tokens of the longest sample, and of a row with NextFit
	DP, TP       int   // data- and tensor-parallel size; DP·TP·CP·PP GPUs
	CP, PP       int   // context- and pipeline-parallel size, 0 = 1
	Microbatches int   // of a rank in an iteration; NextFit finds its own number
	Samples      int   // of a microbatch
	Packing      Packing
	Barrier      Barrier
}

func (s *Scene) check() error {
	for _, f := range []struct {
		field string
		value int64
		least int64
	}{
		{"Context", s.Context, 1}, {"DP", int64(s.DP), 1}, {"TP", int64(s.TP), 1}, {"CP", int64(s.CP), 0}, {"PP", int64(s.PP), 0},
		{"Microbatches", int64(s.Microbatches), 1}, {"Samples", int64(s.Samples), 1},
	} {
		if f.value < f.least || f.value > 1<<30 {
			return fmt.Errorf("scene %q: %s is %d; give a number from %d to %d", s.Name, f.field, f.value, f.least, 1<<30)
		}
	}
	if s.Data == nil {
		return fmt.Errorf("scene %q: Data draws no samples; set it, for example to Captioned(Pareto(0.6, 48), CaptionText())", s.Name)
	}
	return nil
}

func (s *Scene) pp() int { return max(s.PP, 1) }

// group is the number of GPUs of a data-parallel rank.
func (s *Scene) group() int { return s.TP * max(s.CP, 1) * s.pp() }

// draw returns the samples of one iteration in arrival order.
func (s *Scene) draw(seed uint64) []Sample {
	r := rand.New(rand.NewPCG(seed, 0))
	samples := make([]Sample, s.DP*s.Microbatches*s.Samples)
	for i := range samples {
		samples[i] = s.Data(r, s.Context)
	}
	return samples
}

// Reference is the scene of the reference table: 288 GPUs, 72 samples for each
// data-parallel rank, images heavy-tailed up to the context.
func Reference(context int64) Scene {
	return Scene{
		Name: "reference", Data: Captioned(Pareto(0.6, 48), CaptionText()), Context: context,
		DP: 72, TP: 4, Microbatches: 1, Samples: 72,
	}
}

// Sensitivity returns the reference scene with one choice changed at a time:
// those that the paper leaves open.
func Sensitivity(context int64) []Scene {
	reference := Reference(context)
	with := func(name string, change func(*Scene)) Scene {
		s := reference
		s.Name = name
		change(&s)
		return s
	}
	pipelined := func(s *Scene) { s.DP, s.PP, s.Microbatches, s.Samples = 18, 4, 4, 18 }
	text := CaptionText()
	return []Scene{
		with("images Pareto 0.5", func(s *Scene) { s.Data = Captioned(Pareto(0.5, 48), text) }),
		with("images Pareto 0.7", func(s *Scene) { s.Data = Captioned(Pareto(0.7, 48), text) }),
		with("images lognormal 700, 1.1", func(s *Scene) { s.Data = Captioned(Lognormal(700, 1.1), text) }),
		with("DP36 TP4 PP2, 4 x 18 samples", func(s *Scene) { s.DP, s.PP, s.Microbatches, s.Samples = 36, 2, 4, 18 }),
		with("DP18 TP4 PP4, 4 x 18 samples", pipelined),
		with("DP9 TP4 PP8, 4 x 18 samples", func(s *Scene) { s.DP, s.PP, s.Microbatches, s.Samples = 9, 8, 4, 18 }),
		with("next-fit rows", func(s *Scene) { s.Packing = NextFit }),
		with("barrier per microbatch, DP18 TP4 PP4", func(s *Scene) { pipelined(s); s.Barrier = PerMicrobatch }),
		with("barrier per microbatch, 72 x 1 sample", func(s *Scene) { s.Microbatches, s.Samples, s.Barrier = 72, 1, PerMicrobatch }),
	}
}
