package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/status"
	"github.com/millrace-data/millrace/internal/preview"
	"github.com/millrace-data/millrace/internal/regular"
	"github.com/millrace-data/millrace/jobspec"
)

// changesFlag names the changes that were, or are to be, made to a job.
type changesFlag struct {
	Changes string `help:"File of changes to the job, one JSON object per line: weights, pause, add, topology, skip, ban and others, each from a step on." type:"path" placeholder:"FILE"`
}

func (f changesFlag) changes() ([]change.Change, error) {
	if f.Changes == "" {
		return nil, nil
	}
	text, err := regular.Text(f.Changes)
	if err != nil {
		return nil, fault.Userf("opening the change file: %w", err)
	}
	return change.Read(bytes.NewReader(text), f.Changes)
}

// possible are the changes, after the planner's core has taken them: the reference reader does not look whether
// they are possible.
func (f changesFlag) possible(ctx context.Context, names extensions, job *jobspec.Job) ([]change.Change, error) {
	changes, err := f.changes()
	if err != nil || len(changes) == 0 {
		return nil, err
	}
	_, err = preview.Open(ctx, preview.Options{Job: job, Changes: changes, Registry: names.Registry, Functions: names.functions.Open})
	return changes, err
}

type changesCmd struct {
	Address string `arg:"" optional:"" help:"Address of the service, or several, separated by commas."`
	LogDir  string `help:"Read them from this step log: the folder given to serve or run." type:"path" placeholder:"DIR"`
	Pending bool   `help:"Only pending changes, which can be cancelled."`
	tlsFlags
}

// Help is printed below the usage line.
func (*changesCmd) Help() string {
	return "Prints every change made to a job, by the first step it applies to, one JSON object per line: a file for --changes. " +
		"A service that resumed from a token without a log does not know earlier changes. The log of a running service cannot be read; ask the service.\n\n" +
		"Examples:\n" +
		"  millrace changes 127.0.0.1:7070\n" +
		"  millrace changes --log-dir /var/lib/millrace/job > changes.jsonl && millrace reference job.yaml --changes changes.jsonl"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *changesCmd) Validate() error {
	if (c.Address == "") == (c.LogDir == "") {
		return errors.New("give the address of a service or --log-dir, one of the two")
	}
	if c.Pending && c.LogDir != "" {
		return errors.New("--pending needs a running service: give its address")
	}
	return nil
}

func (c *changesCmd) Run(ctx context.Context) error {
	changes, err := c.read(ctx)
	change.Sort(changes)
	for _, ch := range changes {
		fmt.Fprintln(stdout, ch)
	}
	return err
}

func (c *changesCmd) read(ctx context.Context) ([]change.Change, error) {
	if c.LogDir != "" {
		texts, err := loggedChanges(c.LogDir)
		if err != nil {
			return nil, err
		}
		return change.ParseAll(texts)
	}
	status, _, err := statusAt(ctx, c.Address, c.security())
	if err != nil {
		return nil, err
	}
	changes, err := changesIn(status)
	if err != nil || !c.Pending {
		return changes, err
	}
	changes, err = change.InForce(changes)
	return slices.DeleteFunc(changes, func(ch change.Change) bool { return ch.Step < status.Planned }), err
}

// changesIn are the changes that a service told of.
func changesIn(s status.Service) ([]change.Change, error) {
	var texts [][]byte
	for _, text := range s.Changes {
		texts = append(texts, []byte(text))
	}
	return change.ParseAll(texts)
}

// loggedChanges reads the changes that a step log holds.
func loggedChanges(dir string) ([][]byte, error) {
	log, err := checkpoint.Open(dir, checkpoint.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	texts, err := log.Changes()
	return texts, cmp.Or(err, log.Close())
}
