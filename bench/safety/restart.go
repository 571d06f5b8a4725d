package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/planner"
	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
	"github.com/millrace-data/millrace/internal/preview"
	"github.com/millrace-data/millrace/internal/sourceloader"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

const smallBatch = "mix: {weights: {text: 1}, epochs: 0}\nbatch: {sequence_length: 256, sequences: 2, microbatch_size: 2}\nresources: {prefetch: 4}\n"

// back is how far before the end of the log the ranks' checkpoint is.
const back = 6

// measureRestart starts a service on a long log, as it is after everything ended at once, and takes
// the time to the first batch; then it kills all and does it again.
func measureRestart(ctx context.Context, o options, r *report) error {
	dir := filepath.Join(o.dir, "restart")
	path, err := writeJob(dir, 40, 100, smallBatch)
	if err != nil {
		return err
	}
	job, err := jobspec.Load(path)
	if err != nil {
		return err
	}
	log := filepath.Join(dir, "log")
	begin := time.Now()
	saved, err := writeLog(ctx, job, log, o.steps)
	if err != nil {
		return err
	}
	disk, err := size(log)
	if err != nil {
		return err
	}
	r.add(fmt.Sprintf("a log of %d steps", o.steps), fmt.Sprintf("%.0f MB, made in %.0f s", float64(disk)/1e6, time.Since(begin).Seconds()), "")
	for n, what := range []string{"from start", "after all processes were killed"} {
		took, steps, err := restarted(ctx, o, path, log, filepath.Join(dir, fmt.Sprint("life", n)), saved)
		if err != nil {
			return err
		}
		r.add("first batch on that log, "+what, fmt.Sprintf("%.2f s (and %d steps more)", took.Seconds(), steps-1), "at most 10 s")
	}
	return nil
}

// restarted starts all roles on a log, has a rank go on from its checkpoint, and kills them.
func restarted(ctx context.Context, o options, job, log, dir string, saved []byte) (took time.Duration, steps int, err error) {
	begin := time.Now()
	s, err := startService(o.binary, job, dir, 1, "--log-dir", log)
	if err != nil {
		return 0, 0, err
	}
	defer s.kill()
	c, err := client.Open(ctx, s.address, client.Options{Token: saved, Deadline: time.Minute})
	if err != nil {
		return 0, 0, fmt.Errorf("%w\n%s", err, tail(filepath.Join(dir, "planner.log")))
	}
	defer c.Close()
	for at := o.steps - back; steps < 3*back; steps++ { // over the end of the log, and on
		b, err := c.Next(ctx)
		if err != nil {
			return 0, 0, fmt.Errorf("%w\n%s", err, tail(filepath.Join(dir, "planner.log")))
		}
		if steps == 0 {
			took = time.Since(begin)
		}
		if b.Step != at+int64(steps) {
			return 0, 0, fmt.Errorf("batch %d is of step %d, want %d", steps, b.Step, at+int64(steps))
		}
		b.Release()
	}
	return took, steps, nil
}

func tail(path string) string {
	data, _ := os.ReadFile(path) // beside another error
	return string(data[max(len(data)-2000, 0):])
}

// writeLog writes the log of a job whose documents are all alike, with the records and key frames
// that its planner would have written, and returns the token of a position just before its end. The
// chain values near the end are made up: nobody has read the steps before it.
func writeLog(ctx context.Context, job *jobspec.Job, dir string, steps int64) (saved []byte, err error) {
	open, err := indexed(ctx, job)
	if err != nil {
		return nil, err
	}
	lengths, err := lengthsOf(ctx, job)
	if err != nil {
		return nil, err
	}
	log, err := checkpoint.Open(dir, checkpoint.Options{Identity: open.Root})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	ops := []checkpoint.Op{checkpoint.Fence{Epoch: 1}, checkpoint.SetGeneration{Generation: checkpoint.Generation{Number: 1, Step: 0}}}
	for p, step := planOf(open.Plan, lengths), int64(0); step < steps; step++ {
		s, before := p.next()
		op := checkpoint.Append{Step: step, Record: record(s, before)}
		if step%everyFrame == 0 {
			op.Frame = token.EncodeFrame(open.Job, before, [32]byte{})
		}
		if ops = append(ops, op); step >= steps-everyFrame && step < steps-back { // the last are not delivered yet
			ops = append(ops, checkpoint.SetDigest{Step: step, Digest: chain(step + 1)})
		}
		if step == steps-back {
			saved = token.Encode(open.Job, p.core.MeshAt(before), before, chain(step))
		}
		if len(ops) >= everyFrame || step == steps-1 {
			if err := errors.Join(ctx.Err(), log.Write(ops...)); err != nil {
				return nil, err
			}
			ops = ops[:0]
		}
	}
	return saved, nil
}

func chain(step int64) [32]byte { return sha256.Sum256(fmt.Append(nil, "position ", step)) }

// indexed has the core of a planner index a job's sources, up to where it asks for its log.
func indexed(ctx context.Context, job *jobspec.Job) (open control.OpenLog, err error) {
	cfg, err := planner.CoreConfig(job, compile.Registry{})
	if err != nil {
		return open, err
	}
	core := control.New(cfg)
	shared := transform.NewShared(job.Seed, nil)
	effects := core.Apply(control.LoaderJoined{Session: 1, Name: "bench", Address: "bench"})
	for ; len(effects) > 0; effects = effects[1:] {
		switch e := effects[0].(type) {
		case control.Index:
			src, err := sourceloader.Open(ctx, store.Local{}, job, e.Source, shared)
			if err != nil {
				return open, err
			}
			digest := src.Manifest.Digest()
			effects = append(effects, core.Apply(control.Indexed{
				Session: 1, Source: e.Source, Blocks: uint64(src.Order.Blocks()), Manifest: digest[:],
				Files: uint64(len(src.Manifest.Files)), Bytes: uint64(src.Manifest.Bytes()),
			})...)
		case control.OpenLog:
			return e, nil
		case control.Failing:
			return open, e.Err
		}
	}
	return open, errors.New("the core asks for no log")
}

// lengthsOf are the lengths of the samples of a block, which are the same in every block.
func lengthsOf(ctx context.Context, job *jobspec.Job) ([]int32, error) {
	p, err := preview.Open(ctx, preview.Options{Job: job})
	if err != nil {
		return nil, err
	}
	var lengths []int32
	_, err = p.Run(ctx, 100, func(s *plan.Step) error {
		for i, seq := range s.Buffer.Seq {
			if at := int(s.Buffer.Index[i]); seq == 0 {
				for len(lengths) <= at {
					lengths = append(lengths, 0)
				}
				lengths[at] = s.Buffer.Tokens[i]
			}
		}
		return nil
	})
	return lengths, err
}
