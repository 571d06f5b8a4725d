package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/preview"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/jobspec"
)

// toService is the first argument of the verbs that change a running job.
type toService struct {
	Address string `arg:"" help:"Address of the service, HOST:PORT or unix:PATH; or several, separated by commas: the first that serves is asked."`
}

// changeFlags are what the verbs that change a running job have in common.
type changeFlags struct {
	Step int64 `help:"First step it applies to; 0: as soon as possible. If that step is already planned: the next one that is not." default:"0" placeholder:"N"`
	askFlags
}

// fromFlag names the position that a change of the topology starts from.
type fromFlag struct {
	From      string `help:"For a topology: file with a resume token (from --save-token or python -m millrace.rank --save). The change applies at its step, and later steps are planned again." type:"path" xor:"from" placeholder:"TOKEN"`
	FromStep  *int64 `help:"For a topology: the same, from a step that the service or its log holds, without a token." xor:"from" placeholder:"N"`
	SaveToken string `help:"With --from-step: file to write the resume token of that step to, for the ranks that go on from it." type:"path" placeholder:"FILE"`
}

// check refuses what needs no service to be found wrong.
func (f fromFlag) check() error {
	if f.FromStep == nil {
		if f.SaveToken != "" {
			return errors.New("--save-token goes with --from-step")
		}
		return nil
	}
	return atLeast("--from-step", *f.FromStep, 0)
}

// token reads it, or asks the service for it; nil if none is named.
func (f fromFlag) token(ctx context.Context, addresses string, ask askFlags) ([]byte, error) {
	if f.FromStep == nil {
		return readToken(f.From)
	}
	if err := tokenOutput.check(f.SaveToken); err != nil {
		return nil, err
	}
	status, address, err := statusAt(ctx, addresses, ask.security())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, ask.Timeout)
	defer cancel()
	token, _, err := client.StateAt(ctx, address, *f.FromStep, ask.security())
	if err != nil {
		return nil, err
	}
	return token, writeToken(f.SaveToken, tokenFile{status.Job, *f.FromStep, token})
}

// askFlags say how a change is asked for.
type askFlags struct {
	Reason  string        `help:"Reason, kept in the journal." placeholder:"TEXT"`
	Job     string        `help:"Job spec (YAML) that the service must be running; otherwise nothing is changed." type:"path" placeholder:"FILE"`
	Timeout time.Duration `help:"How long to wait for the change; an added source is indexed first. Default 5m." default:"5m" placeholder:"TIME"`
	tlsFlags

	from []byte // the token that the change starts from; nil if it applies to steps to come
}

const changeHelp = "The change applies to all ranks from the same step on. It becomes part of the job: the step log, resume tokens and `millrace changes` keep it, " +
	"and `millrace reference --changes` computes the same batches with it. A change that is not possible is refused without effect.\n\n"

// check refuses what needs no service to be found wrong.
func (f *changeFlags) check(c change.Change) error {
	return cmp.Or(atLeast("--step", f.Step, 0), f.askFlags.check(c))
}

func (f *askFlags) check(c change.Change) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if f.Timeout <= 0 {
		return fmt.Errorf("--timeout is %v, valid is more than 0", f.Timeout)
	}
	return nil
}

// make makes a change and prints what it came to.
func (f *changeFlags) make(ctx context.Context, address string, c change.Change) error {
	c.Step = cmp.Or(f.Step, c.Step)
	return f.askFlags.make(ctx, address, c)
}

func (f *askFlags) make(ctx context.Context, addresses string, c change.Change) error {
	c.Reason = cmp.Or(f.Reason, c.Reason)
	req := &pb.ChangeRequest{Change: []byte(c.String()), Token: f.from}
	status, address, err := statusAt(ctx, addresses, f.security())
	if err != nil {
		return err
	}
	if !status.Joined && f.from == nil {
		fmt.Fprintf(os.Stderr, "millrace: no trainer has joined yet, so that it is not known at which step the job goes on: waiting up to %v for one\n", f.Timeout)
	}
	if f.Job != "" {
		job, err := jobspec.Load(f.Job)
		if err != nil {
			return err
		}
		spec := job.Identity()
		req.Identity = spec[:]
	}
	conn, err := rpc.Dial(address, f.security())
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	reply, err := pb.NewPlannerClient(conn).Change(ctx, req)
	if err = rpc.FromStatus(err); err != nil {
		return fault.As(fault.ClassOf(err), fmt.Errorf("changing the job at %s: %w", address, err))
	}
	late := ""
	if c.Step > 0 && reply.Step > uint64(c.Step) {
		late = fmt.Sprintf(" (step %d is planned already)", c.Step)
	}
	fmt.Fprintf(stdout, "from step %d on%s: %s\n", reply.Step, late, describeChange(c))
	if reply.VoidTo > reply.Step {
		fmt.Fprintf(stdout, "void from now on: steps %d to %d as the ranks before were given them, and the states that those saved after step %d\n", reply.Step, reply.VoidTo-1, reply.Step)
	}
	return nil
}

