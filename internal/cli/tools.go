package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/preview"
	"github.com/millrace-data/millrace/internal/reference"
	"github.com/millrace-data/millrace/internal/sourceloader"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/store/bucket"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

type lintCmd struct {
	Job   string `arg:"" help:"Job spec (YAML)." type:"path"`
	Print bool   `help:"Print the spec back with all defaults filled in."`
	Read  int64  `help:"Also read the first N records of every source and report what is wrong with them." placeholder:"N"`
}

// Help is printed below the usage line.
func (*lintCmd) Help() string {
	return "Needs no service and asks no model server: it checks the spec, compiles the steps of each source, lists its files and reads one record, " +
		"which goes through the steps as far as the first call, to find what would stop a job at its start. " +
		"With --read it puts the first N records of every source through its steps: fields that records lack, records that cannot be read, " +
		"or that give no sample, and sources none of whose tokens carries loss are findings too. `millrace plan` reads all records. " +
		"Each finding is one line on standard error, `file:line: field: what is wrong, what would be valid`. " +
		"Warnings do not stop a job; any error is exit code 3, or 4 if all that is wrong is a store that is away. docs/jobspec.md describes all fields.\n\n" +
		"Examples:\n  millrace lint job.yaml\n  millrace lint job.yaml --read 1000"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *lintCmd) Validate() error { return atLeast("--read", c.Read, 0) }

// sources is what the files of a job are read through, by verbs that end when they are done.
func sources() store.Store { return bucket.ForCommand(os.Getenv("MILLRACE_SCRATCH_DIR")) }

func (c *lintCmd) Run(ctx context.Context, names extensions) error {
	tokenizers, functions := transform.NewTokenizers(), sourceloader.Unasked(names.functions.Open)
	opts := []jobspec.Option{jobspec.CheckSource(func(job *jobspec.Job, i int) jobspec.Findings {
		return sourceloader.Check(ctx, sources(), job, i, &transform.Shared{Tokenizers: tokenizers, Functions: functions, Seed: job.Seed})
	})}
	if c.Read > 0 {
		opts = append(opts, jobspec.CheckData(func(job *jobspec.Job) []jobspec.Finding {
			return preview.Probe(ctx, sources(), functions, job, c.Read)
		}))
	}
	job, err := load(names, c.Job, opts...)
	if err := ctx.Err(); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	tellUnasked(os.Stderr, job)
	if c.Print {
		fmt.Fprintf(stdout, "%s", job.YAML())
		return nil
	}
	id := job.Identity()
	fmt.Fprintf(stdout, "%s: %d sources, %d rows of %d tokens a step, dp %d cp %d pp %d tp %d, identity %x: no error\n", c.Job, len(job.Sources),
		job.Batch.Sequences, job.Batch.SequenceLength, job.Topology.DP, job.Topology.CP, job.Topology.PP, job.Topology.TP, id[:6])
	return nil
}

// tellUnasked says how far lint looked at sources that ask model servers.
func tellUnasked(w io.Writer, job *jobspec.Job) {
	for _, s := range job.Sources {
		if slices.ContainsFunc(s.Transforms, func(t jobspec.Transform) bool { _, asks := t.(*jobspec.Call); return asks }) {
			fmt.Fprintf(w, "source %q: no model server was asked, so records went as far as the first call step; `millrace plan` asks, and keeps the answers\n", s.Name)
		}
	}
}

type schemaCmd struct{}

// Help is printed below the usage line.
func (*schemaCmd) Help() string {
	return "With it an editor completes fields and marks errors in a spec. " +
		"Editors with the YAML language server take it from the first line of the spec:\n\n" +
		"  # yaml-language-server: $schema=jobspec.schema.json\n\n" +
		"Example:\n  millrace schema > jobspec.schema.json"
}

func (c *schemaCmd) Run() error {
	fmt.Fprintf(stdout, "%s\n", jobspec.JSONSchema())
	return nil
}

