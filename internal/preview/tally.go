package preview

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
)

// tally adds up the steps of a report.
type tally struct {
	job     *Job
	r       Report
	sources []sourceTally
	modules []moduleTally
	lengths [32]int64 // documents by bit length of their tokens
	sizes   sizes
	fills   fillTally
	last    *plan.Step
	values  []float64 // scratch: of the timeline
}

type sourceTally struct {
	drawn, units      int64
	tokens, documents int64   // in rows
	due               float64 // units that the mix asked for
	first, exhausted  int64   // steps; -1: none
}

func newTally(j *Job) *tally {
	t := &tally{job: j, sizes: newSizes(j), sources: make([]sourceTally, len(j.sources))}
	for i := range t.sources {
		t.sources[i].first, t.sources[i].exhausted = -1, -1
	}
	t.r = Report{Job: j.spec.Name, Identity: fmt.Sprintf("%x", j.spec.Identity()), First: j.start, Worst: StepFill{-1, 1}}
	t.r.Timeline = Timeline{First: j.start, Series: []Series{
		{Name: "fill", Join: Mean}, {Name: "fill.min", Join: Low}, {Name: "tokens", Join: Mean}, {Name: "padding", Join: Mean}, {Name: "documents", Join: Mean},
	}}
	for _, name := range j.Sources() {
		t.r.Timeline.Series = append(t.r.Timeline.Series, Series{Name: "share." + name, Join: Mean}, Series{Name: "scheduled." + name, Join: Mean})
	}
	return t
}

func (t *tally) add(s *plan.Step, l *Line) error {
	r := &t.r
	r.Steps++
	r.Documents += int64(l.Documents)
	r.Tokens += l.Tokens
	r.Padding += l.Padding
	if l.Fill < r.Worst.Fill || r.Worst.Step < 0 {
		r.Worst = StepFill{s.Step, l.Fill}
	}
	for _, ref := range s.Samples() {
		t.sources[ref.Source].documents++
		t.sources[ref.Source].tokens += int64(ref.Length)
		t.lengths[bits.Len32(uint32(ref.Length))]++
	}
	t.values = append(t.values[:0], l.Fill, l.Fill, float64(l.Tokens), float64(l.Padding), float64(l.Documents))
	t.addSources(s)
	t.addOutliers(s)
	t.addModules(s)
	r.Timeline.add(t.values)
	t.last = s
	if err := t.addFills(s); err != nil {
		return err
	}
	return t.sizes.add(s)
}

// addSources adds what was drawn, beside what the mix asked for.
func (t *tally) addSources(s *plan.Step) {
	shares, units := t.job.scheduled(s), t.units(s)
	sum := int64(0)
	for _, n := range units {
		sum += n
	}
	for i := range t.sources {
		x := &t.sources[i]
		share, asked := 0.0, 0.0
		if i < len(units) {
			share = ratio(units[i], sum)
			x.drawn += s.Drawn[i]
			x.units += units[i]
			if s.Drawn[i] > 0 && x.first < 0 {
				x.first = s.Step
			}
		}
		if i < len(shares) {
			asked = float64(shares[i]) / (1 << mix.Bits)
			x.due += asked * float64(sum)
			if x.exhausted < 0 && asked > 0 && s.Drawn[i] == 0 && t.job.spent(i, s.After.Cursors[i]) {
				x.exhausted = s.Step
			}
		}
		t.values = append(t.values, share, asked)
	}
}

// addOutliers adds the samples whose wait for others is over.
func (t *tally) addOutliers(s *plan.Step) {
	if t.r.Outliers == nil && len(t.job.config.Outliers.Thresholds) > 0 {
		t.r.Outliers = &OutlierReport{}
	}
	o := t.r.Outliers
	for _, h := range s.Waited {
		o.Waited++
		o.Steps += float64(s.Step - h.Since)
	}
	if o != nil {
		o.Most = max(o.Most, len(s.After.Held))
	}
}

// units are what was drawn of each source, in the unit of the mix.
func (t *tally) units(s *plan.Step) []int64 {
	if t.job.config.CountSamples {
		return s.Draws
	}
	return s.Drawn
}

