package trainsim

import "slices"

// Strategy is a way to place the samples and images of an iteration.
type Strategy int

// The strategies, each doing what the one before does and more.
const (
	Vanilla  Strategy = iota // arrival order
	Backbone                 // samples by backbone cost
	Hybrid                   // and images by encoder cost
	strategies
)

func (s Strategy) String() string {
	return [...]string{"vanilla", "backbone", "hybrid"}[s]
}

// Outcome is the simulated iteration of one scene, model pair and seed. Times are
// FLOPs of one GPU.
type Outcome struct {
	Time  [strategies]float64 // of the iteration
	Ideal float64
	// PeakTokens is the largest microbatch, which decides the memory needed.
	PeakTokens [strategies]int64
	// LargestImage is the cost of the largest image over the mean load of a GPU in
	// the encoder's phase. Above 1, no placement of whole images is ideal.
	LargestImage float64
}

// Speedup is how much faster an iteration is than vanilla.
func (o *Outcome) Speedup(s Strategy) float64 { return o.Time[Vanilla] / o.Time[s] }

// Efficiency is the ideal time over the actual one.
func (o *Outcome) Efficiency(s Strategy) float64 { return o.Ideal / o.Time[s] }

// iteration is the input of all strategies.
type iteration struct {
	scene   *Scene
	samples []Sample
	cost    []int64 // FLOPs of each sample in the backbone, forward
	images  []int64 // FLOPs of each image in the encoder, forward
}

// Simulate runs one iteration under every strategy, on the same samples. It fails
// for a scene that makes no sense, naming the field.
func Simulate(scene Scene, pair Pair, seed uint64) (*Outcome, error) {
	if err := scene.check(); err != nil {
		return nil, err
	}
	it := newIteration(&scene, &pair, seed)
	out := &Outcome{}
	for s := range strategies {
		p, err := it.place(s)
		if err != nil {
			return nil, err
		}
		out.Time[s] = it.time(&p)
		out.PeakTokens[s] = it.peak(&p)
		if s == Vanilla {
			out.Ideal = it.ideal(p.microbatches)
		}
	}
	if len(it.images) > 0 {
		mean := sum(it.images) / float64(scene.DP*scene.group())
		out.LargestImage = float64(slices.Max(it.images)) / mean
	}
	return out, nil
}

func newIteration(scene *Scene, pair *Pair, seed uint64) *iteration {
	it := &iteration{scene: scene, samples: scene.draw(seed)}
	it.price(pair)
	return it
}

// price sets the costs of samples and images.
func (it *iteration) price(pair *Pair) {
	it.cost = make([]int64, len(it.samples))
	for i, s := range it.samples {
		it.cost[i] = pair.Backbone.FLOPs(s.Tokens)
		for range s.Images {
			it.images = append(it.images, pair.Encoder.FLOPs(s.Patches))
		}
	}
}

// time returns how long the iteration takes.
func (it *iteration) time(p *placement) float64 {
	s := it.scene
	encoder := 0.0
	phases := loads(p.images, it.images, p.microbatches, s.DP*s.group())
	if s.Barrier == PerIteration {
		phases = [][]float64{addRows(phases)}
	}
	for _, phase := range phases {
		encoder += 3 * slices.Max(phase)
	}
	samples := loads(p.samples, it.cost, p.microbatches, s.DP)
	slowest := 0.0
	forward := make([]float64, p.microbatches)
	for rank := range s.DP {
		for j := range forward {
			forward[j] = samples[j][rank] / float64(s.group())
		}
		slowest = max(slowest, OneFOneB(s.pp(), forward))
	}
	return encoder + slowest
}

// ideal is the time of the iteration if work could be cut at will: every GPU
// encodes the same, every microbatch costs the same.
func (it *iteration) ideal(microbatches int) float64 {
	gpus := float64(it.scene.DP * it.scene.group())
	bubble := float64(microbatches+it.scene.pp()-1) / float64(microbatches)
	return 3 * (sum(it.images) + sum(it.cost)*bubble) / gpus
}

// peak returns the tokens of the largest microbatch.
func (it *iteration) peak(p *placement) int64 {
	tokens := make([]int64, len(it.samples))
	for i := range tokens {
		tokens[i] = it.samples[i].Tokens
	}
	peak := 0.0
	for _, row := range loads(p.samples, tokens, p.microbatches, it.scene.DP) {
		peak = max(peak, slices.Max(row))
	}
	return int64(peak)
}

func addRows(rows [][]float64) []float64 {
	total := slices.Clone(rows[0])
	for _, row := range rows[1:] {
		for i, v := range row {
			total[i] += v
		}
	}
	return total
}

func sum(costs []int64) float64 {
	total := 0.0
	for _, c := range costs {
		total += float64(c)
	}
	return total
}
