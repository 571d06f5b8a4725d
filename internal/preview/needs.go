package preview

import (
	"fmt"
	"time"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/constructor/assemble"
	"github.com/millrace-data/millrace/internal/planner/plan"
)

// sizes measures what ranks receive in some of the steps: those rows of DP index
// 0, as every DP index gets equally many.
type sizes struct {
	job   *Job
	zeros []int32 // a document of any length
	steps int64   // seen
	taken int64   // of them, measured
	bytes float64 // tokens to all trainers, of the steps taken

	fetched, beside int64 // kept columns and images of all steps: to constructors, to trainers
}

// sampleEvery is how many steps lie between two that are measured after the
// first few: tensors of most formats have one size in all steps.
const sampleEvery, sampleFirst = 64, 4

func newSizes(j *Job) sizes { return sizes{job: j} }

func (z *sizes) add(s *plan.Step) error {
	z.steps++
	z.addBeside(s)
	if z.steps > sampleFirst && z.steps%sampleEvery != 0 {
		return nil
	}
	spec, m := z.job.spec, s.Mesh.Sizes()
	layout := assemble.Layout{
		Format: spec.Output.Format, CPSlicing: spec.Output.CPSlicing, PadID: spec.Output.PadID, DocumentMultiple: spec.Output.DocumentMultiple,
		SequenceLength: int(s.Shape.SequenceLength), CP: m.CP, PP: m.PP, Packed: spec.Batch.Packing,
		Split: s.Placed.Width != nil,
	}
	fetching := m.DP * m.CP * m.TP // ranks of each pipeline stage
	if spec.Output.BroadcastAt == "tp" {
		fetching = m.DP * m.CP
	}
	rows, widths := z.microbatches(s)
	for k, rows := range rows {
		cut := layout
		if layout.Split {
			cut = layout.Over(widths[k])
		}
		for pp := range m.PP {
			n, err := cut.Size(rows, 0, pp)
			if err != nil {
				return fmt.Errorf("step %d: sizing what a rank receives: %w", s.Step, err)
			}
			z.bytes += float64(n) * float64(fetching)
		}
	}
	z.taken++
	return nil
}

// microbatches are the rows of DP index 0, or of rank 0 of the pool, with documents of
// zeros, and how many ranks share them.
func (z *sizes) microbatches(s *plan.Step) (all [][]batch.Row, widths []int) {
	if most := int(s.Shape.SequenceLength) * max(z.job.spec.Batch.ContextSplit, 1); len(z.zeros) < most {
		z.zeros = make([]int32, most)
	}
	all, widths = make([][]batch.Row, s.Placed.Microbatches), make([]int, s.Placed.Microbatches)
	for row := range s.Rows {
		first, width := s.Placed.Span(row)
		if first != 0 {
			continue
		}
		var r batch.Row
		for _, i := range s.Placed.Samples(row) {
			r.Segments = append(r.Segments, z.zeros[:s.Buffer.Tokens[i]])
		}
		m := s.Placed.Microbatch[row]
		all[m], widths[m] = append(all[m], r), width
	}
	return all, widths
}

// delivered is what all trainers receive in a step.
func (z *sizes) delivered() float64 {
	return z.bytes/float64(max(z.taken, 1)) + float64(z.beside)/float64(max(z.steps, 1))
}

// hops is what a step moves between the roles.
func (t *tally) hops() []Hop {
	steps := float64(max(t.r.Steps, 1))
	samples := 4*float64(t.r.Tokens) + 4*float64(t.r.Documents) + float64(t.sizes.fetched)
	return []Hop{
		{"storage", "loaders", float64(t.job.store.Meter().Bytes) / steps, "reads of this run, with indexing and what was read ahead", Measured},
		{"loaders", "constructors", samples / steps, "4 bytes a token and 4 a document, with kept columns and images as this run read them", Derived},
		{"constructors", "trainers", t.sizes.delivered(), fmt.Sprintf("tensors for all ranks that fetch: those of tokens as sized in %s, kept columns and pixels of all", Count(t.sizes.taken, "step")), Derived},
	}
}

// memory is what each role holds.
func (t *tally) memory() []Memory {
	r, spec, steps := &t.r, t.job.spec, max(t.r.Steps, 1)
	ahead := int64(spec.Resources.Prefetch) + 1
	held, buffer, disk := t.job.total.HeldBytes, spec.Resources.LoaderBuffer, spec.Resources.LoaderDisk
	roles := []Memory{{"loaders", held, buffer, "samples of blocks from the oldest step to the furthest read ahead, all loaders together", Measured}}
	if held > buffer && disk > 0 {
		roles = append(roles, Memory{"loaders' disk", held - buffer, disk, "what one loader has no memory for", Derived})
	}
	return append(roles, []Memory{
		{"constructors", ahead * (4*r.Tokens + t.sizes.fetched) / steps, spec.Resources.ConstructorBuffer, fmt.Sprintf("samples of %d steps (resources.prefetch and the one being trained), all constructors together", ahead), Derived},
		{"planner", 4 * t.job.total.HeldSamples, 0, "lengths of the samples that are known, 4 bytes each", Derived},
	}...)
}

// speed compares what loaders have to give with what one core gave here.
func (t *tally) speed(stepTime time.Duration) Speed {
	r, steps := &t.r, float64(max(t.r.Steps, 1))
	s := Speed{SamplesPerStep: float64(r.Documents) / steps, TokensPerStep: float64(r.Tokens) / steps}
	for i, x := range t.sources {
		u := t.job.sources[i].usage
		if u.Samples > 0 {
			s.SecondsPerStep += float64(x.documents) / steps * u.Took.Seconds() / float64(u.Samples)
		}
	}
	if s.SecondsPerStep > 0 {
		s.SamplesPerSecond = s.SamplesPerStep / s.SecondsPerStep
	}
	if stepTime > 0 {
		s.StepTime = stepTime.Seconds()
		s.SamplesNeeded = s.SamplesPerStep / s.StepTime
		s.Cores = s.SecondsPerStep / s.StepTime
	}
	return s
}
