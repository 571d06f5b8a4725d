package preview

import (
	"cmp"
	"fmt"
	"math"
)

// Limits beyond which a report warns.
const (
	warnFill    = 0.99 // of all rows
	warnShare   = 0.01 // of the mix: how far a source is from its schedule
	warnEpochs  = 4    // epochs after which repeating is known to cost (Muennighoff et al., 2023)
	warnBalance = 1.10 // the fullest rank over the mean one
	warnItem    = 1.01 // the least that any placing has of it
	warnLost    = 0.01 // of the records read
)

// warnings are what a person should look at before the job runs.
func (t *tally) warnings() []string {
	var all []string
	warn := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	r := &t.r
	if r.Steps == 0 {
		warn("no step: the data ends before step %d", r.First)
		return all
	}
	switch {
	case r.ender != "":
		warn("the data ends after %s, where source %q is exhausted (mix.exhausted: stop)", Count(r.End, "step"), r.ender)
	case r.End >= 0:
		warn("the data ends after %s", Count(r.End, "step"))
	}
	if full := float64(cmp.Or(t.job.spec.Batch.Fill, 1000)) / 1000; r.Fill < warnFill*full {
		warn("rows are %.2f %% full, the worst step (%d) %.2f %%: more rows in a step, longer ones, or splitting long documents help", 100*r.Fill, r.Worst.Step, 100*r.Worst.Fill)
	}
	for i := range r.Sources {
		r.Sources[i].warnings(r.ender, warn)
	}
	if n, most := repeated(r.Sources); n > 0 {
		warn("%d sources are read more than %d times, most often %q, %.1f times: beyond that repeated data is worth less than new", n, warnEpochs, most.Name, most.Epochs)
	}
	for _, m := range r.Modules {
		if m.Mean > warnBalance {
			warn("%s: the fullest rank has %.2f times the mean, on average over steps; at worst %.2f, in step %d", m.Name, m.Mean, m.Worst, m.WorstStep)
		}
		m.warnings(warn)
	}
	t.warnFills(warn)
	t.warnMemory(warn)
	if t.job.spec.Mix.Feedback.Policy != "none" && t.job.spec.Mix.Feedback.Policy != "" {
		warn("mix.feedback moves the weights by losses, which no plan knows: shares are those of the schedule")
	}
	return all
}

// warnMemory compares what roles hold with their budgets. That of loaders is both
// their memory and their disk.
func (t *tally) warnMemory(warn func(format string, args ...any)) {
	for _, m := range t.r.Memory {
		switch m.Role {
		case "loaders":
			m.Budget += t.job.spec.Resources.LoaderDisk
		case "loaders' disk":
			continue
		}
		if m.Budget > 0 && m.Bytes > m.Budget {
			warn("%s hold %.0f MiB at most, the budget of one is %.0f MiB: have %d, or a larger one, or blocks are read again", m.Role, mib(m.Bytes), mib(m.Budget), (m.Bytes+m.Budget-1)/m.Budget)
		}
	}
}

// repeated counts the sources that are read too often, and finds the worst.
func repeated(sources []SourceReport) (n int, most SourceReport) {
	for _, s := range sources {
		if s.Epochs > warnEpochs {
			n++
		}
		if s.Epochs > most.Epochs {
			most = s
		}
	}
	return n, most
}

// warnings are those about a source. That it ends the data is said already.
func (s *SourceReport) warnings(ender string, warn func(format string, args ...any)) {
	switch {
	case s.ExhaustedAt >= 0 && s.Name != ender:
		warn("source %q is exhausted at step %d", s.Name, s.ExhaustedAt)
	case s.FirstStep < 0:
		warn("source %q is never drawn (the mix asks for %.2f %%)", s.Name, 100*s.Scheduled)
	case math.Abs(s.Share-s.Scheduled) > warnShare:
		warn("source %q has %.2f %% of what was drawn, the mix asks for %.2f %%", s.Name, 100*s.Share, 100*s.Scheduled)
	}
	for _, a := range s.Absent {
		warn("source %q: %s", s.Name, a)
	}
	if s.NoLoss != nil && s.NoLoss.All() {
		warn("source %q: %s", s.Name, s.NoLoss)
	}
	if lost := s.Dropped + s.Skipped; ratio(lost, lost+s.Samples) > warnLost {
		warn("source %q loses %d of %d records: %d are too long, %d are bad", s.Name, lost, lost+s.Samples, s.Dropped, s.Skipped)
	}
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
