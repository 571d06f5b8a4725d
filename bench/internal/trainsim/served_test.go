package trainsim

import "testing"

// TestServe: rows of served plans keep the context, their samples are the same under every strategy, and
// balancing them is worth less than dealing samples without a cap, and something.
func TestServe(t *testing.T) {
	scene, pair := Reference(8<<10), Pairs()[0]
	var work float64
	for s := range strategies {
		step, err := scene.serve(&pair, s, 1)
		if err != nil {
			t.Fatal(err)
		}
		tokens := make([]int64, len(step.Rows))
		for i, row := range step.Placed.RowOf {
			if row >= 0 {
				tokens[row] += int64(step.Buffer.Tokens[i])
			}
		}
		for row, n := range tokens {
			if n > scene.Context {
				t.Fatalf("%s: row %d has %d tokens", s, row, n)
			}
		}
		it, p := scene.served(step, s)
		it.price(&pair)
		if total := sum(it.cost) + sum(it.images); s > Vanilla && total != work {
			t.Errorf("%s: work of %g FLOPs, before %g", s, total, work)
		} else {
			work = total
		}
		if len(p.samples) != len(it.samples) || len(p.images) != len(it.images) {
			t.Fatalf("%s: %d of %d samples and %d of %d images have a place", s, len(p.samples), len(it.samples), len(p.images), len(it.images))
		}
	}
	served, err := Serve(scene, pair, 1)
	if err != nil {
		t.Fatal(err)
	}
	dealt, err := Simulate(scene, pair, 1)
	if err != nil {
		t.Fatal(err)
	}
	if got, free := served.Speedup(Hybrid), dealt.Speedup(Hybrid); got < 1.2 || got > free || served.Speedup(Backbone) < 1 || served.Efficiency(Hybrid) > 1 {
		t.Errorf("served %.2f of ideal %.3f, dealt freely %.2f", got, served.Efficiency(Hybrid), free)
	}
	if served.Microbatches < 5 || served.Fill < 0.95 {
		t.Errorf("%d microbatches, %.3f full", served.Microbatches, served.Fill)
	}
	if _, err := Serve(Scene{}, pair, 1); err == nil {
		t.Error("a scene without data is served")
	}
	text := scene
	text.Data = Resample([]Sample{{Tokens: 100}, {Tokens: 3000}})
	if _, err := Serve(text, pair, 1); err != nil {
		t.Errorf("text only: %v", err)
	}
}