// describeChange says in words what a change does.
func describeChange(c change.Change) string {
	switch {
	case c.Weights != nil:
		return "the mix is " + pairs(c.Weights) + ", and nothing of the sources that are not named"
	case c.Schedule:
		return "the mix is the job spec's again"
	case c.Pause != "":
		return fmt.Sprintf("source %q is paused", c.Pause)
	case c.Resume != "":
		return fmt.Sprintf("source %q goes on where it was", c.Resume)
	case c.Drop != "":
		return fmt.Sprintf("source %q is dropped for good", c.Drop)
	case c.Add != nil:
		return fmt.Sprintf("a source joins with %v of the mix", c.Add.Weight)
	case c.Topology != nil:
		return "the ranks are those of a mesh with " + pairs(c.Topology) + "; start them from the state of that step"
	case c.Skip > 0:
		return fmt.Sprintf("the data of %s is passed over", preview.Count(c.Skip, "step"))
	case c.Ban != nil:
		return fmt.Sprintf("%s is banned, if there is such a record", c.Ban)
	case c.Cancel != nil:
		return "no change; it is cancelled that " + describeChange(*c.Cancel)
	}
	shape := map[string]int{"sequence_length": c.SequenceLength, "sequences": c.Sequences}
	maps.DeleteFunc(shape, func(_ string, n int) bool { return n == 0 })
	return "global batches have " + pairs(shape)
}

// pairs prints a=1 b=2, by name.
func pairs[N int | float64](values map[string]N) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		parts = append(parts, fmt.Sprintf("%s=%v", name, values[name]))
	}
	return strings.Join(parts, " ")
}

// parsePairs reads arguments NAME=NUMBER, each name once.
func parsePairs[N int | float64](args []string, example string, parse func(string) (N, error)) (map[string]N, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("give at least one NAME=NUMBER, such as %s", example)
	}
	values := map[string]N{}
	for _, arg := range args {
		i := strings.LastIndex(arg, "=")
		if i < 1 {
			return nil, fmt.Errorf("%q is not NAME=NUMBER: an example is %s", arg, example)
		}
		name := arg[:i]
		n, err := parse(arg[i+1:])
		if err != nil {
			return nil, fmt.Errorf("%q does not end with a number: an example is %s", arg, example)
		}
		if _, twice := values[name]; twice {
			return nil, fmt.Errorf("%s is given twice", name)
		}
		values[name] = n
	}
	return values, nil
}

type changeCmd struct {
	toService
	Change string `arg:"" help:"The change in JSON."`
	changeFlags
	fromFlag

	parsed change.Change
}

// Help is printed below the usage line.
func (*changeCmd) Help() string {
	return "Takes one line of a change file: one of the fields weights, schedule, pause, resume, drop, add, sequence_length, sequences, topology, skip, ban and cancel, with step and reason. " +
		"--step and --reason override those in it. The verbs mix, source, batch, topology, skip, ban and cancel write it for you. " + changeHelp +
		"Examples:\n" +
		"  millrace change 127.0.0.1:7070 '{\"pause\":\"web\"}'\n" +
		"  millrace change 127.0.0.1:7070 '{\"step\":1000,\"weights\":{\"web\":0.7,\"code\":0.3},\"reason\":\"decay phase\"}'"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *changeCmd) Validate() (err error) {
	if c.Change == "" { // kong says that it is missing
		return nil
	}
	if c.parsed, err = change.Parse([]byte(c.Change)); err != nil {
		return fmt.Errorf("the change %s: %w", c.Change, err)
	}
	return cmp.Or(c.changeFlags.check(c.parsed), c.fromFlag.check())
}

func (c *changeCmd) Run(ctx context.Context) (err error) {
	if c.from, err = c.token(ctx, c.Address, c.askFlags); err != nil {
		return err
	}
	return c.make(ctx, c.Address, c.parsed)
}

