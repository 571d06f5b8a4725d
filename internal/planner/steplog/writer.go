package steplog

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/checkpoint/mirror"
	"github.com/millrace-data/millrace/internal/failpoint"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
	"github.com/millrace-data/millrace/internal/rpc"
)

// Writer keeps the job's log on a goroutine of its own, so that no write to a disk runs
// in the loop. It does what it is given in order, and what it has done becomes events.
type Writer struct {
	opts  Options
	event func(control.Event)
	todo  *rpc.Outbox[any] // effects of the core; nil is the last
	ended chan struct{}    // closed when nothing more is written
	work  sync.WaitGroup
	log   checkpoint.Log // the goroutine's, until it has ended; nil while it is not open, or if none is kept

	taken  Taken
	mirror atomic.Pointer[mirror.Log] // of log; nil if it has none, or is not open
	job    token.Job
	plan   plan.Config
	frames frames
	again  replanned
	slow   bool // a write was said to take long; of who calls Slow
}

var errLastWrite = errors.New("nothing more is written")

// NewWriter starts a writer of the log that was taken. It calls event, on its goroutine, with
// what it has done.
func NewWriter(opts Options, from Taken, event func(control.Event)) *Writer {
	w := &Writer{opts: opts, taken: from, again: replanned{dir: opts.Dir}, event: event, todo: rpc.NewOutbox[any](), ended: make(chan struct{})}
	w.work.Go(func() { _ = w.todo.RunAll(context.Background(), w.doAll) }) // it ends with errLastWrite
	return w
}

// Put gives the writer an effect: OpenLog, Persist, ReadDigest or ReadLog.
func (w *Writer) Put(e control.Effect) { w.todo.Put(e) }

// Close ends the writer when all that it was given is done, and closes the log.
func (w *Writer) Close() error {
	w.todo.Put(nil)
	w.work.Wait()
	switch {
	case w.log != nil:
		return w.log.Close()
	case w.taken.log != nil:
		return w.taken.log.Close()
	}
	return nil
}

// Refused is how many writes to the mirror of the log were refused, of all planners of the job,
// since another one had taken over. Any goroutine may ask.
func (w *Writer) Refused() uint64 {
	if m := w.mirror.Load(); m != nil {
		return m.Refused()
	}
	return 0
}

// doAll carries out effects in order: all Persists that follow each other are one write.
func (w *Writer) doAll(queue []any) error {
	for len(queue) > 0 {
		n := 0
		for n < len(queue) && isPersist(queue[n]) {
			n++
		}
		if n > 0 {
			w.persist(queue[:n])
		} else if err := w.do(queue[0]); err != nil {
			return err
		}
		queue = queue[max(n, 1):]
	}
	return nil
}

func isPersist(e any) bool { _, ok := e.(control.Persist); return ok }

// do carries out an effect.
func (w *Writer) do(e any) error {
	var done control.Event
	switch e := e.(type) {
	case nil:
		close(w.ended)
		return errLastWrite
	case control.OpenLog:
		w.job, w.plan = e.Job, e.Plan
		done = w.open(e.Root)
	case control.ReadLog:
		done = w.read(e)
	case control.ReadDigest:
		digest, known, err := w.log.ReadDigest(e.Step)
		done = control.DigestRead{Step: e.Step, Digest: digest, Known: known && err == nil} // the log says itself what is wrong with it when it is written to
	}
	w.tell(done)
	return nil
}

// tell says what was done, or that the log has stopped: it was done with a log that counts no more then. One that another
// planner took over while it was opened has stopped, too.
func (w *Writer) tell(done control.Event) {
	opened, _ := done.(control.LogOpened)
	switch {
	case w.log != nil && w.log.Err() != nil:
		done = control.LogStopped{Err: w.log.Err()}
	case errors.Is(opened.Err, checkpoint.ErrDeposed):
		done = control.LogStopped{Err: opened.Err}
	}
	w.event(done)
}

