package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/preview"
)

type profileCmd struct {
	Job     string `arg:"" help:"Job spec (YAML)." type:"path"`
	Records int64  `help:"Records to read of each source." default:"1000"`
	Workers int    `help:"Sources measured at a time; more than there are idle cores make times too long." default:"1"`
	LogDir  string `help:"Folder of the job's step log: the profile is kept there, and used at the next start." type:"path" placeholder:"DIR"`
	Out     string `help:"Write the profile to this file." type:"path" placeholder:"FILE"`
	JSON    bool   `name:"json" help:"Print the profile as one JSON object."`
}

// Help is printed below the usage line.
func (*profileCmd) Help() string {
	return "Reads some records of each source as loaders do, the same ones at each time, and says what they cost: a worker's time and the bytes of each stage, " +
		"samples and tokens of a record, memory. A service that runs learns the same by itself and keeps it beside its step log. " +
		"`millrace plan --sizing` says what loaders that makes. No byte of a batch depends on a profile.\n\n" +
		"Example:\n  millrace profile job.yaml --log-dir /var/lib/millrace/job"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *profileCmd) Validate() error {
	return errors.Join(atLeast("--records", c.Records, 1), atLeast("--workers", int64(c.Workers), 1))
}

// Run measures the sources of a job.
func (c *profileCmd) Run(ctx context.Context, names extensions) error {
	job, err := load(names, c.Job)
	if err != nil {
		return err
	}
	if c.LogDir != "" {
		if err := os.MkdirAll(c.LogDir, 0o700); err != nil { // as serve makes it
			return fault.Userf("making the folder of the step log: %w; name one with --log-dir in a folder that can be written to", err)
		}
	}
	p, err := preview.Profile(ctx, sources(), names.functions.Open, job, preview.ProfileOptions{Records: c.Records, Workers: c.Workers})
	if err != nil {
		return err
	}
	if c.Out != "" {
		err = p.WriteFile(c.Out)
	}
	if c.LogDir != "" {
		err = firstOf(err, p.Write(c.LogDir))
	}
	if err != nil {
		return fault.Userf("writing the profile: %w; name a folder that can be written to", err)
	}
	if c.JSON {
		return printJSON(p)
	}
	fmt.Fprint(stdout, p)
	return nil
}
