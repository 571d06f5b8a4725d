package scaling

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

// Costs are what the sources of the job cost, as loaders say. It is kept beside the log for the next start,
// and decides nothing here. It is safe for concurrent use.
type Costs struct {
	dir     string // of the log; "": it is not kept
	log     *slog.Logger
	sources []jobspec.Source
	recipes []string

	mu      sync.Mutex // guards the fields below
	profile profile.Profile
	changed bool
}

// NewCosts goes on from what an earlier life of the job kept in a folder, if that can be read. Without a
// folder nothing is kept.
func NewCosts(job *jobspec.Job, dir string, log *slog.Logger) *Costs {
	c := &Costs{dir: dir, log: log, sources: job.Sources, profile: profile.Profile{Job: job.Name}}
	for i := range c.sources {
		c.recipes = append(c.recipes, profile.RecipeOf(&c.sources[i]))
	}
	if c.dir == "" {
		return c
	}
	switch p, err := profile.Read(c.dir); {
	case err == nil:
		p.Fade(remembered)
		c.profile = *p
	case !errors.Is(err, fs.ErrNotExist):
		c.log.Warn("what was learned of the sources' costs is not used", "err", err)
	}
	return c
}

// Add takes in what a loader says. Sources that joined the job later are not of its spec, and not kept.
func (c *Costs) Add(costs []*pb.SourceCosts) {
	if len(costs) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range costs {
		if int(x.Source) >= len(c.sources) {
			continue
		}
		s := profile.Source{
			Name: c.sources[x.Source].Name, Recipe: c.recipes[x.Source], Records: int64(x.Records), Samples: int64(x.Samples), Tokens: int64(x.Tokens),
			Bytes: int64(x.Bytes), Seconds: x.Seconds, CPU: x.Computed, BlockBytes: int64(x.BlockBytes),
		}
		for _, st := range x.Stages {
			s.Stages = append(s.Stages, profile.Stage{Name: st.Name, Seconds: st.Seconds, Bytes: int64(st.Bytes)})
		}
		c.profile.Add(s)
		c.changed = true
	}
}

// of is what a token of a source of the job costs, or a sample of it; 0 if that is not known.
func (c *Costs) of(source int, sample bool) float64 {
	if source >= len(c.sources) {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.profile.Of(&c.sources[source])
	switch {
	case s == nil:
		return 0
	case sample:
		return s.PerSample()
	}
	return s.PerToken()
}

// Keep writes what was learned now and then until ctx ends. What it returns waits for that, and writes for the
// last time.
func (c *Costs) Keep(ctx context.Context) (end func()) {
	if c.dir == "" {
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
				c.write()
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		stop()
		writing.Wait()
		c.write()
	}
}

// write writes what was learned, if that is more than is written. It is called by one goroutine at a time.
func (c *Costs) write() {
	c.mu.Lock()
	if !c.changed {
		c.mu.Unlock()
		return
	}
	c.changed = false
	data, err := c.profile.Encode()
	c.mu.Unlock()
	if err == nil {
		err = profile.WriteTo(c.dir, data)
	}
	if err != nil {
		c.log.Warn("what was learned of the sources' costs is not kept", "err", err)
	}
}