// open opens the log and reads the changes of its Taken life.
func (w *Writer) open(root [32]byte) control.LogOpened {
	if w.opts.Dir == "" {
		return control.LogOpened{}
	}
	opened := control.LogOpened{Kept: true, Dir: w.opts.Dir}
	log, err := w.openLog(root)
	if err != nil {
		opened.Err = err
		return opened
	}
	w.log = log
	if m, ok := log.(*mirror.Log); ok {
		w.mirror.Store(m)
	}
	w.work.Go(w.watch)
	texts, err := log.Changes()
	if err == nil {
		opened.Changes, err = change.ParseAll(texts)
	}
	generations, errGenerations := log.Generations()
	for _, g := range generations {
		opened.Generations = append(opened.Generations, control.Generation(g))
	}
	opened.Err = cmp.Or(err, errGenerations, w.frames.resume(log), w.again.resume(log))
	failpoint.Hit(failpoint.OpenAfter)
	opened.Trimmed = log.Trimmed()
	if last, ok := log.Last(); ok {
		opened.First, _ = log.First()
		opened.Next = last + 1
	}
	return opened
}

// persist makes the operations of Persists durable, in order.
func (w *Writer) persist(all []any) {
	var g group
	var err error
	for _, e := range all {
		for _, op := range e.(control.Persist).Ops {
			if err == nil && g.ends(w.log, op) {
				err = g.write(w.log)
			}
			if err == nil {
				err = w.add(&g, op)
			}
		}
	}
	if err == nil {
		err = g.write(w.log)
	}
	if err == nil {
		err = w.frames.tryReading(w.log)
	}
	for _, e := range all {
		w.tell(control.Persisted{Seq: e.(control.Persist).Seq, Err: err})
	}
}

// add puts an operation of the core into a group.
func (w *Writer) add(g *group, op control.Op) (err error) {
	switch op := op.(type) {
	case control.AppendStep:
		err = w.append(g, op)
	case control.AddChange:
		failpoint.Hit(failpoint.Change)
		g.ops = append(g.ops, checkpoint.AddChange{Change: []byte(op.Change.String())})
	case control.SetDigest:
		failpoint.Hit(failpoint.DigestBefore)
		err = w.again.digest(op.Step, op.Digest)
		g.ops = append(g.ops, checkpoint.SetDigest{Step: op.Step, Digest: op.Digest})
	case control.Truncate:
		var leave []checkpoint.Op
		leave, err = checkpoint.GoOn(w.log, op.From, op.Digest)
		g.ops, g.branches = append(g.ops, leave...), true
	case control.Trim:
		failpoint.Hit(failpoint.TrimBefore)
		g.ops = append(g.ops, checkpoint.Trim{Before: op.Before})
	case control.BeginGeneration:
		g.ops = append(g.ops, checkpoint.SetGeneration{Generation: checkpoint.Generation(op.Generation)})
	}
	return err
}

func (w *Writer) append(g *group, op control.AppendStep) error {
	record := token.NewRecord(op.Step, op.Before)
	record.Skips = op.Skips
	last, some := w.log.Last()
	comesAgain := some && op.Step.Step <= last // the log has it, and compares it
	if comesAgain {
		if err := w.placedAgain(op.Step.Step, record); err != nil {
			return err
		}
	}
	a := checkpoint.Append{Step: op.Step.Step, Record: record.Encode()}
	if !comesAgain {
		a.Frame = w.frame(op)
		w.frames.wrote(len(a.Record), len(a.Frame))
		if err := w.check(op, a.Record); err != nil {
			return err
		}
	}
	g.ops = append(g.ops, a)
	g.appends++
	return failpoint.Error(failpoint.AppendBefore)
}

// placedAgain compares which rank has which row of a step with what the planner before placed, of whom ranks may have
// their parts. A record of an older build does not say it, and one of another mesh is of ranks that do not go on.
func (w *Writer) placedAgain(step int64, record *token.Record) error {
	was, err := recordOf(w.log, step)
	if err != nil || was == nil {
		return err
	}
	before, err := token.DecodeRecord(was)
	if err != nil {
		return err
	}
	if before.Placed != record.Placed && before.Placed.Comparable(record.Placed) {
		return fmt.Errorf("step %d gives its rows to other ranks than when it was planned before, by the log in %s, and ranks that had their parts then would miss rows or have them twice: "+
			"this planner is of another build, or a strategy is not a function of its step; go on with a new folder, and all ranks from the same checkpoint: %w", step, w.opts.Dir, checkpoint.ErrDiverged)
	}
	record.Placed = before.Placed
	return nil
}

