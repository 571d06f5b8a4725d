package cli

import (
	"cmp"
	"context"
	"errors"
	"strconv"

	"github.com/goccy/go-yaml"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/regular"
)

// mixCmd is the group of verbs about the mix of a running job.
type mixCmd struct {
	Set      mixSetCmd      `cmd:"" help:"Set the weights of a running job's sources."`
	Schedule mixScheduleCmd `cmd:"" help:"Return to the mix schedule of the job spec."`
}

type mixSetCmd struct {
	toService
	Weights []string `arg:"" name:"source=weight" help:"Weights, of any sum. Sources not named get 0."`
	changeFlags

	parsed change.Change
}

// Help is printed below the usage line.
func (*mixSetCmd) Help() string {
	return "Sets the mix by hand, overriding the schedule of the job spec until `millrace mix schedule`. " + changeHelp +
		"Example:\n  millrace mix set 127.0.0.1:7070 web=0.7 code=0.3 --step 1000"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *mixSetCmd) Validate() (err error) {
	if c.Address == "" { // kong says that it is missing
		return nil
	}
	c.parsed.Weights, err = parsePairs(c.Weights, "web=0.7", func(s string) (float64, error) { return strconv.ParseFloat(s, 64) })
	return cmp.Or(err, c.check(c.parsed))
}

func (c *mixSetCmd) Run(ctx context.Context) error { return c.make(ctx, c.Address, c.parsed) }

type mixScheduleCmd struct {
	toService
	changeFlags
}

// Help is printed below the usage line.
func (*mixScheduleCmd) Help() string {
	return "Returns to the schedule of the job spec after `millrace mix set`, as it is at that step. " + changeHelp +
		"Example:\n  millrace mix schedule 127.0.0.1:7070"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *mixScheduleCmd) Validate() error { return c.check(change.Change{Schedule: true}) }

func (c *mixScheduleCmd) Run(ctx context.Context) error {
	return c.make(ctx, c.Address, change.Change{Schedule: true})
}

// sourceCmd is the group of verbs about the sources of a running job.
type sourceCmd struct {
	Pause  sourcePauseCmd  `cmd:"" help:"Stop drawing from a source until it is resumed."`
	Resume sourceResumeCmd `cmd:"" help:"Resume a paused source where it stopped."`
	Drop   sourceDropCmd   `cmd:"" help:"Remove a source for good."`
	Add    sourceAddCmd    `cmd:"" help:"Add a source to a running job."`
}

// namedSource is what the verbs about one source have in common.
type namedSource struct {
	toService
	Name string `arg:"" help:"Name of the source."`
	changeFlags
}

// valid is check, but for a name that is missing: kong says so itself.
func (c *namedSource) valid(ch change.Change) error {
	if c.Name == "" {
		return nil
	}
	return c.check(ch)
}

type sourcePauseCmd struct{ namedSource }

// Help is printed below the usage line.
func (*sourcePauseCmd) Help() string {
	return "The other sources share its part of the mix until it is resumed. Samples already drawn are still delivered. " + changeHelp +
		"Example:\n  millrace source pause 127.0.0.1:7070 web --reason 'looking at its quality'"
}

func (c *sourcePauseCmd) change() change.Change { return change.Change{Pause: c.Name} }

// Validate is called by kong: what it refuses is wrong usage.
func (c *sourcePauseCmd) Validate() error { return c.valid(c.change()) }

func (c *sourcePauseCmd) Run(ctx context.Context) error { return c.make(ctx, c.Address, c.change()) }

type sourceResumeCmd struct{ namedSource }

// Help is printed below the usage line.
func (*sourceResumeCmd) Help() string {
	return "It continues after the last sample drawn, with what it was owed when it was paused. " + changeHelp +
		"Example:\n  millrace source resume 127.0.0.1:7070 web"
}

func (c *sourceResumeCmd) change() change.Change { return change.Change{Resume: c.Name} }

// Validate is called by kong: what it refuses is wrong usage.
func (c *sourceResumeCmd) Validate() error { return c.valid(c.change()) }

func (c *sourceResumeCmd) Run(ctx context.Context) error { return c.make(ctx, c.Address, c.change()) }

type sourceDropCmd struct{ namedSource }

// Help is printed below the usage line.
func (*sourceDropCmd) Help() string {
	return "The other sources share its part of the mix. It cannot be resumed; pause it if it may come back. " + changeHelp +
		"Example:\n  millrace source drop 127.0.0.1:7070 web --step 40000"
}

func (c *sourceDropCmd) change() change.Change { return change.Change{Drop: c.Name} }

// Validate is called by kong: what it refuses is wrong usage.
func (c *sourceDropCmd) Validate() error { return c.valid(c.change()) }

func (c *sourceDropCmd) Run(ctx context.Context) error { return c.make(ctx, c.Address, c.change()) }

type sourceAddCmd struct {
	toService
	Entry  string  `help:"File with the source as in a job spec: one entry of the list sources, in YAML." type:"path" required:"" placeholder:"FILE"`
	Weight float64 `help:"Its share of the mix, between 0 and 1; the other sources keep their proportions." required:"" placeholder:"W"`
	changeFlags
}

// Help is printed below the usage line.
func (*sourceAddCmd) Help() string {
	return "The source is indexed while the job continues, and joins when that is done, or at --step if that is later. Relative paths are relative to the job spec's folder; " +
		"all loaders must be able to read the files. Sources join in the order they are added. " + changeHelp +
		"Example:\n  millrace source add 127.0.0.1:7070 --entry math.yaml --weight 0.1"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *sourceAddCmd) Validate() error {
	return c.check(change.Change{Add: &change.Add{Weight: c.Weight}})
}

func (c *sourceAddCmd) Run(ctx context.Context) error {
	entry, err := readEntry(c.Entry)
	if err != nil {
		return err
	}
	return c.make(ctx, c.Address, change.Change{Add: &change.Add{Source: entry, Weight: c.Weight}})
}

// readEntry reads a source's entry and writes it as one line of JSON.
func readEntry(path string) ([]byte, error) {
	data, err := regular.Text(path)
	if err != nil {
		return nil, fault.Userf("reading the source's entry: %w", err)
	}
	if !asEntry(data) {
		return nil, fault.Userf("%s is not a source entry: valid is one group of fields as in the job spec's list `sources`, beginning with `name: NAME`", path)
	}
	entry, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, fault.Userf("%s: %w", path, errors.New(yaml.FormatError(err, false, false)))
	}
	return entry, nil
}

// asEntry says whether YAML is a group of fields, or might be one but for its
// syntax.
func asEntry(data []byte) bool {
	var entry any
	if yaml.Unmarshal(data, &entry) != nil {
		return true
	}
	_, ok := entry.(map[string]any)
	return ok
}
