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
	kind              dgraph.Kind
	sum, lockstep     float64
	steps             int64
	worst             float64
	worstAt           int64
	items, rows       boundTally
	heaviest          string // of the first step that an item binds
	timeline          Timeline
}

// boundTally counts the steps that no placing makes even.
type boundTally struct {
	steps, first int64
	least        float64 // of the first: the bound over the mean
}

func (b *boundTally) add(step int64, least float64) {
	if b.steps == 0 {
		b.first, b.least = step, least
	}
	b.steps++
}

// balanced is how even a step is by one measure.
type balanced struct {
	name, model, axis string
	imbalance         float64 // the largest load over the mean
	lockstep          float64 // 0: not said
}

// addModules adds the measures of a step: tokens and attention, then what the
// strategy summed up.
func (t *tally) addModules(s *plan.Step) {
	all := measures(s)
	for _, m := range s.Placed.Modules {
		b := balanced{name: m.Name, model: m.Model, axis: m.Axis, imbalance: m.Buckets.Imbalance()}
		if m.Lockstep > 0 {
			b.lockstep = float64(m.Lockstep) / m.Buckets.Mean()
		}
		all = append(all, b)
	}
	for i, b := range all {
		if i == len(t.modules) {
			t.modules = append(t.modules, moduleTally{
				name: b.name, model: b.model, axis: b.axis, items: boundTally{first: -1}, rows: boundTally{first: -1},
				timeline: Timeline{First: s.Step, Series: []Series{{Name: "balance." + b.name, Join: High}}},
			})
		}
		t.modules[i].add(s.Step, b)
	}
	for k := range s.Placed.Modules {
		t.addBound(s, &s.Placed.Modules[k], &t.modules[len(all)-len(s.Placed.Modules)+k])
	}
}

// addBound says what binds a step that no placing makes even: a sample, or an image, that costs
// more than a rank's mean, or else the rows, or images, as they are.
func (t *tally) addBound(s *plan.Step, m *strategy.Module, x *moduleTally) {
	x.kind = m.Kind
	mean := m.Buckets.Mean()
	least := float64(m.Buckets.TightBound) / mean
	if m.Buckets.Total == 0 || least <= warnItem {
		return
	}
	item, known := t.costliest(s, m)
	single := known && item.piece > warnItem*mean || m.Kind == dgraph.Image && float64(m.Buckets.LowerBound) > warnItem*mean
	if !single {
		x.rows.add(s.Step, least)
		return
	}
	if x.items.steps == 0 && known {
		x.heaviest = t.describe(s, item, mean)
	}
	x.items.add(s.Step, least)
}

func (m *moduleTally) add(step int64, b balanced) {
	m.sum += b.imbalance
	m.lockstep += b.lockstep
	m.steps++
	if b.imbalance > m.worst {
		m.worst, m.worstAt = b.imbalance, step
	}
	m.timeline.add([]float64{b.imbalance})
}

func (m *moduleTally) report() ModuleReport {
	n := float64(m.steps)
	return ModuleReport{
		Name: m.name, Model: m.model, Axis: m.axis, Mean: m.sum / n, Worst: m.worst, WorstStep: m.worstAt,
		Lockstep: m.lockstep / n, ItemBound: m.items.steps, FirstItem: m.items.first, Heaviest: m.heaviest,
		kind: m.kind, RowBound: m.rows.steps, FirstRow: m.rows.first, LeastRow: m.rows.least,
	}
}

// item is a sample, or an image, of a step.
type item struct {
	sample int32
	units  int64
	piece  float64 // of the units: what each rank of its row has
	what   string
}

// costliest returns the sample, or image, of a step that costs a rank most by a module's model.
// It is not known if the model is a Go function, which the report does not have.
func (t *tally) costliest(s *plan.Step, m *strategy.Module) (most item, known bool) {
	model, err := cost.Parse(m.Model)
	if err != nil {
		return most, false
	}
	look := func(i int32, width int, of cost.Sample, what func() string) {
		units, err := model.Cost(of)
		if piece := float64(units) / float64(width); err == nil && piece > most.piece {
			most, known = item{i, units, piece, what()}, true
		}
	}
	for row := range s.Rows {
		_, width := s.Placed.Span(row)
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
				look(i, width, of, func() string { return Count(n, "token") })
				continue
			}
			for image := first; image < end; image++ {
				n := int64(s.Buffer.Patches[image])
				look(i, 1, cost.Sample{Patches: n, Images: 1}, func() string { return fmt.Sprintf("image %d, of %s", image-first, Count(n, "patch")) })
			}
		}
	}
	return most, known
}

// describe names an item, its place and its cost beside the mean cost of a rank.
func (t *tally) describe(s *plan.Step, x item, mean float64) string {
	src := t.job.sources[s.Buffer.Source[x.sample]]
	p := src.held[s.Buffer.Seq[x.sample]].places[s.Buffer.Index[x.sample]] // it is in memory
	return fmt.Sprintf("%s row %d of source %q (%s) costs %d, %.2f times the mean of a rank, %.0f",
		src.Manifest.Name(p.File), p.Row, src.Spec.Name, x.what, x.units, float64(x.units)/mean, mean)
}

// warnings say which steps no placing makes even, and what does.
func (m *ModuleReport) warnings(warn func(format string, args ...any)) {
	where := ""
	if m.Heaviest != "" {
		where = ", where " + m.Heaviest
	}
	switch {
	case m.ItemBound > 0 && m.kind == dgraph.Image:
		warn("%s: %s bound by single images, the first is step %d%s: no placing makes them even, smaller images do, or more of them in a step", m.Name, Count(m.ItemBound, "step"), m.FirstItem, where)
	case m.ItemBound > 0:
		warn("%s: %s bound by single documents, the first is step %d%s: no placing makes them even, splitting long documents does", m.Name, Count(m.ItemBound, "step"), m.FirstItem, where)
	}
	switch {
	case m.RowBound > 0 && m.kind == dgraph.Image:
		warn("%s: %s bound by images that do not divide evenly, the first is step %d, to %.2f times the mean or more: more images in a step let ranks be more even", m.Name, Count(m.RowBound, "step"), m.FirstRow, m.LeastRow)
	case m.RowBound > 0:
		warn("%s: %s bound by rows as they are packed, the first is step %d, to %.2f times the mean or more: more rows in a step, or rows that are evened and have room (batch.fill), let ranks be more even", m.Name, Count(m.RowBound, "step"), m.FirstRow, m.LeastRow)
	}
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
