package main

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/sizing"
	"github.com/millrace-data/millrace/jobspec"
)

// handMade are layouts that a person would try: some loaders, with some workers each, and who reads what.
var handMade = func() (all []layoutShape) {
	for _, workers := range []int{1, 2, 4} {
		all = append(all, layoutShape{1, workers, "dealt"})
		for _, loaders := range []int{3, 6, 12} {
			for _, deal := range []string{"dealt", "shared", "by kind"} {
				all = append(all, layoutShape{loaders, workers, deal})
			}
		}
	}
	return all
}()

// layoutShape is a layout by hand: sources are dealt in turn, all are read by each loader, or each kind has as many loaders.
type layoutShape struct {
	loaders, workers int
	deal             string
}

// handMade are n of the layouts by hand, spread over all of them.
func (b *shifting) handMade(n int) (trials []shiftingTrial) {
	n = min(max(n, 1), len(handMade))
	for i := range n {
		x := handMade[i*len(handMade)/n]
		l := dealt(b.short.job, x.loaders, x.workers)
		switch x.deal {
		case "shared":
			for k := range l.Loaders {
				l.Loaders[k].Sources = service.SourceNames(b.short.job)
			}
		case "by kind":
			l = b.byKind(x.loaders, x.workers)
		}
		trials = append(trials, shiftingTrial{name: fmt.Sprintf("%d loaders, %d workers each, %s", x.loaders, x.workers, x.deal), args: serveArgs{Layout: l}})
	}
	return trials
}

// dealt deals the sources of a job to loaders in turn.
func dealt(job *jobspec.Job, loaders, workers int) *sizing.Layout {
	l := &sizing.Layout{Loaders: make([]sizing.Loader, loaders)}
	for i := range l.Loaders {
		l.Loaders[i].Workers = workers
	}
	for i, name := range service.SourceNames(job) {
		x := &l.Loaders[i%loaders]
		x.Sources = append(x.Sources, name)
	}
	return l
}

// byKind gives each kind as many loaders, which share its sources.
func (b *shifting) byKind(loaders, workers int) *sizing.Layout {
	l := &sizing.Layout{}
	for _, k := range b.kinds {
		var names []string
		for i := range k.sources {
			names = append(names, k.source(i))
		}
		for range loaders / len(b.kinds) {
			l.Loaders = append(l.Loaders, sizing.Loader{Workers: workers, Sources: names})
		}
	}
	return l
}

// sizeOf are the workers and the MiB for samples of a layout.
func sizeOf(l *sizing.Layout, job *jobspec.Job) (workers, buffers float64) {
	for _, x := range l.Loaders {
		workers += float64(x.Workers)
	}
	return workers, float64(l.Buffer(job.Resources.LoaderBuffer)) / (1 << 20)
}
