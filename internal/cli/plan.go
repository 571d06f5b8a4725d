package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/millrace-data/millrace/internal/preview"
	"github.com/millrace-data/millrace/internal/preview/page"
	"github.com/millrace-data/millrace/jobspec"
)

type planCmd struct {
	Job       string         `arg:"" help:"Job spec (YAML)." type:"path"`
	Steps     int64          `help:"Steps to plan; 0 plans to the end of the data, which needs mix.epochs." default:"1000"`
	Every     bool           `help:"Print every step, as a table row or, with --json, a JSON object."`
	JSON      bool           `name:"json" help:"Print the report as one JSON object."`
	HTML      string         `name:"html" help:"Write the report with its charts as one HTML page." type:"path" placeholder:"FILE"`
	Operators bool           `help:"Print how loaders carry out each source's steps, and plan no step: stages, why they are divided, what they need, and about what they give."`
	StepTime  *time.Duration `help:"Time of a training step, such as 2s, to report how many cores loaders need." placeholder:"TIME"`
	Sizing    bool           `help:"Print which loaders would read the job, with how many workers and how much memory, and why; plan no step. --steps is how far the mix is looked at."`
	YAML      bool           `name:"yaml" help:"With --sizing: print the loaders as YAML, for --sizing of serve, run and planner."`
	machineFlags
	Profile string `help:"With --sizing: a profile that millrace profile wrote, or the one in the folder of a step log. Default: some records of each source are measured." type:"path" placeholder:"FILE"`
	changesFlag
}

// Help is printed below the usage line.
func (*planCmd) Help() string {
	return "Reads and tokenizes the data as loaders do, and plans as the service does, but starts no service, opens no port and trains nothing. " +
		"Reports how full the rows are, what is drawn from each source against the mix, how balanced the ranks are, " +
		"traffic between roles, their memory, and warnings.\n\n" +
		"Examples:\n" +
		"  millrace plan job.yaml --steps 5000 --step-time 2s --html plan.html\n" +
		"  millrace plan job.yaml --steps 5 --every\n" +
		"  millrace plan job.yaml --operators\n" +
		"  millrace plan job.yaml --sizing --step-time 2s --cores 32 --memory 128GiB"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *planCmd) Validate() error {
	if c.StepTime != nil && *c.StepTime <= 0 {
		return fmt.Errorf("--step-time is %v, valid is more than 0, such as 2s or 500ms", *c.StepTime)
	}
	switch {
	case !c.Sizing && (c.YAML || c.Profile != "" || c.machineFlags.given()):
		return errors.New("--yaml, --cores, --memory, --constructors, --processes and --profile are for --sizing")
	case c.Sizing && c.Operators:
		return errors.New("--sizing and --operators print two different things: give one of them")
	case (c.Sizing || c.Operators) && (c.Every || c.HTML != ""):
		return errors.New("--every and --html are for plans: --sizing and --operators plan no step")
	case c.Operators && c.StepTime != nil:
		return errors.New("--step-time is not for --operators")
	case c.YAML && c.JSON:
		return errors.New("--yaml and --json are two forms of one report: give one of them")
	}
	return errors.Join(atLeast("--steps", c.Steps, 0), c.machineFlags.check())
}

// stepTime is 0 where none is given.
func (c *planCmd) stepTime() time.Duration {
	if c.StepTime == nil {
		return 0
	}
	return *c.StepTime
}

// Run plans with the planner's core: no service, no ranks.
func (c *planCmd) Run(ctx context.Context, names extensions) error {
	job, err := load(names, c.Job)
	if err != nil {
		return err
	}
	changes, err := c.changes()
	if err != nil {
		return err
	}
	if c.Operators {
		return c.operators(ctx, job, names)
	}
	if c.Sizing {
		return c.sized(ctx, job, names)
	}
	if err := pageOutput.check(c.HTML); err != nil {
		return err
	}
	if err := ends(job, c.Steps); err != nil {
		return err
	}
	j, err := preview.Open(ctx, preview.Options{Job: job, Changes: changes, Registry: names.Registry, Functions: names.functions.Open})
	if err != nil {
		return err
	}
	out := newStepTable(job)
	opts := preview.ReportOptions{Steps: limit(c.Steps), StepTime: c.stepTime()}
	progress := newCounter("planned", j.Start(), c.Steps)
	opts.Each = func(l *preview.Line) error {
		switch {
		case c.Every && c.JSON:
			return printJSON(l)
		case c.Every:
			out.add(l)
		default:
			progress.at(l.Step)
		}
		return ctx.Err()
	}
	r, err := j.Report(ctx, opts)
	progress.end()
	if err != nil {
		return err
	}
	if c.HTML != "" {
		if err := writePage(c.HTML, r); err != nil {
			return err
		}
	}
	switch {
	case c.JSON && c.Every:
		return nil
	case c.JSON:
		return printJSON(r)
	}
	out.end()
	printReport(stdout, r)
	return nil
}

// operatorRecords are put through a source's steps to estimate what they give: enough for a mean, and a
// second's work of a slow function.
const operatorRecords = 256

func (c *planCmd) operators(ctx context.Context, job *jobspec.Job, names extensions) error {
	p, err := preview.Operators(ctx, sources(), names.functions.Open, job, cmp.Or(names.functions.Workers, job.Resources.PythonWorkers), operatorRecords)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(p)
	}
	fmt.Fprint(stdout, p)
	return nil
}

func printJSON(v any) error {
	data, err := json.Marshal(v)
	fmt.Fprintf(stdout, "%s\n", data)
	return err
}

// writePage writes a report as a page, whole or not at all.
func writePage(path string, r *preview.Report) error {
	var b bytes.Buffer
	if err := page.Write(&b, r); err != nil {
		return err
	}
	if err := replace(path, b.Bytes(), 0o644); err != nil { // a page is to be passed on
		return pageOutput.unwritable(path, err)
	}
	return nil
}

// stepTable prints a line for each step.
type stepTable struct {
	w       *tabwriter.Writer
	sources []jobspec.Source
	lines   int
}

func newStepTable(job *jobspec.Job) *stepTable {
	return &stepTable{w: newTable(stdout), sources: job.Sources}
}

// tableFlush is how many lines are aligned together: all at once would hold the
// first back until the last.
const tableFlush = 100

func (t *stepTable) add(l *preview.Line) {
	if t.lines == 0 {
		fmt.Fprintf(t.w, "step\tdocuments\ttokens\tpadding\tfill\tKiB\t")
		for _, s := range t.sources {
			fmt.Fprintf(t.w, "%s\t", s.Name)
		}
		fmt.Fprintln(t.w)
	}
	fmt.Fprintf(t.w, "%d\t%d\t%d\t%d\t%.2f %%\t%d\t", l.Step, l.Documents, l.Tokens, l.Padding, 100*l.Fill, l.Bytes>>10)
	for _, s := range t.sources {
		fmt.Fprintf(t.w, "%d\t", l.Drawn[s.Name])
	}
	fmt.Fprintln(t.w)
	if t.lines++; t.lines%tableFlush == 0 {
		t.w.Flush()
	}
}

// end leaves a gap before what comes after the table.
func (t *stepTable) end() {
	t.w.Flush()
	if t.lines > 0 {
		fmt.Fprintln(stdout)
	}
}
