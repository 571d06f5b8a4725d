package simulate

import (
	"math"
	"math/rand/v2"

	"github.com/millrace-data/millrace/internal/engine/schedule"
)

// Stage is one operator of a simulated pipeline.
type Stage struct {
	Name  string
	Needs []schedule.Amount // of each resource of the workload
	schedule.Declared
	// Gather is how many source tasks' outputs one task takes, neighbours in their order; 0: it takes a partition.
	// One stage may gather.
	Gather int
	// Cost says how long a task takes and what it gives, by its lineage. The same
	// lineage costs the same under every policy.
	Cost func(Lineage) (schedule.Nanos, []int64)
}

// Lineage says which task of a stage it is.
type Lineage struct {
	Source int    // number of the source task that it comes from
	Path   uint64 // a hash of the numbers of the partitions on the way
	In     int64  // bytes of its input; 0 for the source
}

// Workload is a pipeline with its data and its machine.
type Workload struct {
	Name      string
	Resources []schedule.Resource
	Stages    []Stage
	Sources   int // tasks of the first stage
	// Declared is what the first stage's tasks are expected to give, before one has
	// ended; a reader knows the sizes of files.
	Declared int64
}

// MB is a megabyte.
const MB = 1_000_000

// Partition is the partition of the benchmark.
const Partition = 100 * MB

// part declares partitions of the benchmark's size, and as many bytes out as in.
var part = schedule.Declared{Partition: Partition}

func cpu(n schedule.Amount) []schedule.Amount { return []schedule.Amount{n * schedule.Slot, 0} }
func gpu(n schedule.Amount) []schedule.Amount { return []schedule.Amount{0, n * schedule.Slot} }

// slots is a machine of CPU and GPU slots.
func slots(cpus, gpus schedule.Amount) []schedule.Resource {
	return []schedule.Resource{{Name: "cpu", Slots: cpus * schedule.Slot}, {Name: "gpu", Slots: gpus * schedule.Slot}}
}

// fixed gives n partitions of size bytes after d seconds.
func fixed(seconds float64, n int, size int64) func(Lineage) (schedule.Nanos, []int64) {
	d := schedule.Nanos(seconds * float64(schedule.Second))
	out := make([]int64, n)
	for i := range out {
		out[i] = size
	}
	return func(Lineage) (schedule.Nanos, []int64) { return d, out }
}

// Microbenchmark is the pipeline of section 5.3.1 of Ray Data's paper: 160 loads of
// 5 s that give five partitions each, transforms and inferences of 0.5 s a
// partition, on 8 CPU and 4 GPU slots.
func Microbenchmark() Workload {
	return Workload{
		Name: "load-transform-infer", Resources: slots(8, 4), Sources: 160, Declared: 5 * Partition,
		Stages: []Stage{
			{Name: "load", Needs: cpu(1), Declared: part, Cost: fixed(5, 5, Partition)},
			{Name: "transform", Needs: cpu(1), Declared: part, Cost: fixed(0.5, 1, Partition)},
			{Name: "infer", Needs: gpu(1), Cost: fixed(0.5, 0, 0)},
		},
	}
}

// Whole is the microbenchmark without streaming repartition: a load gives its five
// partitions as one, so that each task after it works on all of them.
func Whole() Workload {
	w := Microbenchmark()
	w.Name += " whole"
	w.Stages[0].Declared.Partition, w.Stages[1].Declared.Partition = 5*Partition, 5*Partition
	w.Stages[0].Cost = fixed(5, 1, 5*Partition)
	w.Stages[1].Cost = fixed(2.5, 1, 5*Partition)
	w.Stages[2].Cost = fixed(2.5, 0, 0)
	return w
}

// Fractional is the pipeline of appendix A.1: stages of 1 s and 2 s on 8 slots, for
// which no whole number of slots per stage is right.
func Fractional(n int) Workload {
	return Workload{
		Name: "fractional", Resources: slots(8, 0), Sources: n, Declared: Partition,
		Stages: []Stage{
			{Name: "first", Needs: cpu(1), Declared: part, Cost: fixed(1, 1, Partition)},
			{Name: "second", Needs: cpu(1), Cost: fixed(2, 0, 0)},
		},
	}
}

// Changing is a video pipeline in the manner of section 5.1.2: decode on CPUs, generate on the
// GPU, encode on CPUs. The first half of the videos are small: quick to decode, slow
// to encode relative to that. The second half are large: three times the bytes, and six times the decoding.
func Changing(n int) Workload {
	large := func(l Lineage) bool { return l.Source >= n/2 }
	stage := func(name string, needs []schedule.Amount, small, big func(Lineage) (schedule.Nanos, []int64)) Stage {
		return Stage{Name: name, Needs: needs, Declared: part, Cost: func(l Lineage) (schedule.Nanos, []int64) {
			if large(l) {
				return big(l)
			}
			return small(l)
		}}
	}
	return Workload{
		Name: "low then high resolution", Resources: slots(8, 1), Sources: n, Declared: Partition,
		Stages: []Stage{
			stage("decode", cpu(1), fixed(1, 1, Partition), fixed(6, 3, Partition)),
			stage("generate", gpu(1), fixed(0.2, 1, Partition), fixed(0.2, 1, Partition)),
			stage("encode", cpu(1), fixed(3, 0, 0), fixed(0.7, 0, 0)),
		},
	}
}

// Noisy multiplies the time of every task by a lognormal factor of median 1.
func (w Workload) Noisy(sigma float64, seed uint64) Workload {
	return w.timed(seed, func(d schedule.Nanos, r *rand.Rand) schedule.Nanos {
		return schedule.Nanos(float64(d) * math.Exp(sigma*r.NormFloat64()))
	})
}

// Delayed adds an exponential delay of this mean to the time of every task, as timers and busy cores do.
func (w Workload) Delayed(mean schedule.Nanos, seed uint64) Workload {
	return w.timed(seed, func(d schedule.Nanos, r *rand.Rand) schedule.Nanos {
		return d + schedule.Nanos(float64(mean)*r.ExpFloat64())
	})
}

// timed changes the time of every task by chance. The same lineage has the same chance under every policy.
func (w Workload) timed(seed uint64, change func(schedule.Nanos, *rand.Rand) schedule.Nanos) Workload {
	stages := make([]Stage, len(w.Stages))
	for i, s := range w.Stages {
		cost := s.Cost
		s.Cost = func(l Lineage) (schedule.Nanos, []int64) {
			d, out := cost(l)
			return change(d, rand.New(rand.NewPCG(seed<<8|uint64(i), l.Path))), out
		}
		stages[i] = s
	}
	w.Stages = stages
	return w
}

// below is the lineage of what takes the nth partition of l.
func (l Lineage) below(n int, size int64) Lineage {
	h := (l.Path ^ uint64(n+1)) * 0x9e3779b97f4a7c15
	return Lineage{Source: l.Source, Path: h ^ h>>29, In: size}
}
