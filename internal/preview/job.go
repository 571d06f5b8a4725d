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
	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/wire"
	"github.com/millrace-data/millrace/internal/sourceloader"
	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/store/bucket"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// Options say what to plan. Only Job is needed.
type Options struct {
	Job     *jobspec.Job
	Store   store.Store     // default: the local file system, and buckets
	Changes []change.Change // made to the job, by rising step
	Workers int             // blocks read at a time; default GOMAXPROCS

	Registry  compile.Registry    // strategies of the program
	Functions transform.Functions // of sources; nil: there are none

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
	config  plan.Config
	core    *control.Core
	effects []control.Effect // of the core, to be carried out by Run
	start   int64            // the first step
	sources []*source
	total   Usage // what all sources hold
}

// source is a source and what this run has read of it.
type source struct {
	*sourceloader.Source
	number int
	idle   sync.Pool // of *transform.Worker
	bans   sourceloader.Bans
	held   map[int64]held // blocks that steps to come may need
	again  map[int64]held // blocks that were read for Place
	usage  Usage
}

// held is what stays of a block when its tokens are gone.
type held struct {
	places []order.Place
	masked [][]int32 // see sourceloader.Outline
	bytes  int64     // that a loader would hold
	beside []sourceloader.Beside
}

// Open indexes the sources of a job and finds where to begin. Errors of class
// fault.User say what is wrong with the spec, the data, a change, the token or the
// log.
func Open(ctx context.Context, opts Options) (*Job, error) {
	if opts.Store == nil {
		opts.Store = bucket.ForCommand("")
	}
	if opts.Workers <= 0 {
		opts.Workers = runtime.GOMAXPROCS(0)
	}
	j := &Job{spec: opts.Job, store: store.NewMetered(opts.Store), workers: opts.Workers}
	cfg, err := planner.CoreConfig(opts.Job, opts.Registry)
	if err != nil {
		return nil, err
	}
	j.config, j.core = cfg.Plan, control.New(cfg)
	if err := j.begin(ctx, opts); err != nil {
		return nil, err
	}
	if err := j.findBanned(opts.Changes); err != nil {
		return nil, err
	}
	bans := wire.BanMessages(j.core.BannedRecords())
	for _, s := range j.sources {
		if s.bans, err = s.Banned(uint32(s.number), bans); err != nil {
			return nil, fault.As(fault.User, err)
		}
	}
	return j, nil
}

// findBanned looks for the files of banned records, and names the change that bans one of no file.
func (j *Job) findBanned(changes []change.Change) error {
	for _, c := range changes {
		for _, s := range j.sources {
			if c.Ban == nil || c.Ban.Source != s.Spec.Name {
				continue
			}
			if _, err := s.Manifest.Find(c.Ban.File); err != nil {
				return fault.As(fault.User, fmt.Errorf("%sthe change %s: source %q: %w", c.Origin, c, s.Spec.Name, err))
			}
		}
	}
	return nil
}

// self is this process, the only loader of its core.
const self control.Session = 1

// begin does what the core asks for until it plans: sources are indexed, and it hears
// where the job begins.
func (j *Job) begin(ctx context.Context, opts Options) error {
	shared := transform.NewShared(j.spec.Seed, opts.Functions)
	effects := j.core.Apply(control.LoaderJoined{Session: self, Name: "preview", Address: "preview"})
	for ; len(effects) > 0; effects = effects[1:] {
		var ev control.Event
		var err error
		switch e := effects[0].(type) {
		case control.Index:
			ev, err = j.index(ctx, e.Source, j.core.Sources()[e.Source], shared)
			if e.Source >= len(j.spec.Sources) && err != nil && fault.ClassOf(err) == fault.User {
				ev, err = control.LoaderFailed{Session: self, Source: e.Source, Block: -1, Err: err}, nil // the core says which change adds it
			}
		case control.OpenLog:
			at := control.Begin{Token: opts.Token, Changes: opts.Changes}
			if opts.LogDir != "" {
				at.Token, at.Changes, err = fromLog(opts.LogDir, e.Root, opts.From)
			}
			ev = at
		case control.Failing:
			err = e.Err
		default:
			j.effects = append(j.effects, e)
		}
		if err != nil {
			return err
		}
		if ev != nil {
			effects = append(effects, j.core.Apply(ev)...)
		}
	}
	j.start = j.core.Plan().Acked()
	return nil
}

// index opens source i, in place of one of that number that could not join.
func (j *Job) index(ctx context.Context, i int, spec jobspec.Source, shared *transform.Shared) (control.Event, error) {
	job := *j.spec
	job.Sources = []jobspec.Source{spec}
	src, err := sourceloader.Open(ctx, j.store, &job, 0, shared)
	if err != nil {
		return nil, err
	}
	j.sources = append(j.sources[:i], &source{Source: src, number: i, held: map[int64]held{}, again: map[int64]held{}})
	digest := src.Manifest.Digest()
	return control.Indexed{
		Session: self, Source: i, Blocks: uint64(src.Order.Blocks()), Manifest: digest[:],
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
	if changes, err = ChangesOf(log); err != nil {
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
func (j *Job) Root() [32]byte { return j.core.Root() }

// Start is the first step that Run plans.
func (j *Job) Start() int64 { return j.start }

// Sources are the names of the sources, those that join among them.
func (j *Job) Sources() []string {
	names := make([]string, len(j.sources))
	for i, s := range j.sources {
		names[i] = s.Spec.Name
	}
	return names
}
