package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/millrace-data/millrace/internal/reference"
	"github.com/millrace-data/millrace/planner"
	"github.com/millrace-data/millrace/planner/jobspec"
	"github.com/millrace-data/millrace/planner/mix"
	"github.com/millrace-data/millrace/sourceloader/store"
)

type planCmd struct {
	Job   string `arg:"" help:"Job spec (YAML)." type:"path"`
	Steps int64  `help:"Steps to plan; 0 plans to the end of the data." default:"10"`
	JSON  bool   `name:"json" help:"Print one JSON object a step."`
}

// Help is printed below the usage line.
func (*planCmd) Help() string {
	return "Reads and tokenizes the data, but starts no service: for each step the documents, tokens, padding and how full the rows are, and the tokens drawn from each source. " +
		"With --json also the scheduled shares and the digest.\n\n" +
		"Example:\n  millrace plan job.yaml --steps 5"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *planCmd) Validate() error { return atLeast("--steps", c.Steps, 0) }

// planJSON is one line of `plan --json`.
type planJSON struct {
	Step      int64              `json:"step"`
	Documents int                `json:"documents"`
	Tokens    int64              `json:"tokens"`
	Padding   int64              `json:"padding"`
	Fill      float64            `json:"fill"`
	Bytes     int64              `json:"bytes"` // of tokens, before they become tensors
	Drawn     map[string]int64   `json:"drawn"`
	Scheduled map[string]float64 `json:"scheduled"` // shares
	Digest    string             `json:"digest"`
}

// Run plans with the reference reader: no service, no ranks.
func (c *planCmd) Run(ctx context.Context) error {
	job, err := load(c.Job)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	if !c.JSON {
		fmt.Fprintf(w, "step\tdocuments\ttokens\tpadding\tfill\tKiB\t")
		for _, s := range job.Sources {
			fmt.Fprintf(w, "%s\t", s.Name)
		}
		fmt.Fprintln(w)
	}
	schedule := planner.Schedule(job)
	var total planJSON
	n, _, err := reference.Read(ctx, store.Local{}, job, limit(c.Steps), func(s *reference.Step) error {
		p := describe(job, schedule.Shares(s.Step), s)
		total.Tokens += p.Tokens
		total.Padding += p.Padding
		total.Documents += p.Documents
		if c.JSON {
			data, err := json.Marshal(p)
			fmt.Printf("%s\n", data)
			return err
		}
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%.2f %%\t%d\t", p.Step, p.Documents, p.Tokens, p.Padding, 100*p.Fill, p.Bytes>>10)
		for _, src := range job.Sources {
			fmt.Fprintf(w, "%d\t", p.Drawn[src.Name])
		}
		fmt.Fprintln(w)
		return ctx.Err()
	})
	if err != nil || c.JSON {
		return err
	}
	w.Flush()
	fmt.Printf("\n%d steps: %d documents, %d tokens, %d of padding, rows %.3f %% full\n", n, total.Documents, total.Tokens, total.Padding,
		100*ratio(total.Tokens, total.Tokens+total.Padding))
	return nil
}

func describe(job *jobspec.Job, shares []uint64, s *reference.Step) planJSON {
	p := planJSON{Step: s.Step, Drawn: map[string]int64{}, Scheduled: map[string]float64{}, Digest: fmt.Sprintf("%x", s.Digest)}
	for _, r := range s.Rows {
		p.Documents += len(r.Segments)
		p.Tokens += int64(r.Tokens())
	}
	room := int64(len(s.Rows) * job.Batch.SequenceLength)
	p.Padding = room - p.Tokens
	p.Fill = ratio(p.Tokens, room)
	p.Bytes = 4 * p.Tokens
	for i, src := range job.Sources {
		p.Drawn[src.Name] = s.Drawn[i]
		p.Scheduled[src.Name] = float64(shares[i]) / (1 << mix.Bits)
	}
	return p
}
