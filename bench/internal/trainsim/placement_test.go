package trainsim

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// variants are scenes small enough to look at item by item, one for each way that
// placement branches.
func variants() []Scene {
	scenes := append(Sensitivity(8192), Reference(4096))
	for i := range scenes {
		scenes[i].DP /= 3 // 24 or 6 ranks
	}
	tiles := Reference(4096)
	tiles.Name, tiles.DP = "several images or none", 9
	tiles.Data = Resample([]Sample{{Tokens: 900}, {Tokens: 400, Images: 1, Patches: 256}, {Tokens: 3000, Images: 7, Patches: 1024}})
	text := tiles
	text.Name, text.Data = "text only", Resample([]Sample{{Tokens: 900}, {Tokens: 30}})
	return append(scenes, tiles, text)
}

// TestConservation checks for every scene and strategy that each sample and each
// image is computed exactly once: on units that exist, in a microbatch that
// exists, in parts that make one whole, and that no work appears or is lost.
func TestConservation(t *testing.T) {
	for _, scene := range variants() {
		for _, pair := range []Pair{Pairs()[0], Pairs()[3]} {
			it := newIteration(&scene, &pair, 1)
			for s := range strategies {
				p, err := it.place(s)
				if err != nil {
					t.Fatal(err)
				}
				what := fmt.Sprintf("%s, %s, %s", scene.Name, pair.Name(), s)
				conserved(t, what+": samples", p.samples, it.cost, p.microbatches, scene.DP)
				conserved(t, what+": images", p.images, it.images, p.microbatches, scene.DP*scene.group())
				imagesFollow(t, what, it, &p)
			}
		}
	}
}

func conserved(t *testing.T, what string, places []place, costs []int64, microbatches, units int) {
	t.Helper()
	if len(places) != len(costs) {
		t.Fatalf("%s: %d placed, want %d", what, len(places), len(costs))
	}
	for i, at := range places {
		if at.unit < 0 || int(at.unit) >= units || at.microbatch < 0 || int(at.microbatch) >= microbatches {
			t.Fatalf("%s: item %d is at %+v of %d units and %d microbatches", what, i, at, units, microbatches)
		}
	}
	placed, total := 0.0, 0.0
	for _, row := range loads(places, costs, microbatches, units) {
		for _, load := range row {
			placed += load
		}
	}
	for _, c := range costs {
		total += float64(c)
	}
	if math.Abs(placed-total) > 1e-9*total {
		t.Errorf("%s: %g FLOPs placed, want %g", what, placed, total)
	}
}

// imagesFollow checks that an image is encoded in the microbatch that reads it.
func imagesFollow(t *testing.T, what string, it *iteration, p *placement) {
	t.Helper()
	k := 0
	for i := range it.samples {
		for range it.samples[i].Images {
			if p.images[k].microbatch != p.samples[i].microbatch {
				t.Fatalf("%s: image %d is encoded in microbatch %d, its sample is in %d", what, k, p.images[k].microbatch, p.samples[i].microbatch)
			}
			k++
		}
	}
}

// TestVanillaPlacement spells out who computes what, on 2 ranks of 2 GPUs with 2
// microbatches of 3 samples.
func TestVanillaPlacement(t *testing.T) {
	scene := Scene{Name: "small", Data: Resample([]Sample{{Tokens: 1, Images: 1, Patches: 1}}), Context: 8, DP: 2, TP: 2, Microbatches: 2, Samples: 3}
	it := newIteration(&scene, &Pairs()[0], 1)
	p, err := it.place(Vanilla)
	if err != nil {
		t.Fatal(err)
	}
	rank, microbatch := columns(p.samples)
	gpu, _ := columns(p.images)
	equal(t, "rank", rank, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1)
	equal(t, "microbatch", microbatch, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1)
	equal(t, "gpu", gpu, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3)

	it.scene.Barrier = PerMicrobatch
	scene.keepImages(&p, it.samples)
	gpu, _ = columns(p.images)
	equal(t, "gpu with a barrier per microbatch", gpu, 0, 0, 1, 0, 0, 1, 2, 2, 3, 2, 2, 3)
}

func TestNextFitRows(t *testing.T) {
	scene := Scene{Context: 10, DP: 2}
	var samples []Sample
	for _, n := range []int64{4, 6, 1, 9, 2, 10, 3} {
		samples = append(samples, Sample{Tokens: n})
	}
	p := scene.nextFit(samples) // rows 4+6, 1+9, 2, 10, 3
	rank, microbatch := columns(p.samples)
	equal(t, "rank", rank, 0, 0, 1, 1, 0, 1, 0)
	equal(t, "microbatch", microbatch, 0, 0, 0, 0, 1, 1, 2)
	if p.microbatches != 3 {
		t.Errorf("%d microbatches, want 3", p.microbatches)
	}
}

func columns(places []place) (unit, microbatch []int32) {
	for _, p := range places {
		unit, microbatch = append(unit, p.unit), append(microbatch, p.microbatch)
	}
	return unit, microbatch
}

func equal(t *testing.T, what string, got []int32, want ...int32) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
