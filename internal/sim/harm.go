package sim

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

func pow10(x float64) float64 { return math.Pow(10, x) }

// maxHarms is less than this: a run with more shows what one after the other does.
const maxHarms = 8

// harm does to hosts what the network's own faults do not, until enough of the job is done
// or enough time is gone; then nothing goes wrong any more.
func (w *world) harm(ctx context.Context) error {
	if w.opts.Steps > 0 {
		return nil
	}
	rng := random(w.opts.Seed, "harm")
	weights := []int{rng.IntN(3), rng.IntN(3), rng.IntN(3), rng.IntN(3), rng.IntN(2), 1}
	orders := random(w.opts.Seed, "orders")
	weights = append(weights, orders.IntN(2), orders.IntN(2), orders.IntN(2))
	times, every := rng.IntN(maxHarms), between(rng, 10*time.Millisecond, 5*time.Second)
	calm, end := context.WithTimeout(ctx, time.Duration(1+rng.IntN(int(faultTime/time.Second)))*time.Second)
	defer end()
	for ; ; times-- {
		if times <= 0 {
			every = faultTime // the network's own faults go on
		}
		select {
		case <-time.After(between(rng, every/10, every)):
		case <-w.team.nearEnd:
			end()
		case <-calm.Done():
		}
		if calm.Err() != nil {
			break
		}
		switch choose(rng, weights) {
		case 0:
			w.kill(fmt.Sprintf("loader-%d", rng.IntN(loaders+w.shadows)))
		case 1:
			w.kill(fmt.Sprintf("constructor-%d", rng.IntN(w.nodes.constructors())))
		case 2:
			w.isolate(rng)
		case 3:
			w.team.restart(false)
		case 4: // with a log, it goes on by itself; else what a trainer has of it says where
			w.kill("planner")
			if w.logDir == "" {
				w.team.restart(true)
			}
		case 6:
			w.drain(fmt.Sprintf("loader-%d", rng.IntN(loaders+w.shadows)))
		case 7:
			w.drain(fmt.Sprintf("constructor-%d", rng.IntN(w.nodes.constructors())))
		case 8:
			w.team.rollBack(rng)
		}
	}
	w.network.Calm()
	w.opts.Log.Info("nothing goes wrong any more")
	if sleep(ctx, calmTime) != nil {
		return nil
	}
	return fmt.Errorf("nothing went wrong for %v, and the job is not done: %s", calmTime, w.team.stuck())
}

// choose draws an index by weight.
func choose(rng *rand.Rand, weights []int) int {
	sum := 0
	for _, x := range weights {
		sum += x
	}
	n := rng.IntN(sum)
	for i, x := range weights {
		if n -= x; n < 0 {
			return i
		}
	}
	return len(weights)
}

// isolate keeps one host apart from all others for a time.
func (w *world) isolate(rng *rand.Rand) {
	all := loaders + w.shadows
	n, d := rng.IntN(1+all+w.nodes.constructors()), between(rng, 10*time.Millisecond, 30*time.Second)
	id := "planner"
	switch {
	case n > all:
		id = fmt.Sprintf("constructor-%d", n-1-all)
	case n > 0:
		id = fmt.Sprintf("loader-%d", n-1)
	}
	if host := w.hostOf(id); host != "" {
		w.network.Isolate(host, d)
	}
}
