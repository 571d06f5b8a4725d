package trainsim

import (
	"slices"
	"strings"
	"testing"
)

// TestByHand simulates an iteration small enough for paper: 2 ranks of 1 GPU with
// 2 samples each.
func TestByHand(t *testing.T) {
	pair := Pair{Backbone: Transformer{Layers: 1, Hidden: 1, Active: 5, Causal: true}, Encoder: Transformer{Layers: 1, Hidden: 1, Active: 3}}
	scene := Scene{Name: "by hand", Context: 100, DP: 2, TP: 1, Microbatches: 1, Samples: 2}
	it := &iteration{scene: &scene, samples: []Sample{
		{Tokens: 8, Images: 1, Patches: 1}, // 10·8+2·64 = 208 in the backbone, 6·1+4·1 = 10 in the encoder
		{Tokens: 6, Images: 1, Patches: 9}, // 132, 378
		{Tokens: 3, Images: 1, Patches: 2}, // 48, 28
		{Tokens: 1, Images: 1, Patches: 8}, // 12, 304
	}}
	it.price(&pair)
	for s, want := range map[Strategy]float64{
		Vanilla:  3*(208+132) + 3*(10+378),
		Backbone: 3*208 + 3*(378+28+304), // the first sample against the others
		Hybrid:   3*208 + 3*378,          // and the second image against the others
	} {
		p, err := it.place(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := it.time(&p); got != want {
			t.Errorf("%s takes %v, want %v", s, got, want)
		}
	}
	const backbone, encoder = 208 + 132 + 48 + 12, 10 + 378 + 28 + 304
	if got, want := it.ideal(1), 3.*(backbone+encoder)/2; got != want {
		t.Errorf("the ideal is %v, want %v", got, want)
	}
	scene.PP, scene.TP = 2, 2 // 4 GPUs a rank; with 1 microbatch, half of the pipeline's time is bubble
	if got, want := it.ideal(1), 3.*(2*backbone+encoder)/8; got != want {
		t.Errorf("the ideal of a pipeline is %v, want %v", got, want)
	}
}

// cell is the mean of a pair at a context over a few seeds.
type cell struct {
	backbone, hybrid float64 // speedups
	efficiency       float64 // of the ideal: hybrid
}

const seeds = 2

func simulateCell(t *testing.T, scene Scene, pair Pair) cell {
	t.Helper()
	var c cell
	for seed := uint64(1); seed <= seeds; seed++ {
		o, err := Simulate(scene, pair, seed)
		if err != nil {
			t.Fatal(err)
		}
		if o.Speedup(Backbone) <= 1 || o.Speedup(Hybrid) < o.Speedup(Backbone) {
			t.Errorf("%s, %s, %d, seed %d: backbone gains %.3f, hybrid %.3f", scene.Name, pair.Name(), scene.Context, seed, o.Speedup(Backbone), o.Speedup(Hybrid))
		}
		if whole := wholeItems(scene, pair, seed) / o.Time[Hybrid]; whole < 0.99 {
			t.Errorf("%s, %s, %d, seed %d: hybrid is at %.4f of what whole samples and images permit", scene.Name, pair.Name(), scene.Context, seed, whole)
		}
		c.backbone += o.Speedup(Backbone) / seeds
		c.hybrid += o.Speedup(Hybrid) / seeds
		c.efficiency += o.Efficiency(Hybrid) / seeds
	}
	return c
}

// wholeItems is a bound on the time of a scene without pipeline.
func wholeItems(scene Scene, pair Pair, seed uint64) float64 {
	it := newIteration(&scene, &pair, seed)
	group := float64(scene.group())
	encoder := max(float64(slices.Max(it.images)), sum(it.images)/float64(scene.DP)/group)
	backbone := max(float64(slices.Max(it.cost)), sum(it.cost)/float64(scene.DP)) / group
	return 3 * (encoder + backbone)
}

// TestReferenceScene checks the shape of the paper's figure 13 in all cells.
func TestReferenceScene(t *testing.T) {
	contexts := []int64{4 << 10, 8 << 10, 16 << 10}
	// Averages of an earlier simulator of the same scene; its samples were others.
	earlier := []float64{1.60, 1.89, 2.45}
	const tolerance = 0.08
	last := map[string]float64{}
	for i, context := range contexts {
		mean := cell{}
		var hybrid []float64
		for _, pair := range Pairs() {
			c := simulateCell(t, Reference(context), pair)
			if c.hybrid <= last[pair.Name()] {
				t.Errorf("%s: hybrid gains %.3f at %d, no more than %.3f at half of it", pair.Name(), c.hybrid, context, last[pair.Name()])
			}
			if c.hybrid <= c.backbone {
				t.Errorf("%s at %d: hybrid gains %.3f, backbone alone %.3f", pair.Name(), context, c.hybrid, c.backbone)
			}
			last[pair.Name()] = c.hybrid
			hybrid = append(hybrid, c.hybrid)
			mean.backbone += c.backbone / 6
			mean.hybrid += c.hybrid / 6
			mean.efficiency += c.efficiency / 6
		}
		for b := range Backbones {
			if small, large := hybrid[2*b], hybrid[2*b+1]; large <= small {
				t.Errorf("%s at %d: %.3f with ViT-2B, no more than %.3f with ViT-1B", Backbones[b].Name, context, large, small)
			}
		}
		near(t, "mean gain of hybrid over the earlier one", mean.hybrid/earlier[i], 1, tolerance)
		if mean.efficiency < 0.98 {
			t.Errorf("hybrid is at %.4f of the ideal at %d, want 0.98", mean.efficiency, context)
		}
		t.Logf("%d: backbone %.2f, hybrid %.2f, %.3f of the ideal", context, mean.backbone, mean.hybrid, mean.efficiency)
	}
}

// TestNothingToGain: where all samples cost the same, no strategy helps or harms.
func TestNothingToGain(t *testing.T) {
	scene := Reference(4096)
	scene.Data = Resample([]Sample{{Tokens: 500, Images: 1, Patches: 400}})
	o, err := Simulate(scene, Pairs()[0], 1)
	if err != nil {
		t.Fatal(err)
	}
	for s := range strategies {
		near(t, s.String()+": time over the ideal", o.Time[s]/o.Ideal, 1, 1e-9)
	}
}

func TestSeeds(t *testing.T) {
	run := func(seed uint64) Outcome {
		o, err := Simulate(Reference(4096), Pairs()[0], seed)
		if err != nil {
			t.Fatal(err)
		}
		return *o
	}
	if run(1) != run(1) {
		t.Error("two runs with the same seed differ")
	}
	if run(1) == run(2) {
		t.Error("two seeds give the same iteration")
	}
}

func TestBadScenes(t *testing.T) {
	for _, c := range []struct {
		change func(*Scene)
		want   string
	}{
		{func(s *Scene) { s.DP = 0 }, "DP is 0; give a number from 1"},
		{func(s *Scene) { s.TP = -4 }, "TP is -4"},
		{func(s *Scene) { s.Context = 0 }, "Context is 0"},
		{func(s *Scene) { s.PP = -1 }, "PP is -1; give a number from 0"},
		{func(s *Scene) { s.Samples = 1 << 40 }, "Samples is 1099511627776"},
		{func(s *Scene) { s.Data = nil }, "Data draws no samples; set it"},
	} {
		scene := Reference(4096)
		c.change(&scene)
		if _, err := Simulate(scene, Pairs()[0], 1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one with %q", err, c.want)
		}
	}
}
