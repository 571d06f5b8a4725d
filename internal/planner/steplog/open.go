package steplog

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/checkpoint/mirror"
	"github.com/millrace-data/millrace/internal/object"
	"github.com/millrace-data/millrace/internal/planner/token"
)

// Prove finds out, before anyone is served, whether the log can be written. A planner that stands by waits until it is
// known: only what is wrong with the folder, the mirror or the rights to them is an error then, and a mirror of another job.
func (o *Options) Prove(ctx context.Context) error {
	if err := o.outlast(ctx, func() error { return o.prove(ctx) }); err != nil || !o.Standby || o.Mirror == "" || ctx.Err() != nil {
		return err
	}
	store, err := object.OpenProved(o.Mirror)
	if err != nil {
		return err
	}
	return mirror.CheckJob(ctx, mirror.Options{Store: store, Log: o.logOptions()}) // what cannot be known yet, Take finds out
}

// errOtherJob is wrapped by the error for a log of another job.
var errOtherJob = errors.New("belongs to another job")

// accept refuses the log of another job by one of its key frames. Which data the job has, nobody knows yet.
func (o *Options) accept(frame []byte) error {
	spec, ok := token.Spec(frame)
	if !ok || o.Spec == [32]byte{} || spec == o.Spec {
		return nil
	}
	return fmt.Errorf("%w, with spec %x; this planner's is %x, as `millrace lint` prints it", errOtherJob, spec[:6], o.Spec[:6])
}

func (o *Options) prove(ctx context.Context) error {
	if err := mirror.CheckApart(o.Dir, o.Mirror); err != nil {
		return err
	}
	if o.Dir != "" { // the log is opened when all sources are indexed
		if err := checkpoint.Probe(o.Dir, checkpoint.Options{FS: o.FS}); err != nil {
			return err
		}
	}
	if o.Mirror == "" {
		return nil
	}
	open := object.Open
	if o.Proved {
		open = object.OpenProved
	}
	store, err := open(o.Mirror)
	if err != nil {
		return err
	}
	if err := object.Prove(ctx, store, "probe/"); err != nil {
		return fmt.Errorf("trying the mirror of the log: %w", err)
	}
	return nil
}

// openLog opens the log of the job with this identity, and its mirror if it has one.
func (o *Options) openLog(identity [32]byte) (checkpoint.Log, error) {
	opts := o.logOptions()
	opts.Identity = identity
	if o.Mirror == "" {
		return checkpoint.Open(o.Dir, opts)
	}
	store, err := object.OpenProved(o.Mirror)
	if err != nil {
		return nil, err
	}
	log, err := mirror.Open(context.Background(), mirror.Options{Dir: o.Dir, Log: opts, Store: store})
	if err != nil {
		return nil, err
	}
	return log, nil
}

// resumeLog opens the log that is there, whichever job's it is, and returns its identity; nil
// if there is none.
func (o *Options) resumeLog(ctx context.Context) (checkpoint.Log, [32]byte, error) {
	if o.Mirror == "" {
		return checkpoint.Resume(o.Dir, o.logOptions())
	}
	store, err := object.OpenProved(o.Mirror)
	if err != nil {
		return nil, [32]byte{}, err
	}
	log, identity, err := mirror.Resume(ctx, mirror.Options{Dir: o.Dir, Log: o.logOptions(), Store: store})
	if log == nil {
		return nil, identity, err
	}
	return log, identity, err
}

// awaitMirror finds the mirror free, before anything of the log is opened: a planner that stands by waits until nobody
// writes it any more, or ctx ends, and any other is refused if somebody does. It returns the slot of the mirror that
// came next.
func (o *Options) awaitMirror(ctx context.Context) (head uint64, err error) {
	store, err := object.OpenProved(o.Mirror)
	if err != nil {
		return 0, err
	}
	if !o.Standby {
		return mirror.CheckFree(ctx, mirror.Options{Dir: o.Dir, Log: o.logOptions(), Store: store})
	}
	o.Logger.Info("standing by: this planner serves when nobody writes the log in the mirror any more", "mirror", store.String())
	trouble := func(err error) {
		switch {
		case err == nil:
			o.Logger.Warn("the mirror can be read again: this planner goes on standing by", "mirror", store.String())
			return
		case errors.Is(err, errOtherJob):
			o.Logger.Warn("this planner goes on standing by, and does not take over another job: start it again with the spec of the planner that it stands by for", "err", err)
			return
		}
		o.Logger.Warn("this planner stands by and cannot read the mirror now: it cannot take over until that can be read again", "mirror", store.String(), "err", err)
	}
	if head, err = mirror.AwaitFree(ctx, mirror.Options{Dir: o.Dir, Log: o.logOptions(), Store: store}, trouble); ctx.Err() != nil {
		return 0, nil
	}
	if err == nil {
		o.Logger.Info(msgFree, "mirror", store.String())
	}
	return head, err
}

// msgFree is what is logged then.
const msgFree = "nobody writes the log any more: taking over"

func (o *Options) logOptions() checkpoint.Options {
	return checkpoint.Options{Logger: o.Logger, FS: o.FS, Accept: o.accept}
}
