// Package sizing decides how many loaders read a job, which sources each of them reads, with how many
// workers and how much memory: OVERLORD's source auto-partitioning (section 5.1).
//
// It owns the decision and its reasons: a function of what sources cost, what the machines have and what
// constructors and planner take of it. It measures nothing, starts nothing, knows no clock and no chance.
// No byte of a batch depends on what it decides.
package sizing

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Source is what of a source matters here.
type Source struct {
	Name   string
	Work   float64   // seconds of a worker that a step takes of it at the most; 0: it is not drawn
	Busy   float64   // of these the part in which the worker computes: else it waits for the store; 0: not known, as if it were all
	Phases []float64 // its work in some steps, the same ones for all sources; nil: it is Work in all
	Static bool      // its part of the mix stays as it is
	State  int64     // bytes that a loader which reads it keeps open
	Reader int64     // bytes that a worker has open and buffered
	Block  int64     // bytes of the samples of a block
	Blocks int64     // of an epoch; 0: not known
}

// Snapshot is what a decision is made from.
type Snapshot struct {
	Sources []Source
	Cores   float64 // of all machines that loaders, constructors and planner run on; positive
	Memory  int64   // bytes of them; positive
	Step    float64 // seconds that a step of training takes; 0: loaders go as fast as they can

	Constructors      int     // at least 1
	ConstructorCores  float64 // that all of them take
	ConstructorMemory int64   // bytes that each takes
	PlannerCores      float64
	PlannerMemory     int64
	LoaderMemory      int64 // bytes that a loader takes beside its budget
	Buffer            int64 // bytes of samples that a loader holds if there is room: resources.loader_buffer

	Options
}

// Options bound a decision; zero values stand for the defaults.
type Options struct {
	Clusters   int     // of sources with like costs; default 4, which OVERLORD found best in most cases
	PerSource  int     // most workers of a source; default 64: more blocks of one source than that are never asked for
	PerLoader  int     // most workers of a loader that compute; default 8: a process with more waits for its own memory
	MostLoader int     // most loaders; default 4096, as the flag --loaders
	Headroom   float64 // workers over those that a step's work takes at Step; default 1.5, for epochs that begin and steps that are longer
}

func (o *Options) withDefaults() {
	o.Clusters = cmp.Or(max(o.Clusters, 0), 4)
	o.PerSource = cmp.Or(max(o.PerSource, 0), 64)
	o.PerLoader = cmp.Or(max(o.PerLoader, 0), 8)
	o.MostLoader = cmp.Or(max(o.MostLoader, 0), 4096)
	o.Headroom = cmp.Or(max(o.Headroom, 0), 1.5)
}

// leastBuffer is the memory for samples that a loader has at the least, as far as memory allows: blocks that
// do not fit it are on the local disk.
const leastBuffer = 32 << 20

// Loader is a loader of a decision.
type Loader struct {
	Sources []string `json:"sources"` // that it reads, alone or with others
	Workers int      `json:"workers"` // blocks that it reads at a time
	Buffer  int64    `json:"buffer"`  // bytes of samples that it holds
}

// Row is what was decided of a source.
type Row struct {
	Source  string  `json:"source"`
	Cluster int     `json:"cluster"` // from 1, the cheapest; 0: it is not drawn
	Work    float64 `json:"work"`    // as in Source
	Level   float64 `json:"level"`   // workers, in those of the cheapest cluster
	Cores   float64 `json:"cores"`   // its part of what is there for loaders
	Workers float64 `json:"workers"` // that keep them busy: more than cores if workers wait, or sources have their peaks at different times
	Loaders []int   `json:"loaders"` // that read it, rising
	Memory  int64   `json:"memory"`  // bytes that its loaders keep for it: open files, readers, and its part of the samples
	Why     string  `json:"why"`
}

// Decision is how a job is read. Its JSON form is part of the contract of `millrace plan --sizing --json`; fields
// are added, never changed.
type Decision struct {
	Loaders []Loader `json:"loaders"`
	Rows    []Row    `json:"sources"` // in the order of the job
	Cores   float64  `json:"cores"`   // for loaders
	Memory  int64    `json:"memory"`  // for loaders, in bytes
	Taken   int64    `json:"taken"`   // of it
	Notes   []string `json:"notes"`   // what holds for all
}

