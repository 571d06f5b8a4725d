package preview

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/sourceloader"
	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// Options say what to plan. Only Job is needed.
type Options struct {
	Job     *jobspec.Job
	Store   store.Store     // default: the local file system
	Changes []change.Change // made to the job, by rising step
	Workers int             // blocks read at a time; default GOMAXPROCS

	Registry compile.Registry // strategies of the program

	// Where to begin: at the position of a resume token; or at the last key frame
	// of a step log at From or before it, with the changes of the log; or, with
	// neither, at the start.
	Token  []byte
	LogDir string
	From   int64
}

// Job is a job that is ready to be planned. Run, and what reads places, is not
// safe for concurrent use.
type Job struct {
	spec    *jobspec.Job
	store   *store.Metered
	workers int
	dry     *planner.Dry
	config  plan.Config
	start   plan.State
	sources []*source
	total   Usage      // what all sources hold
	core    *plan.Core // of the run
}

// source is a source and what this run has read of it.
type source struct {
	*sourceloader.Source
	number int
	idle   sync.Pool // of *transform.Worker
	bans   sourceloader.Bans
	held   map[int64]held          // blocks that steps to come may need
	again  map[int64][]order.Place // of blocks that were read for Place
	usage  Usage
}

// held is what stays of a block when its tokens are gone.
type held struct {
	places []order.Place
	bytes  int64 // that a loader would hold
	beside []beside
}

// Open indexes the sources of a job and finds where to begin. Errors of class
// fault.User say what is wrong with the spec, the data, a change, the token or the
// log.
func Open(ctx context.Context, opts Options) (*Job, error) {
	if opts.Store == nil {
		opts.Store = store.Local{}
	}
	if opts.Workers <= 0 {
		opts.Workers = runtime.GOMAXPROCS(0)
	}
	j := &Job{spec: opts.Job, store: store.NewMetered(opts.Store), workers: opts.Workers}
	tokenizers := transform.NewTokenizers()
	var err error
	j.dry, err = planner.NewDry(opts.Job, opts.Registry, func(i int, spec jobspec.Source) (*pb.SourceIndexed, error) {
		return j.index(ctx, i, spec, tokenizers)
	})
	if err != nil {
		return nil, err
	}
	token, changes := opts.Token, opts.Changes
	if opts.LogDir != "" {
		if token, changes, err = fromLog(opts.LogDir, j.dry.Root(), opts.From); err != nil {
			return nil, err
		}
	}
	if j.start, err = j.dry.Position(token, changes); err != nil {
		return nil, err
	}
	if j.config, err = j.dry.Config(); err != nil {
		return nil, err
	}
	for _, s := range j.sources {
		if s.bans, err = s.Banned(uint32(s.number), j.dry.Bans()); err != nil {
			return nil, fault.As(fault.User, err)
		}
	}
	return j, nil
}

// index opens source i, in place of one of that number that could not join.
func (j *Job) index(ctx context.Context, i int, spec jobspec.Source, tokenizers *transform.Tokenizers) (*pb.SourceIndexed, error) {
	job := *j.spec
	job.Sources = []jobspec.Source{spec}
	src, err := sourceloader.Open(ctx, j.store, &job, 0, tokenizers)
	if err != nil {
		return nil, err
	}
	j.sources = append(j.sources[:i], &source{Source: src, number: i, held: map[int64]held{}, again: map[int64][]order.Place{}})
	digest := src.Manifest.Digest()
	return &pb.SourceIndexed{
		Source: uint32(i), Blocks: uint64(src.Order.Blocks()), Manifest: digest[:],
		Files: uint64(len(src.Manifest.Files)), Bytes: uint64(src.Manifest.Bytes()),
	}, nil
}

// fromLog reads the last key frame at a step or before it, if there is one, and
// the changes of a step log. That the log is this job's is seen by the frame.
func fromLog(dir string, root [32]byte, step int64) (frame []byte, changes []change.Change, err error) {
	log, err := checkpoint.Open(dir, checkpoint.Options{Identity: root, ReadOnly: true})
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	texts, err := log.Changes()
	if err != nil {
		return nil, nil, err
	}
	if changes, err = change.ParseAll(texts); err != nil {
		return nil, nil, err
	}
	change.Sort(changes)
	if _, ok := log.Last(); !ok {
		return nil, nil, fault.Userf("the step log in %s holds no step", dir)
	}
	if _, frame, _, err = log.Frame(step); err != nil {
		return nil, nil, fmt.Errorf("finding where to begin: %w", err)
	}
	return frame, changes, nil
}

// Root is the chain value before the first step of the job; its step log has it
// as its identity.
func (j *Job) Root() [32]byte { return j.dry.Root() }

// Start is the first step that Run plans.
func (j *Job) Start() int64 { return j.start.Step }

// Sources are the names of the sources, those that join among them.
func (j *Job) Sources() []string {
	names := make([]string, len(j.sources))
	for i, s := range j.sources {
		names[i] = s.Spec.Name
	}
	return names
}