type versionCmd struct{}

func (c *versionCmd) Run() error {
	fmt.Fprintln(stdout, version(debug.ReadBuildInfo()))
	return nil
}

// versionFlag does what the verb does.
type versionFlag bool

// BeforeReset is called by kong before the rest of the command line counts.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	fmt.Fprintln(app.Stdout, version(debug.ReadBuildInfo()))
	app.Exit(0)
	return nil
}

// version is what is known of the build: the module's version, the revision, Go's.
func version(info *debug.BuildInfo, ok bool) string {
	if !ok {
		return "millrace (unknown)"
	}
	words := "millrace " + cmp.Or(info.Main.Version, "(unknown)")
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if revision := settings["vcs.revision"]; revision != "" {
		words += " " + revision
		if settings["vcs.modified"] == "true" {
			words += "+"
		}
	}
	return words + " " + info.GoVersion
}

type statusCmd struct {
	Address string `arg:"" help:"Address of the service, or several, separated by commas: the first that serves answers." default:"127.0.0.1:7070"`
	JSON    bool   `name:"json" help:"Print the status as JSON."`
	tlsFlags
}

// Help is printed below the usage line.
func (*statusCmd) Help() string {
	return "Shows the progress of the job, what it waits for, and for each source its share of the tokens against the scheduled one, " +
		"and how many records were filtered out, too long, empty or skipped. It never disturbs the job.\n\n" +
		"Example:\n  millrace status 127.0.0.1:7070"
}

func (c *statusCmd) Run(ctx context.Context) error {
	reply, _, err := findStatus(ctx, c.Address, c.security())
	if err != nil {
		return err
	}
	if c.JSON {
		fmt.Fprintf(stdout, "%s\n", reply.Json)
		return nil
	}
	fmt.Fprint(stdout, reply.Text)
	return nil
}

type referenceCmd struct {
	Job   string `arg:"" help:"Job spec (YAML)." type:"path"`
	Steps int64  `help:"Steps to compute; 0 computes to the end of the data, which needs mix.epochs." default:"20"`
	Every bool   `help:"Print the digest of every step."`
	changesFlag
}

// Help is printed below the usage line.
func (*referenceCmd) Help() string {
	return "The reference reader is a short sequential program without a service, threads or buffers. It defines what a job delivers: " +
		"`millrace run`, trainers and step logs must come to the same digest.\n\n" +
		"Example:\n  millrace reference job.yaml --steps 20"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *referenceCmd) Validate() error { return atLeast("--steps", c.Steps, 0) }

func (c *referenceCmd) Run(ctx context.Context, names extensions) error {
	job, err := load(names, c.Job)
	if err != nil {
		return err
	}
	if err := ends(job, c.Steps); err != nil {
		return err
	}
	changes, err := c.possible(ctx, names, job)
	if err != nil {
		return err
	}
	progress := newCounter("computed", 0, c.Steps)
	n, digest, err := reference.ReadWith(ctx, sources(), names.reads(), job, changes, limit(c.Steps), func(s *reference.Step) error {
		if c.Every {
			printDigest(stdout, s.Step+1, s.Digest)
		} else {
			progress.at(s.Step)
		}
		return ctx.Err()
	})
	progress.end()
	if err != nil {
		return err
	}
	if !c.Every || n == 0 {
		printDigest(stdout, n, digest)
	}
	return nil
}

// ends refuses to go to the end of data that has none.
func ends(job *jobspec.Job, steps int64) error {
	if steps == 0 && job.Mix.Epochs == 0 {
		return fault.Userf("--steps is 0, to the end of the data, and the data has no end without mix.epochs: give --steps, or mix.epochs in the job spec")
	}
	return nil
}

// limit turns the flag's 0 into the reference's "all".
func limit(steps int64) int64 {
	if steps == 0 {
		return -1
	}
	return steps
}