// Decide partitions the sources of a job.
func Decide(s Snapshot) *Decision {
	s.withDefaults()
	d := &Decision{
		Cores:  max(s.Cores-s.ConstructorCores-s.PlannerCores, s.Cores/4),
		Memory: max(s.Memory-int64(s.Constructors)*s.ConstructorMemory-s.PlannerMemory, 0),
	}
	d.note("%.1f cores and %s for loaders: %.1f and %s are there, %d constructors take %.1f and %s, the planner %.1f and %s", d.Cores, bytes(d.Memory),
		s.Cores, bytes(s.Memory), s.Constructors, s.ConstructorCores, bytes(int64(s.Constructors)*s.ConstructorMemory), s.PlannerCores, bytes(s.PlannerMemory))
	p := &partition{Snapshot: &s, d: d}
	p.phases = 1
	for i := range s.Sources {
		p.phases = max(p.phases, len(s.Sources[i].Phases))
	}
	p.cluster()
	p.levels()
	p.actors()
	p.fit()
	p.finish()
	return d
}

func (d *Decision) note(format string, args ...any) {
	d.Notes = append(d.Notes, fmt.Sprintf(format, args...))
}

// partition is a decision under way.
type partition struct {
	*Snapshot
	d       *Decision
	loaders []*actor
	phases  int     // that work is known of
	used    float64 // cores that the work takes, of those for loaders
	wait    float64 // workers for a core
	stretch float64 // workers of a source for a core of its part
}

// actor is a loader before it has a number.
type actor struct {
	sources []int     // rising
	cores   float64   // its part of them
	load    []float64 // work, by phase
	workers int
	buffer  int64
}

// cluster divides the sources by what they cost: so that the logarithms of the costs in a cluster differ
// least. Costs differ by factors, and one outlier is no reason to put all others together.
func (p *partition) cluster() {
	p.d.Rows = make([]Row, len(p.Sources))
	var drawn []int
	for i := range p.Sources {
		p.d.Rows[i] = Row{Source: p.Sources[i].Name, Work: p.Sources[i].Work}
		if p.Sources[i].Work > 0 {
			drawn = append(drawn, i)
		}
	}
	slices.SortStableFunc(drawn, func(a, b int) int { return cmp.Compare(p.Sources[a].Work, p.Sources[b].Work) })
	logs := make([]float64, len(drawn))
	for k, i := range drawn {
		logs[k] = math.Log(p.Sources[i].Work)
	}
	for c, bounds := range divide(logs, p.Clusters) {
		for _, i := range drawn[bounds[0]:bounds[1]] {
			p.d.Rows[i].Cluster = c + 1
		}
	}
}

// workIn is the work of a source in a phase.
func (s *Source) workIn(phase int) float64 {
	if phase < len(s.Phases) {
		return s.Phases[phase]
	}
	return s.Work
}

// measure finds out what the work of all sources takes together: the most in a phase, of workers and of cores, and how many
// workers keep the cores busy.
func (p *partition) measure() (work, computing float64) {
	sum := 0.0
	p.wait = 1
	for i := range p.Sources {
		sum += p.Sources[i].Work
	}
	for phase := range p.phases {
		w, c := 0.0, 0.0
		for i := range p.Sources {
			x := p.Sources[i].workIn(phase)
			w, c = w+x, c+x*min(max(cmp.Or(p.Sources[i].Busy, 1), leastBusy), 1)
		}
		work, computing = max(work, w), max(computing, c)
		if c > 0 {
			p.wait = max(p.wait, w/c)
		}
	}
	p.wait = 1 + spare*(p.wait-1)
	p.stretch = p.wait
	if work > 0 {
		p.stretch *= max(sum/work, 1)
	}
	return work, computing
}

// spare is how many workers there are for one that waits on average: they do not wait in turn, and a core idles whenever more of
// them do than usual. With one, 40 sources far away came at 0.74 of the rate of the best layout by hand, with two at 0.98.
const spare = 2

// leastBusy bounds how many workers are taken to keep a core busy: what they wait for has limits, too.
const leastBusy = 1.0 / 32

