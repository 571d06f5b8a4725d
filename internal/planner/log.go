package planner

import (
	"context"
	"errors"
	"sync"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/token"
	"github.com/millrace-data/millrace/internal/rpc"
)

// logWriter keeps the job's log on a goroutine of its own, so that no write to a disk runs
// in the loop. It does what it is given in order, and what it has done becomes events.
type logWriter struct {
	opts  Options
	event func(context.Context, input) error
	todo  *rpc.Outbox[any] // effects of the core; nil is the last
	ended chan struct{}    // closed when nothing more is written
	work  sync.WaitGroup
	log   checkpoint.Log // the goroutine's, until it has ended; nil while it is not open, or if none is kept
	job   token.Job
}

var errLastWrite = errors.New("nothing more is written")

func newLogWriter(opts Options, event func(context.Context, input) error) *logWriter {
	w := &logWriter{opts: opts, event: event, todo: rpc.NewOutbox[any](), ended: make(chan struct{})}
	w.work.Go(func() { _ = w.todo.Run(context.Background(), w.do) }) // it ends with errLastWrite
	return w
}

// put gives the writer an effect: OpenLog, Persist or ReadDigest.
func (w *logWriter) put(e control.Effect) { w.todo.Put(e) }

// close ends the writer when all that it was given is done, and closes the log.
func (w *logWriter) close() error {
	w.todo.Put(nil)
	w.work.Wait()
	if w.log == nil {
		return nil
	}
	return w.log.Close()
}

// do carries out an effect. When there is no planner any more, nobody hears of it.
func (w *logWriter) do(e any) error {
	var done control.Event
	switch e := e.(type) {
	case nil:
		close(w.ended)
		return errLastWrite
	case control.OpenLog:
		w.job = e.Job
		done = w.open(e.Root)
	case control.Persist:
		done = control.Persisted{Seq: e.Seq, Err: w.persist(e.Ops)}
	case control.ReadDigest:
		digest, known, err := w.log.ReadDigest(e.Step)
		done = control.DigestRead{Step: e.Step, Digest: digest, Known: known && err == nil} // the log says itself what is wrong with it when it is written to
	}
	_ = w.event(context.Background(), occurred{done})
	return nil
}

// open opens the log and reads the changes of its earlier life.
func (w *logWriter) open(root [32]byte) control.LogOpened {
	if w.opts.LogDir == "" {
		return control.LogOpened{}
	}
	opened := control.LogOpened{Kept: true, Dir: w.opts.LogDir}
	log, err := checkpoint.Open(w.opts.LogDir, checkpoint.Options{Identity: root, Logger: w.opts.Log, FS: w.opts.LogFS})
	if err != nil {
		opened.Err = err
		return opened
	}
	w.log = log
	w.work.Go(w.watch)
	texts, err := log.Changes()
	if err == nil {
		opened.Changes, err = change.ParseAll(texts)
	}
	opened.Err = err
	if last, ok := log.Last(); ok {
		opened.First, _ = log.First()
		opened.Next = last + 1
	}
	return opened
}

// persist makes operations durable, in order.
func (w *logWriter) persist(ops []control.Op) (err error) {
	for _, op := range ops {
		switch op := op.(type) {
		case control.AppendStep:
			var frame []byte
			if w.log.FrameDue(op.Step.Step) {
				frame = token.EncodeFrame(w.job, op.Before)
			}
			record := token.NewRecord(op.Step, op.Before)
			record.Skips = op.Skips
			err = w.log.Append(op.Step.Step, record.Encode(), frame)
		case control.AddChange:
			err = w.log.AddChange([]byte(op.Change.String()))
		case control.SetDigest:
			err = w.log.SetDigest(op.Step, op.Digest)
		case control.Truncate:
			err = w.log.Truncate(op.From)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// watch hears when the log stops, whether there is something to write or not, until the
// planner ends.
func (w *logWriter) watch() {
	select {
	case <-w.log.Stopped():
		_ = w.event(context.Background(), occurred{control.Persisted{Err: w.log.Err()}})
	case <-w.ended:
	}
}
