package preview

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/internal/profile"
	"github.com/millrace-data/millrace/internal/sourceloader"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// ProfileOptions say how much is measured. Records and Workers are at least 1.
type ProfileOptions struct {
	Records int64 // of each source, about
	Workers int   // sources at a time: with more than there are idle cores, times are too long
}

// Profile measures what reading the sources of a job costs, by some records of each: the same for the same
// job. Sources are opened one after the other, as their memory is measured, and read several at a time.
func Profile(ctx context.Context, st store.Store, functions transform.Functions, job *jobspec.Job, opts ProfileOptions) (*profile.Profile, error) {
	p, shared := &profile.Profile{Job: job.Name}, transform.NewShared(job.Seed, functions)
	for first := 0; first < len(job.Sources); first += opts.Workers {
		found := make([]*profile.Source, min(opts.Workers, len(job.Sources)-first))
		opened := make([]*sourceloader.Source, len(found))
		for k := range found {
			src, state, reader, err := sourceloader.OpenMemory(ctx, st, job, first+k, shared)
			if err != nil {
				return nil, err
			}
			opened[k], found[k] = src, &profile.Source{StateBytes: state, ReaderBytes: reader}
		}
		var work errgroup.Group
		for k, src := range opened {
			work.Go(func() error {
				x, err := src.Measure(ctx, st, opts.Records)
				if err == nil {
					x.Recipe, x.StateBytes, x.ReaderBytes = profile.RecipeOf(&job.Sources[first+k]), found[k].StateBytes, found[k].ReaderBytes
					found[k] = x
				}
				return err
			})
		}
		if err := work.Wait(); err != nil {
			return nil, err
		}
		for _, x := range found {
			p.Add(*x)
		}
	}
	return p, nil
}