// levels gives each cluster its part of the cores: by the mean cost of its sources over that of the cheapest.
func (p *partition) levels() {
	means, count := make([]float64, p.Clusters+1), make([]float64, p.Clusters+1)
	for i := range p.d.Rows {
		r := &p.d.Rows[i]
		means[r.Cluster] += r.Work
		count[r.Cluster]++
	}
	for c := range means {
		means[c] /= max(count[c], 1)
	}
	for i := range p.d.Rows {
		if r := &p.d.Rows[i]; r.Cluster > 0 {
			r.Level = means[r.Cluster] / means[1]
		}
	}
	work, computing := p.measure()
	p.used = p.d.Cores
	if p.Step > 0 && work > 0 {
		needs := computing / p.Step * p.Headroom
		p.used = min(p.d.Cores, needs)
		p.d.note("steps of %.3g s take %.2f workers, %.2f with headroom: %s", p.Step, work/p.Step, work/p.Step*p.Headroom, p.enough(needs))
	}
	if p.wait > 1 {
		p.d.note("workers compute for %.0f %% of their time, so there are %.1f for a core", 100/(1+(p.wait-1)/spare), p.wait)
	}
	p.share(p.used)
	for i := range p.d.Rows {
		r := &p.d.Rows[i]
		if r.Workers = r.Cores * p.stretch; r.Cluster > 0 {
			r.Why = fmt.Sprintf("cluster %d: %.3g ms a step on average, %.3g times the cheapest%s", r.Cluster, 1e3*means[r.Cluster], r.Level, r.Why)
		} else {
			r.Why = "not drawn in the steps looked at"
		}
	}
}

// enough says whether loaders are fast enough for the steps, which take some cores; else what they lack.
func (p *partition) enough(needs float64) string {
	var lack []string
	if needs > p.d.Cores {
		lack = append(lack, "loaders are too slow for it with these machines")
	}
	worst, part, capped := 0, 1.0, 0
	for i := range p.Sources {
		s := &p.Sources[i]
		has := float64(p.mostWorkers(s)) * p.Step / (s.Work * p.Headroom) // of what it takes
		if has < 1 {
			capped++
		}
		if has < part {
			worst, part = i, has
		}
	}
	if capped > 0 {
		s := &p.Sources[worst]
		text := fmt.Sprintf("%s can have %d of the %.3g workers that it takes", s.Name, p.mostWorkers(s), s.Work/p.Step*p.Headroom)
		if p.mostWorkers(s) < p.PerSource {
			text += ", as an epoch has no more blocks: it needs smaller chunks or blocks"
		}
		if capped > 1 {
			text += fmt.Sprintf(" (one of %d such sources)", capped)
		}
		lack = append(lack, text)
	}
	return cmp.Or(strings.Join(lack, "; "), "there are enough")
}

// share deals cores by levels. What one source has no use for, the others get.
func (p *partition) share(cores float64) {
	for again := true; again; {
		again = false
		left, total := cores, 0.0
		for i := range p.d.Rows {
			if r := &p.d.Rows[i]; r.Why != "" {
				left -= r.Cores
			} else {
				total += r.Level
			}
		}
		for i := range p.d.Rows {
			r, most := &p.d.Rows[i], p.mostWorkers(&p.Sources[i])
			if r.Why != "" || r.Cluster == 0 {
				continue
			}
			if r.Cores = left * r.Level / total; r.Cores*p.stretch > float64(most) {
				r.Cores, again = float64(most)/p.stretch, true
				r.Why = fmt.Sprintf("; at most %d workers, the bound of a source", most)
				if most < p.PerSource {
					r.Why = fmt.Sprintf("; at most %d workers, as an epoch has no more blocks", most)
				}
			}
		}
	}
}

// actors gives each source loaders of its own, as many as its workers need.
func (p *partition) actors() {
	for i := range p.d.Rows {
		r := &p.d.Rows[i]
		workers := int(math.Ceil(r.Workers - 1e-9))
		n := max((workers+p.perLoader()-1)/p.perLoader(), 1)
		for range n {
			a := &actor{sources: []int{i}, cores: r.Cores / float64(n), load: make([]float64, p.phases)}
			for phase := range a.load {
				a.load[phase] = p.Sources[i].workIn(phase) / float64(n)
			}
			p.loaders = append(p.loaders, a)
		}
	}
}

// perLoader is how many workers a loader has at the most.
func (p *partition) perLoader() int { return int(math.Ceil(float64(p.PerLoader)*p.wait - 1e-9)) }

// mostWorkers is how many workers a source has use for.
func (p *partition) mostWorkers(s *Source) int {
	most := p.PerSource
	if s.Blocks > 0 {
		most = min(most, int(min(s.Blocks, int64(most))))
	}
	return max(most, 1)
}
