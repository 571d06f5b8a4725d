package planner

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace-data/millrace/internal/profile"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/jobspec"
)

const (
	// keepEvery is how often what was learned is written: a crash loses no more than that, and a few
	// kilobytes a minute are nothing beside the log.
	keepEvery = time.Minute
	// remembered is how many records of a source an earlier life of the job counts for: some seconds of
	// reading outweigh them.
	remembered = 10000
)

// learned is what the sources of the job cost, as loaders say. It is kept beside the log for the next start,
// and decides nothing here. It is safe for concurrent use.
type learned struct {
	dir     string // of the log; "": it is not kept
	log     *slog.Logger
	sources []jobspec.Source
	recipes []string

	mu      sync.Mutex // guards the fields below
	profile profile.Profile
	changed bool
}

// newLearned goes on from what is kept of an earlier life, if that can be read.
func newLearned(opts *Options) *learned {
	l := &learned{dir: opts.LogDir, log: opts.Log, sources: opts.Job.Sources, profile: profile.Profile{Job: opts.Job.Name}}
	for i := range l.sources {
		l.recipes = append(l.recipes, profile.RecipeOf(&l.sources[i]))
	}
	if opts.LogFS != nil { // the folder is not one of this machine
		l.dir = ""
	}
	if l.dir == "" {
		return l
	}
	switch p, err := profile.Read(l.dir); {
	case err == nil:
		p.Fade(remembered)
		l.profile = *p
	case !errors.Is(err, fs.ErrNotExist):
		l.log.Warn("what was learned of the sources' costs is not used", "err", err)
	}
	return l
}

// add takes in what a loader says. Sources that joined the job later are not of its spec, and not kept.
func (l *learned) add(costs []*pb.SourceCosts) {
	if len(costs) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range costs {
		if int(x.Source) >= len(l.sources) {
			continue
		}
		s := profile.Source{
			Name: l.sources[x.Source].Name, Recipe: l.recipes[x.Source], Records: int64(x.Records), Samples: int64(x.Samples), Tokens: int64(x.Tokens),
			Bytes: int64(x.Bytes), Seconds: x.Seconds, BlockBytes: int64(x.BlockBytes),
		}
		for _, st := range x.Stages {
			s.Stages = append(s.Stages, profile.Stage{Name: st.Name, Seconds: st.Seconds, Bytes: int64(st.Bytes)})
		}
		l.profile.Add(s)
		l.changed = true
	}
}

// cost is what a token of a source of the job costs, or a sample of it; 0 if that is not known.
func (l *learned) cost(source int, sample bool) float64 {
	if source >= len(l.sources) {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.profile.Of(&l.sources[source])
	switch {
	case s == nil:
		return 0
	case sample:
		return s.PerSample()
	}
	return s.PerToken()
}

// keep writes what was learned now and then until ctx ends. What it returns waits for that, and writes for the
// last time.
func (l *learned) keep(ctx context.Context) (end func()) {
	if l.dir == "" {
		return func() {}
	}
	ctx, stop := context.WithCancel(ctx)
	var writing sync.WaitGroup
	writing.Go(func() {
		tick := time.NewTicker(keepEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				l.write()
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		stop()
		writing.Wait()
		l.write()
	}
}

// write writes what was learned, if that is more than is written. It is called by one goroutine at a time.
func (l *learned) write() {
	l.mu.Lock()
	if !l.changed {
		l.mu.Unlock()
		return
	}
	l.changed = false
	data, err := l.profile.Encode()
	l.mu.Unlock()
	if err == nil {
		err = profile.WriteTo(l.dir, data)
	}
	if err != nil {
		l.log.Warn("what was learned of the sources' costs is not kept", "err", err)
	}
}