// check makes sure that a record is what a planner that takes over goes on from, and what was
// planned before if the job went back.
func (w *Writer) check(op control.AppendStep, record []byte) error {
	if err := w.frames.try(&w.plan, op, record); err != nil {
		return err
	}
	if checkpoint.Begins(w.log) {
		if err := w.again.begin(w.log, op.Step.Step); err != nil {
			return err
		}
	}
	return w.again.step(op.Step.Step, record)
}

// group is what is written at once.
type group struct {
	ops      []checkpoint.Op
	appends  int
	branches bool // it opens a branch
}

// groupOps bounds a group: some hundred steps of a kilobyte or two.
const groupOps = 512

// ends says whether a group has to be written before an operation: which key frame is due, and
// what a branch goes on from, is known only of a log that has what came before.
func (g *group) ends(log checkpoint.Log, op control.Op) bool {
	if len(g.ops) == 0 {
		return false
	}
	switch op.(type) {
	case control.Truncate:
		return true
	case control.AppendStep:
		if g.branches || g.appends > 0 && checkpoint.Begins(log) {
			return true
		}
	}
	return len(g.ops) >= groupOps
}

// write does what the group has, and empties it.
func (g *group) write(log checkpoint.Log) error {
	if len(g.ops) == 0 {
		return nil
	}
	err := log.Write(g.ops...)
	for range g.appends {
		failpoint.Hit(failpoint.AppendAfter)
	}
	*g = group{}
	return err
}

// frame is the key frame that comes with a step which the log does not have; nil if none is due.
// The first one of a branch has the chain value, which may be beside no record.
func (w *Writer) frame(op control.AppendStep) []byte {
	begins := checkpoint.Begins(w.log)
	switch {
	case begins && op.Step.Step > 0:
		return token.EncodeFrame(w.job, op.Before, op.Digest)
	case begins || w.due(op.Step.Step):
		return token.EncodeFrame(w.job, op.Before, [32]byte{})
	}
	return nil
}

// due says whether a step has a key frame that does not begin a branch.
func (w *Writer) due(step int64) bool {
	if w.opts.KeyFrame != nil {
		return w.opts.KeyFrame(step)
	}
	return w.frames.due()
}

// read reads what leads to a position, or to the last one before it whose chain value the log
// has. A planner that takes over is to know the chain values that follow, too.
func (w *Writer) read(e control.ReadLog) (r control.LogRead) {
	r.Asked, r.At, r.Left, r.Parted = e.Asked, e.At, w.left(e.At), checkpoint.History(w.log.Branches()).Parted()
	for r.First, _ = w.log.First(); r.At > r.First && r.Err == nil; r.At-- {
		if r.Digest, r.Digested, r.Err = w.log.ReadDigest(r.At - 1); r.Digested {
			break
		}
	}
	var framed bool
	if r.Err == nil {
		r.FrameStep, r.Frame, framed, r.Err = w.log.Frame(r.At)
	}
	if r.Err == nil && !framed {
		r.Err = fmt.Errorf("the log has no key frame at or before step %d", r.At)
	}
	if r.Err == nil {
		r.Err = w.log.Records(r.FrameStep, r.At, func(_ int64, record []byte) error {
			r.Records = append(r.Records, bytes.Clone(record))
			return nil
		})
	}
	for step, known := r.At, e.Asked == 0; known && r.Err == nil; step++ {
		var digest [32]byte
		if digest, known, r.Err = w.log.ReadDigest(step); known {
			r.Known = append(r.Known, digest)
		}
	}
	return r
}

// left says whether a branch that the job left has the position before a step, and the one that is written has not.
func (w *Writer) left(step int64) bool {
	h := checkpoint.History(w.log.Branches())
	first, next := h.Steps()
	return (step < first || step > next) && slices.ContainsFunc(h, func(b checkpoint.Branch) bool { return b.From <= step && step <= b.Next })
}

// watch hears when the log stops, whether there is something to write or not, until the
// planner ends.
func (w *Writer) watch() {
	select {
	case <-w.log.Stopped():
		w.event(control.LogStopped{Err: w.log.Err()})
	case <-w.ended:
	}
}