type batchCmd struct {
	toService
	SequenceLength int `help:"Tokens in a row." placeholder:"N"`
	Sequences      int `help:"Rows in a step, over all DP ranks." placeholder:"N"`
	changeFlags
}

// Help is printed below the usage line.
func (*batchCmd) Help() string {
	return "Changes the shape of global batches. Rows can be longer than in the job spec, and shorter as long as the samples of every source fit (`long.max`). " +
		changeHelp + "Example:\n  millrace batch 127.0.0.1:7070 --sequence-length 8192 --sequences 64 --step 50000"
}

func (c *batchCmd) change() change.Change {
	return change.Change{SequenceLength: c.SequenceLength, Sequences: c.Sequences}
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *batchCmd) Validate() error {
	if c.Address == "" { // kong says that it is missing
		return nil
	}
	if c.SequenceLength == 0 && c.Sequences == 0 {
		return errors.New("give --sequence-length, --sequences, or both; each is 1 or more")
	}
	return c.check(c.change())
}

func (c *batchCmd) Run(ctx context.Context) error { return c.make(ctx, c.Address, c.change()) }

type topologyCmd struct {
	toService
	Axes []string `arg:"" name:"axis=size" help:"Sizes of axes: dp, cp, pp, tp, vpp or ep. Axes not named keep theirs."`
	changeFlags
	fromFlag

	parsed change.Change
}

// Help is printed below the usage line.
func (*topologyCmd) Help() string {
	return "Moves the job to another mesh of trainer ranks. The current ranks get data up to the step and save their state; the ranks of the new mesh start from it. " +
		"Global batches do not change. When ranks are lost, --from names the checkpoint that the remaining ones resume from: " +
		"later steps are planned again. --from-step names it by its step alone. " + changeHelp + "Examples:\n" +
		"  millrace topology 127.0.0.1:7070 dp=4 tp=2 --step 2000\n" +
		"  millrace topology 127.0.0.1:7070 dp=2 --from checkpoint/data.token\n" +
		"  millrace topology 127.0.0.1:7070 dp=2 --from-step 1500 --save-token data.token"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *topologyCmd) Validate() (err error) {
	if c.Address == "" { // kong says that it is missing
		return nil
	}
	c.parsed.Topology, err = parsePairs(c.Axes, "dp=4", strconv.Atoi)
	return cmp.Or(err, c.changeFlags.check(c.parsed), c.fromFlag.check())
}

func (c *topologyCmd) Run(ctx context.Context) (err error) {
	if c.from, err = c.token(ctx, c.Address, c.askFlags); err != nil {
		return err
	}
	return c.make(ctx, c.Address, c.parsed)
}

type skipCmd struct {
	toService
	Steps int64 `help:"Steps whose data is skipped." required:"" placeholder:"N"`
	changeFlags
}

// Help is printed below the usage line.
func (*skipCmd) Help() string {
	return "Skips the data of N steps, for example after a loss spike: steps keep their numbers, and the data of those from --step on is never used. " +
		"The step log names what was skipped. " + changeHelp + "Example:\n  millrace skip 127.0.0.1:7070 --steps 200 --reason 'loss spike at 12400'"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *skipCmd) Validate() error {
	if c.Address == "" { // kong says that it is missing
		return nil
	}
	return cmp.Or(atLeast("--steps", c.Steps, 1), c.check(change.Change{Skip: max(c.Steps, 1)}))
}

func (c *skipCmd) Run(ctx context.Context) error {
	return c.make(ctx, c.Address, change.Change{Skip: c.Steps})
}

type banCmd struct {
	toService
	Source string `arg:"" help:"Name of the source."`
	File   string `arg:"" help:"Its file: the path, or a suffix that no other file has."`
	Row    int64  `arg:"" help:"The record: its row or number in the file; for JSON lines and text its byte offset. millrace explain prints it."`
	changeFlags
}

// Help is printed below the usage line.
func (*banCmd) Help() string {
	return "Excludes one record from its source: no sample of it is used from the step on, in this epoch and later ones. " +
		changeHelp + "Example:\n  millrace ban 127.0.0.1:7070 web part-7.jsonl 1200 --reason 'personal data'"
}

func (c *banCmd) change() change.Change {
	return change.Change{Ban: &change.Record{Source: c.Source, File: c.File, Row: c.Row}}
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *banCmd) Validate() error {
	if c.File == "" { // kong says that it is missing
		return nil
	}
	return c.check(c.change())
}

func (c *banCmd) Run(ctx context.Context) error { return c.make(ctx, c.Address, c.change()) }
