package trainsim

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/planner/cost"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

// Served is a step of the scene's data as the planner of a service plans it: rows of at most the
// context, under the strategies that a job can have.
type Served struct {
	Time         [strategies]float64 // of the iteration, by strategy
	Ideal        float64
	Microbatches int     // of each rank, of one row
	Fill         float64 // of the rows, by tokens
}

// Speedup is how much faster an iteration is than with rows in the order of packing.
func (o *Served) Speedup(s Strategy) float64 { return o.Time[Vanilla] / o.Time[s] }

// Efficiency is the ideal time over the actual one.
func (o *Served) Efficiency(s Strategy) float64 { return o.Ideal / o.Time[s] }

// Serve plans one step under every strategy that a job can have, with the same samples, and
// simulates it. Rows hold as many tokens as the scene's iteration has, rounded up to a row
// of each rank.
func Serve(scene Scene, pair Pair, seed uint64) (*Served, error) {
	if err := scene.check(); err != nil {
		return nil, err
	}
	out := &Served{}
	for s := range strategies {
		step, err := scene.serve(&pair, s, seed)
		if err != nil {
			return nil, fmt.Errorf("scene %q: planning for %s: %w", scene.Name, s, err)
		}
		it, p := scene.served(step, s)
		it.price(&pair)
		out.Time[s] = it.time(&p)
		if s == Vanilla {
			out.Ideal, out.Microbatches = it.ideal(p.microbatches), p.microbatches
			out.Fill = float64(step.Filled) / float64(int64(len(step.Rows))*scene.Context)
		}
	}
	return out, nil
}

// serve has the planner's core plan the first step of the scene's data.
func (s *Scene) serve(pair *Pair, by Strategy, seed uint64) (*plan.Step, error) {
	tree, err := mesh.New(mesh.Sizes{DP: s.DP, CP: max(s.CP, 1), PP: s.pp(), TP: s.TP, VPP: 1, EP: 1})
	if err != nil {
		return nil, err
	}
	drawn, images, tokens := s.draw(seed), false, int64(0)
	for _, x := range drawn {
		images, tokens = images || x.Images > 0, tokens+x.Tokens
	}
	row := int64(s.DP) * s.Context
	return PlanStep(plan.Config{
		Sources: []plan.Source{{Name: "data", Blocks: 1 << 20}}, Schedule: mix.NewSchedule([]mix.Stage{{Weights: []float64{1}}}),
		SequenceLength: int32(s.Context), Rows: s.DP * int((tokens+row-1)/row), Packing: true, Images: images,
		Mesh: tree, Strategy: byPair(pair, by, images), Ahead: 1, Window: len(drawn),
	}, 0, func(want plan.Want) plan.BlockRead { return s.block(seed, want) })
}

// PlanStep has the planner's core plan the first steps of a job whose blocks block makes, and returns
// step n. The configuration plans as far ahead.
func PlanStep(cfg plan.Config, n int64, block func(plan.Want) plan.BlockRead) (*plan.Step, error) {
	core := plan.New(cfg)
	effects := core.Start()
	for len(effects) > 0 {
		e := effects[0]
		effects = effects[1:]
		switch e := e.(type) {
		case plan.Publish:
			if e.Step.Step == n {
				return e.Step, nil
			}
		case plan.Fail:
			return nil, e.Err
		case plan.Want:
			effects = append(effects, core.Apply(block(e))...)
		}
	}
	return nil, fmt.Errorf("step %d was not planned", n)
}

// block draws the samples of a block: the first has those of the scene's iteration.
func (s *Scene) block(seed uint64, want plan.Want) plan.BlockRead {
	r := rand.New(rand.NewPCG(seed, uint64(want.Seq)))
	out := plan.BlockRead{Source: want.Source, Seq: want.Seq, Images: &plan.Images{Offsets: []int32{0}}}
	for range s.DP * s.Microbatches * s.Samples {
		x := s.Data(r, s.Context)
		out.Lengths = append(out.Lengths, int32(x.Tokens))
		out.Images.Patches = append(out.Images.Patches, slices.Repeat([]int32{int32(x.Patches)}, int(x.Images))...)
		out.Images.Offsets = append(out.Images.Offsets, int32(len(out.Images.Patches)))
	}
	return out
}

// byPair is a strategy as a job has it, with the costs of a pair of models.
func byPair(pair *Pair, by Strategy, images bool) strategy.Strategy {
	backbone := cost.Func(func(x cost.Sample) int64 { return pair.Backbone.FLOPs(x.Tokens) })
	encoder := cost.Func(func(x cost.Sample) int64 { return pair.Encoder.FLOPs(x.Patches) })
	return func(s *strategy.Step) error {
		if by == Vanilla {
			return strategy.InOrder(s)
		}
		g := s.Graph(dgraph.Text)
		g.Mix(s.Schedule())
		g.Distribute("dp", 1)
		g.Cost(backbone)
		g.Balance(strategy.Balance{Level: strategy.Interleaved})
		if by == Hybrid && images {
			v := s.Graph(dgraph.Image)
			v.Distribute("world", 1)
			v.Cost(encoder)
			v.Balance(strategy.Balance{})
		}
		return g.Plan()
	}
}

// served is a step as the simulator has it. Images that no graph gives to ranks stay with the
// GPUs of the rank that has their sample, as without a service.
func (s *Scene) served(step *plan.Step, by Strategy) (*iteration, placement) {
	it, placed, buf := &iteration{scene: s}, step.Placed, step.Buffer
	p := placement{microbatches: placed.Microbatches}
	var encoders []place
	for i, row := range placed.RowOf {
		if row < 0 {
			continue
		}
		x := Sample{Tokens: int64(buf.Tokens[i])}
		first, end := buf.ImagesOf(i)
		for image := first; image < end; image++ {
			x.Images, x.Patches = x.Images+1, int64(buf.Patches[image])
			if by == Hybrid {
				encoders = append(encoders, place{placed.Microbatch[row], placed.Encoder[image]})
			}
		}
		it.samples = append(it.samples, x)
		p.samples = append(p.samples, place{placed.Microbatch[row], placed.Rank[row]})
	}
	if s.keepImages(&p, it.samples); by == Hybrid {
		p.images = encoders
	}
	return it, p
}
