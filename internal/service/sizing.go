package service

import (
	"cmp"
	"math"
	"runtime"
	"slices"

	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/profile"
	"github.com/millrace-data/millrace/internal/sizing"
	"github.com/millrace-data/millrace/jobspec"
)

// SizeOptions say for which machine a job is sized. All have defaults.
type SizeOptions struct {
	Cores        float64 // default: those of this machine, as far as this process may use them
	Memory       int64   // default: that of this machine
	Step         float64 // seconds of a step of training; 0: loaders go as fast as they can
	Constructors int     // default 1
	Processes    bool    // loaders are processes of their own
	Steps        int64   // that are looked at, for the most that a source has to give; default 1000
	sizing.Options
}

// assemblyCost is what constructors take for a token, in seconds of a core: laying out, digesting and delivering
// a row of it takes 10 to 25 ns (docs/benchmarks.md).
const assemblyCost = 20e-9

// plannerCost is the same of the planner, as far as it depends on the number of samples: drawing, packing and
// publishing one takes some microseconds.
const plannerCost = 5e-6

// Size decides which loaders read a job, from a profile that covers all of its sources.
func Size(job *jobspec.Job, p *profile.Profile, opts SizeOptions) *sizing.Decision {
	if opts.Cores <= 0 {
		opts.Cores = float64(runtime.GOMAXPROCS(0))
	}
	if opts.Memory <= 0 {
		opts.Memory = machineMemory()
	}
	opts.Constructors = max(opts.Constructors, 1)
	s := sizing.Snapshot{
		Cores: opts.Cores, Memory: opts.Memory, Step: opts.Step, Options: opts.Options,
		Constructors: opts.Constructors, ConstructorMemory: job.Resources.ConstructorBuffer, PlannerMemory: overhead,
		Buffer: job.Resources.LoaderBuffer,
	}
	if opts.Processes {
		s.LoaderMemory = overhead
		s.ConstructorMemory += overhead
	}
	s.Sources = sizes(job, p, cmp.Or(max(opts.Steps, 0), 1000))
	tokens := float64(job.Batch.Sequences) * float64(job.Batch.SequenceLength)
	work, samples := 0.0, 0.0
	for i := range s.Sources {
		work += s.Sources[i].Work
		samples += s.Sources[i].Work / max(p.Of(&job.Sources[i]).PerSample(), 1e-12)
	}
	step := opts.Step // without one, loaders set the pace
	if least := (work + assemblyCost*tokens + plannerCost*samples) / opts.Cores; step < least {
		step = least
	}
	if step > 0 {
		s.ConstructorCores, s.PlannerCores = assemblyCost*tokens/step, plannerCost*samples/step
	}
	return sizing.Decide(s)
}

// sizes is what matters of the sources: of each, the most work that a step takes of it, of those looked at.
func sizes(job *jobspec.Job, p *profile.Profile, steps int64) []sizing.Source {
	shares, phases, static := peaks(job, steps)
	tokens := float64(job.Batch.Sequences) * float64(job.Batch.SequenceLength)
	mean := 0.0 // tokens of a sample of the mix
	for i := range job.Sources {
		x := p.Of(&job.Sources[i])
		mean += shares[i] * float64(x.Tokens) / float64(max(x.Samples, 1))
	}
	all := make([]sizing.Source, len(job.Sources))
	for i := range all {
		x := p.Of(&job.Sources[i])
		work := tokens * x.PerToken()
		if job.Mix.Unit == "samples" {
			work = tokens / math.Max(mean, 1) * x.PerSample()
		}
		for phase := range phases[i] {
			phases[i][phase] *= work
		}
		feedback := job.Mix.Feedback.Policy != "" && job.Mix.Feedback.Policy != "none"
		all[i] = sizing.Source{Name: x.Name, Work: shares[i] * work, Busy: x.Busy(), Phases: phases[i], Static: static[i] && !feedback, State: x.StateBytes, Reader: x.ReaderBytes, Block: x.BlockBytes, Blocks: x.Blocks}
	}
	return all
}

// looks are at a schedule, evenly: ramps are smooth, and what is shorter than a thirtieth of a job is no
// reason for a loader.
const looks = 32

// peaks are the largest shares of sources in some steps, their shares in some of these, and whether they have the same in all.
// Between the bounds of stages and ramps each share rises or falls, or stays.
func peaks(job *jobspec.Job, steps int64) (shares []float64, by [][]float64, static []bool) {
	schedule, sources := compile.Schedule(job), len(job.Sources)
	shares, by, static = make([]float64, sources), make([][]float64, sources), slices.Repeat([]bool{true}, sources)
	first := schedule.Shares(0)
	look := func(step int64) []uint64 {
		now := schedule.Shares(step)
		for i, x := range now {
			shares[i] = max(shares[i], float64(x)/(1<<mix.Bits))
			static[i] = static[i] && x == first[i]
		}
		return now
	}
	for step, n := int64(0), int64(1); step < steps; n++ {
		for i, x := range look(step) {
			by[i] = append(by[i], float64(x)/(1<<mix.Bits))
		}
		step = max(step+1, n*(steps/looks)+n*(steps%looks)/looks)
	}
	look(steps - 1)
	for _, st := range job.Mix.Stages {
		for _, step := range []int64{st.From - 1, st.From, st.From + min(st.Over, steps)} {
			if step >= 0 && step < steps {
				look(step)
			}
		}
	}
	return shares, by, static
}

// smallMachine is the memory of a machine of which nothing is known.
const smallMachine = 8 << 30

// part is what one loader is of a layout.
type part struct {
	workers int
	buffer  int64
	place   int // plus 1; 0: any
}

// part is that of loader i; those beside a layout, and all without one, are as the options say.
func (o *Options) part(i int) part {
	if o.Layout == nil || i >= len(o.Layout.Loaders) {
		return part{workers: o.Workers}
	}
	l := &o.Layout.Loaders[i]
	return part{cmp.Or(l.Workers, o.Workers), cmp.Or(l.Buffer, o.Job.Resources.LoaderBuffer), i + 1}
}

// deal says which loaders read which source of the job; nil: they are dealt in turn.
func (o *Options) deal() [][]int {
	if o.Layout == nil {
		return nil
	}
	return o.Layout.Deal(SourceNames(o.Job))
}

// SourceNames are the names of a job's sources, in its order.
func SourceNames(job *jobspec.Job) (names []string) {
	for i := range job.Sources {
		names = append(names, job.Sources[i].Name)
	}
	return names
}