// spent says whether a source stands at its limit of epochs.
func (j *Job) spent(i int, cur plan.Cursor) bool {
	epochs, src := j.config.Epochs, j.sources[i]
	if epochs == 0 {
		return false
	}
	blocks := src.Order.Blocks()
	seq, at := cur.Seq, int(cur.Index)
	for ; seq < epochs*blocks; seq, at = seq+1, 0 {
		limited := src.Spec.Limit > 0 && cur.InEpoch >= src.Spec.Limit && seq/blocks == epochs-1
		if h, ok := src.held[seq]; !limited && (!ok || at < len(h.places)) {
			return false
		}
	}
	return true
}

func (t *tally) report(end int64, stepTime time.Duration) *Report {
	r := &t.r
	r.End, r.Fill = end, ratio(r.Tokens, r.Tokens+r.Padding)
	r.Mesh = t.job.config.Mesh.Canonical()
	if t.last != nil {
		r.Mesh, r.Plan = t.last.Mesh.Canonical(), fmt.Sprintf("%x", token.PlanDigest(t.last))
	}
	if end >= 0 && !t.job.config.Renormalize {
		for _, i := range t.job.core.Plan().Spent() { // one, or none
			r.ender = t.job.sources[i].Spec.Name
			if x := &t.sources[i]; x.exhausted < 0 {
				x.exhausted = end
			}
		}
	}
	t.reportSources(r)
	for i := range t.modules {
		r.Modules = append(r.Modules, t.modules[i].report())
		r.Timeline.Series = append(r.Timeline.Series, t.modules[i].timeline.Series...)
	}
	for n, documents := range t.lengths {
		if n > 0 && documents > 0 {
			r.Lengths = append(r.Lengths, Bin{1 << (n - 1), int32(1<<n - 1), documents})
		}
	}
	if o := r.Outliers; o != nil {
		o.Steps /= float64(max(o.Waited, 1))
	}
	r.Fills, r.BestFill = t.fills.report()
	r.Hops = t.hops()
	r.Memory = t.memory()
	r.Speed = t.speed(stepTime)
	r.Warnings = t.warnings()
	return r
}

func (t *tally) reportSources(r *Report) {
	var sum int64
	var due float64
	for _, x := range t.sources {
		sum += x.units
		due += x.due
	}
	for i, x := range t.sources {
		src := t.job.sources[i]
		u := &src.usage
		s := SourceReport{
			Name: src.Spec.Name, Files: len(src.Manifest.Files), Bytes: src.Manifest.Bytes(),
			Drawn: x.drawn, Tokens: x.tokens, Documents: x.documents, Share: ratio(x.units, sum), FirstStep: x.first, ExhaustedAt: x.exhausted,
			Filtered: u.Filtered, Dropped: u.Dropped, Empty: u.Empty, Skipped: u.Skipped, Samples: u.Samples,
			Absent: t.job.core.Absent(i), NoLoss: t.job.core.NoLoss(i),
		}
		if due > 0 {
			s.Scheduled = x.due / due
		}
		if u.Took > 0 {
			s.SamplesPerSecond = float64(u.Samples) / u.Took.Seconds()
		}
		if t.last != nil && i < len(t.last.After.Cursors) {
			s.Epochs = t.job.epochs(i, t.last.After.Cursors[i])
		}
		r.Sources = append(r.Sources, s)
	}
}

// epochs is how often a source was read through at a position.
func (j *Job) epochs(i int, cur plan.Cursor) float64 {
	src := j.sources[i]
	epoch, block := src.Order.Position(cur.Seq)
	if limit := src.Spec.Limit; limit > 0 {
		return float64(epoch) + ratio(cur.InEpoch, limit)
	}
	at := float64(block)
	if h, ok := src.held[cur.Seq]; ok && len(h.places) > 0 {
		at += float64(cur.Index) / float64(len(h.places))
	}
	return float64(epoch) + at/float64(src.Order.Blocks())
}
