package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/status"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/trainer"
)

type runCmd struct {
	serviceFlags
	Steps     int64  `help:"Steps to run; 0 runs to the end of the data, which needs mix.epochs." default:"20"`
	SaveToken string `help:"File to write the resume token of the last step to." type:"path" placeholder:"FILE"`
	Resume    string `help:"File with the resume token (from --save-token) to resume from." type:"path" placeholder:"FILE"`
	JSON      bool   `name:"json" help:"Print one JSON object per step and one for the run."`
}

// Help is printed below the usage line.
func (*runCmd) Help() string {
	return "Tries a job: it starts a service on a free port of this machine, plays all the trainer ranks of the job's topology, " +
		"and checks that the parts of all ranks add up to the global batches. No trainer and no GPU is needed.\n\n" +
		"The last line is `digest step=N HEX`, the digest of everything that was delivered: it is the same for any number of loaders and constructors, " +
		"in one process or many, and `millrace reference` computes it without a service.\n\n" +
		"Examples:\n" +
		"  millrace run job.yaml --steps 100\n" +
		"  millrace run job.yaml --steps 10 --save-token t.json\n" +
		"  millrace run job.yaml --steps 10 --resume t.json"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *runCmd) Validate() error {
	return cmp.Or(atLeast("--steps", c.Steps, 0), c.serviceFlags.Validate())
}

func (c *runCmd) Run(ctx context.Context, log *slog.Logger, stderr io.Writer, names extensions) error {
	opts, err := c.options(names, "127.0.0.1:0", log, stderr)
	if err != nil {
		return err
	}
	if err := ends(opts.Job, c.Steps); err != nil {
		return err
	}
	token, err := readToken(c.Resume)
	if err != nil {
		return err
	}
	if err := tokenOutput.check(c.SaveToken); err != nil {
		return err
	}
	out := newProgress(stdout, terminalWidth(os.Stdout), opts.Job, c.Steps, c.JSON)
	var res *trainer.Result
	hide, err := c.show(ctx, &opts)
	if err != nil {
		return err
	}
	defer hide()
	life, end := context.WithCancel(context.WithoutCancel(ctx)) // the step under way at a signal is finished, for its token
	defer end()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(finishTime, end) })()
	stop := ctx.Done()
	err = service.Run(life, opts, func(ctx context.Context, address string) error {
		conn, err := c.reach(ctx, address)
		if err != nil {
			return err
		}
		defer conn.Close()
		// The same connection to the end: it outlives the certificate that it began with.
		ask := func(ctx context.Context) (status.Service, error) { return statusOver(ctx, conn) }
		feed, failed := context.WithCancel(ctx)
		defer failed()
		defer out.watch(ctx, ask, failed)()
		res, err = trainer.Run(feed, trainer.Options{
			Address: address, Job: opts.Job, Steps: c.Steps, Token: token, Security: c.security(), Changes: opts.Changes, OnStep: out.step, Stop: stop,
		})
		if err != nil {
			return cmp.Or(failureOf(ask(ctx)), err)
		}
		s, err := ask(ctx)
		switch {
		case err == nil:
			out.note(s)
		case ctx.Err() == nil: // the steps are there all the same
			fmt.Fprintf(stderr, "millrace: the summary has of the service (the columns of the sources, records that were skipped, blocks that were read again) what it said last, if it said anything: %v\n", err)
			err = nil
		}
		if token == nil && s.Epoch > 1 && s.Generation > 0 {
			fmt.Fprintf(stderr, "millrace: the log in %s had steps of this job, and this run began again at step 0: `millrace log read --branch N` prints what it left; --resume FILE goes on from a token\n", c.LogDir)
		}
		return err
	})
	if err != nil || res == nil { // no result and no error: a signal came before the service was there
		out.interrupted()
		return cmp.Or(err, ctx.Err())
	}
	out.finish(res)
	return cmp.Or(writeToken(c.SaveToken, tokenFile{opts.Job.Name, res.Next, res.Token}), ctx.Err())
}

// finishTime is how long a run that is interrupted may take to end its step: long
// for a step that is fed, and short for a person who waits.
const finishTime = 2 * time.Second

// failureOf is why a job failed, in the service's own words; nil if it did not,
// or if nobody is left to ask. What a rank heard of it says which rank, too, but
// all of them hear the same.
func failureOf(s status.Service, err error) error {
	if err != nil || s.Error == "" {
		return nil
	}
	class := fault.Bug
	for _, c := range []fault.Class{fault.User, fault.Lost} {
		if c.String() == s.Class {
			class = c
		}
	}
	return fault.As(class, errors.New(s.Error))
}

// printDigest prints the last line of run and reference; scripts rely on it.
func printDigest(w io.Writer, step int64, digest [32]byte) {
	fmt.Fprintf(w, "digest step=%d %x\n", step, digest)
}
