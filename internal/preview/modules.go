package preview

import (
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/planner/cost"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/strategy"
)

// moduleTally adds up how even one kind of work is.
type moduleTally struct {
	name, model, axis string
	sum, lockstep     float64
	steps             int64
	worst             float64
	worstAt           int64
	itemBound         int64
	firstItem         int64
	heaviest          string
	timeline          Timeline
}

// balanced is how even a step is by one measure.
type balanced struct {
	name, model, axis string
	imbalance         float64 // the largest load over the mean
	lockstep          float64 // 0: not said
	itemBound         bool
}

// addModules adds the measures of a step: tokens and attention, then what the
// strategy summed up.
func (t *tally) addModules(s *plan.Step) {
	all := measures(s)
	for _, m := range s.Placed.Modules {
		b := balanced{name: m.Name, model: m.Model, axis: m.Axis, imbalance: m.Buckets.Imbalance(), itemBound: m.Buckets.ItemBound}
		if m.Lockstep > 0 {
			b.lockstep = float64(m.Lockstep) / m.Buckets.Mean()
		}
		all = append(all, b)
	}
	for i, b := range all {
		if i == len(t.modules) {
			t.modules = append(t.modules, moduleTally{
				name: b.name, model: b.model, axis: b.axis, firstItem: -1,
				timeline: Timeline{First: s.Step, Series: []Series{{Name: "balance." + b.name, Join: High}}},
			})
		}
		if b.itemBound && t.modules[i].itemBound == 0 {
			t.modules[i].heaviest = t.heaviest(s, &s.Placed.Modules[i-(len(all)-len(s.Placed.Modules))])
		}
		t.modules[i].add(s.Step, b)
	}
}

func (m *moduleTally) add(step int64, b balanced) {
	m.sum += b.imbalance
	m.lockstep += b.lockstep
	m.steps++
	if b.imbalance > m.worst {
		m.worst, m.worstAt = b.imbalance, step
	}
	if b.itemBound {
		if m.itemBound == 0 {
			m.firstItem = step
		}
		m.itemBound++
	}
	m.timeline.add([]float64{b.imbalance})
}

func (m *moduleTally) report() ModuleReport {
	n := float64(m.steps)
	return ModuleReport{
		Name: m.name, Model: m.model, Axis: m.axis, Mean: m.sum / n, Worst: m.worst, WorstStep: m.worstAt,
		Lockstep: m.lockstep / n, ItemBound: m.itemBound, FirstItem: m.firstItem, Heaviest: m.heaviest,
	}
}

// heaviest names the sample, or image, of a step that costs most by a module's model,
// beside the mean cost of a rank. It is "" if the model is a Go function, which the
// report does not have.
func (t *tally) heaviest(s *plan.Step, m *strategy.Module) string {
	model, err := cost.Parse(m.Model)
	if err != nil {
		return ""
	}
	at, most, what := int32(-1), int64(0), ""
	look := func(i int32, of cost.Sample, name string) {
		if units, err := model.Cost(of); err == nil && units > most {
			at, most, what = i, units, name
		}
	}
	for row := range s.Rows {
		for _, i := range s.Placed.Samples(row) {
			if m.Sources != nil && !slices.Contains(m.Sources, t.job.sources[s.Buffer.Source[i]].Spec.Name) {
				continue
			}
			first, end := s.Buffer.ImagesOf(int(i))
			if m.Kind == dgraph.Text {
				n := int64(s.Buffer.Tokens[i])
				of := cost.Sample{Tokens: n}
				if first < end {
					of.Patches, of.Images = s.Buffer.PatchesOf(int(i)), int64(end-first)
				}
				look(i, of, Count(n, "token"))
				continue
			}
			for image := first; image < end; image++ {
				n := int64(s.Buffer.Patches[image])
				look(i, cost.Sample{Patches: n, Images: 1}, fmt.Sprintf("image %d, of %s", image-first, Count(n, "patch")))
			}
		}
	}
	if at < 0 {
		return ""
	}
	src := t.job.sources[s.Buffer.Source[at]]
	p := src.held[s.Buffer.Seq[at]].places[s.Buffer.Index[at]] // it is in memory
	return fmt.Sprintf("%s row %d of source %q (%s) costs %d, %.2f times the mean of a rank, %.0f",
		src.Manifest.Name(p.File), p.Row, src.Spec.Name, what, most, float64(most)/m.Buckets.Mean(), m.Buckets.Mean())
}

// item is what the first step that is bound by an item has, for a sentence.
func (m *ModuleReport) item() string {
	if m.Heaviest == "" {
		return ""
	}
	return ", where " + m.Heaviest
}

// measures are how even tokens and attention are over the ranks that rows go to, and
// over each microbatch slot of theirs. The ranks of one row have equal parts of it.
func measures(s *plan.Step) []balanced {
	ranks, axis := s.Placed.Ranks(), "dp"
	if s.Placed.Width != nil {
		axis = "cp"
	}
	slots := make([][2]int64, ranks*s.Placed.Microbatches)
	for row := range s.Rows {
		var load [2]int64
		for _, i := range s.Placed.Samples(row) {
			length := int64(s.Buffer.Tokens[i])
			load[0] += length
			load[1] += length * length
		}
		first, width := s.Placed.Span(row)
		for rank := first; rank < first+width; rank++ {
			slot := &slots[int(s.Placed.Microbatch[row])*ranks+rank]
			slot[0], slot[1] = slot[0]+load[0]/int64(width), slot[1]+load[1]/int64(width)
		}
	}
	all := []balanced{{name: "tokens", model: "linear", axis: axis}, {name: "attention", model: "quadratic", axis: axis}}
	for k := range all {
		all[k].imbalance, all[k].lockstep = evenness(slots, ranks, k)
	}
	return all
}

// evenness is the load of the fullest rank over that of the mean one, and the same
// if the fullest of each slot counts.
func evenness(slots [][2]int64, dp, k int) (imbalance, lockstep float64) {
	ranks := make([]int64, dp)
	var total, waited, most, slot int64
	for i, load := range slots {
		ranks[i%dp] += load[k]
		total += load[k]
		if slot = max(slot, load[k]); i%dp == dp-1 {
			waited += slot
			slot = 0
		}
	}
	for _, load := range ranks {
		most = max(most, load)
	}
	if total == 0 {
		return 1, 1
	}
	mean := float64(total) / float64(dp)
	return float64(most) / mean, float64(waited) / mean
}
