package cli

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/checkpoint/mirror"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object"
	"github.com/millrace-data/millrace/internal/planner/token"
)

// logCmd is the group of verbs about step logs and their mirrors.
type logCmd struct {
	Read   logReadCmd   `cmd:"" help:"Print what a step log holds."`
	Check  logCheckCmd  `cmd:"" help:"Check a step log, its mirror, or both."`
	Repair logRepairCmd `cmd:"" help:"Repair a step log from its mirror, or a mirror from its log."`
	Export logExportCmd `cmd:"" help:"Write all that a step log holds as JSON lines."`
}

// logFlags say where a log is.
type logFlags struct {
	LogDir    string `help:"Folder of the step log." type:"path" placeholder:"DIR"`
	LogMirror string `help:"Mirror of the step log: the URL given to serve." placeholder:"URL" env:"MILLRACE_LOG_MIRROR"`
}

// branchFlag says which steps of a log.
type branchFlag struct {
	Branch *uint64 `help:"Print the steps that lead to the end of this branch. Default: of a folder, the branch that is written; of a mirror, all in the order in which they were written." placeholder:"N"`
}

// one wants one of the two.
func (f *logFlags) one() error {
	if (f.LogDir == "") == (f.LogMirror == "") {
		return errors.New("give --log-dir or --log-mirror, one of the two")
	}
	return nil
}

const notRunning = "The folder of a running service cannot be read; its mirror can.\n\n"

// entry is one thing that a log holds, as JSON has it.
type entry struct {
	Kind   string          `json:"kind"` // step, digest, change, generation, epoch, branch, truncate, trim
	Slot   *uint64         `json:"slot,omitempty"`
	Number *uint64         `json:"number,omitempty"` // of an epoch, a generation or a branch
	Parent *uint64         `json:"parent,omitempty"` // of a branch: which has the steps before Step
	Step   *int64          `json:"step,omitempty"`
	Next   *int64          `json:"next,omitempty"` // of a branch: it ends before
	Record []byte          `json:"record,omitempty"`
	Frame  []byte          `json:"key_frame,omitempty"`
	Digest string          `json:"digest,omitempty"`
	Change json.RawMessage `json:"change,omitempty"`
	Plan   string          `json:"plan,omitempty"` // digest of the step's plan
	Bytes  int             `json:"bytes,omitempty"`
}

// entryOf is an operation as an entry.
func entryOf(op checkpoint.Op) (e entry, err error) {
	switch op := op.(type) {
	case checkpoint.Append:
		e = entry{Kind: "step", Step: &op.Step, Record: op.Record, Frame: op.Frame, Bytes: len(op.Record) + len(op.Frame)}
		record, err := token.DecodeRecord(op.Record)
		if err != nil {
			return e, fmt.Errorf("the record of step %d: %w", op.Step, err)
		}
		e.Plan = hex.EncodeToString(record.Plan[:])
	case checkpoint.SetDigest:
		e = entry{Kind: "digest", Step: &op.Step, Digest: hex.EncodeToString(op.Digest[:])}
	case checkpoint.Truncate:
		e = entry{Kind: "truncate", Step: &op.From}
	case checkpoint.Fork:
		e = entry{Kind: "branch", Number: &op.Number, Parent: &op.Parent, Step: &op.From}
	case checkpoint.Trim:
		e = entry{Kind: "trim", Step: &op.Before}
	case checkpoint.InBranch:
		e = entry{Kind: "branch", Number: &op.Number}
	case checkpoint.AddChange:
		e = entry{Kind: "change", Change: op.Change}
	case checkpoint.Fence:
		e = entry{Kind: "epoch", Number: &op.Epoch}
	case checkpoint.SetGeneration:
		e = entry{Kind: "generation", Number: &op.Number, Step: &op.Step}
	}
	return e, nil
}

// String is an entry as a line of text.
func (e entry) String() string {
	line := fmt.Sprintf("%-10s", e.Kind)
	if e.Slot != nil {
		line = fmt.Sprintf("%6d  %s", *e.Slot, line)
	}
	if e.Number != nil {
		line += fmt.Sprintf(" %d", *e.Number)
	}
	if e.Step != nil {
		line += fmt.Sprintf(" step %d", *e.Step)
	}
	if e.Next != nil && *e.Next > *e.Step {
		line += fmt.Sprintf(" to %d", *e.Next-1)
	} else if e.Next != nil {
		line += ", none yet"
	}
	if e.Parent != nil {
		line += fmt.Sprintf(", after those of branch %d", *e.Parent)
	}
	switch {
	case e.Plan != "":
		line += fmt.Sprintf(" plan %.16s %d bytes", e.Plan, e.Bytes)
		if e.Frame != nil {
			line += " with a key frame"
		}
	case e.Digest != "":
		line += " " + e.Digest
	case e.Change != nil:
		line += " " + string(e.Change)
	}
	return line
}

// each calls fn with all that the log or the mirror holds, or with the steps of a branch only.
func (f *logFlags) each(ctx context.Context, branch *uint64, fn func(entry) error) error {
	if f.LogMirror != "" {
		store, err := object.Open(f.LogMirror)
		if err != nil {
			return err
		}
		of := func(checkpoint.Op) bool { return true }
		if branch != nil {
			if of, err = stepsOf(ctx, store, *branch); err != nil {
				return err
			}
		}
		return mirror.Walk(ctx, store, func(slot, _ uint64, op checkpoint.Op) error {
			if !of(op) {
				return nil
			}
			e, err := entryOf(op)
			if err != nil {
				return err
			}
			e.Slot = &slot
			return fn(e)
		})
	}
	log, err := checkpoint.Open(f.LogDir, checkpoint.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	steps := checkpoint.Steps(log)
	if branch != nil {
		steps, err = log.Branch(*branch)
	}
	if err == nil {
		err = eachOf(log, steps, fn)
	}
	return errors.Join(err, log.Close())
}

// stepsOf says which operations of a mirror are of the steps that lead to the end of a branch, or
// of no step. It is to be asked about all of them, in order.
func stepsOf(ctx context.Context, store object.Store, branch uint64) (of func(checkpoint.Op) bool, err error) {
	all := checkpoint.NewHistory()
	err = mirror.Walk(ctx, store, func(_, _ uint64, op checkpoint.Op) error {
		all.Follow(op)
		return nil
	})
	if err == nil {
		_, err = all.Find(branch)
	}
	now := checkpoint.NewHistory()
	return func(op checkpoint.Op) bool {
		own, step, ok := now.Follow(op)
		return !ok || all.Has(branch, own, step)
	}, err
}

// eachOf calls fn with all that a log holds: epochs, generations, changes and branches, then
// steps.
func eachOf(log checkpoint.Reader, steps checkpoint.Steps, fn func(entry) error) error {
	var ops []checkpoint.Op
	epochs, err := log.Epochs()
	generations, err2 := log.Generations()
	changes, err3 := log.Changes()
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	for _, e := range epochs {
		ops = append(ops, checkpoint.Fence{Epoch: e.Number})
	}
	for _, g := range generations {
		ops = append(ops, checkpoint.SetGeneration{Generation: g})
	}
	for _, c := range changes {
		ops = append(ops, checkpoint.AddChange{Change: c})
	}
	put := func(op checkpoint.Op) error {
		e, err := entryOf(op)
		if err != nil {
			return err
		}
		return fn(e)
	}
	for _, op := range ops {
		if err := put(op); err != nil {
			return err
		}
	}
	for _, b := range log.Branches() {
		e := entry{Kind: "branch", Number: &b.Number, Step: &b.From, Next: &b.Next}
		if b.Parent != b.Number {
			e.Parent = &b.Parent
		}
		if err := fn(e); err != nil {
			return err
		}
	}
	return steps.Records(0, math.MaxInt64, func(step int64, record []byte) error {
		op := checkpoint.Append{Step: step, Record: record}
		at, frame, ok, err := steps.Frame(step)
		if ok && at == step {
			op.Frame = frame
		}
		digest, digested, err2 := steps.ReadDigest(step)
		if err := errors.Join(err, err2, put(op)); err != nil || !digested {
			return err
		}
		return put(checkpoint.SetDigest{Step: step, Digest: digest})
	})
}

type logReadCmd struct {
	logFlags
	branchFlag
	JSON bool `name:"json" help:"Print one JSON object per line."`
}

// Help is printed below the usage line.
func (*logReadCmd) Help() string {
	return "Prints epochs, generations, changes and steps, with the digest of each step's plan and the digest of what was delivered. " +
		"When a job goes back, its log goes on in another branch; the steps that were left are kept in the one before, which --branch prints. " +
		"A mirror is printed in the order in which it was written, with all branches. " + notRunning +
		"Examples:\n  millrace log read --log-dir /var/lib/millrace/job --branch 0\n  millrace log read --log-dir /var/lib/millrace/job\n  millrace log read --log-mirror s3://bucket/job --json"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *logReadCmd) Validate() error { return c.one() }

func (c *logReadCmd) Run(ctx context.Context) error {
	out := bufio.NewWriter(stdout)
	err := c.each(ctx, c.Branch, func(e entry) error {
		if !c.JSON {
			_, err := fmt.Fprintln(out, e)
			return err
		}
		e.Record, e.Frame = nil, nil
		return writeJSON(out, e)
	})
	return firstOf(err, out.Flush())
}

func writeJSON(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err == nil {
		_, err = w.Write(append(line, '\n'))
	}
	return err
}

type logExportCmd struct {
	logFlags
	branchFlag
	Out string `help:"File to write; - is standard output." default:"-" placeholder:"FILE"`
}

// Help is printed below the usage line.
func (*logExportCmd) Help() string {
	return "Writes what `millrace log read --json` prints, with all records and key frames (base64). " + notRunning +
		"Example:\n  millrace log export --log-dir /var/lib/millrace/job --out job.jsonl"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *logExportCmd) Validate() error { return c.one() }

func (c *logExportCmd) Run(ctx context.Context) error {
	if c.Out == "-" {
		return c.export(ctx, stdout)
	}
	var exported error
	err := replaceBy(c.Out, 0o644, func(file io.Writer) error {
		exported = c.export(ctx, exportFile{file, c.Out})
		return exported
	})
	if exported != nil || err == nil {
		return exported
	}
	return exportOutput.unwritable(c.Out, err)
}

func (c *logExportCmd) export(ctx context.Context, to io.Writer) error {
	out := bufio.NewWriter(to)
	err := c.each(ctx, c.Branch, func(e entry) error { return writeJSON(out, e) })
	return firstOf(err, out.Flush())
}

// exportFile tells the errors of the file from those of the log.
type exportFile struct {
	io.Writer
	path string
}

func (f exportFile) Write(text []byte) (int, error) {
	n, err := f.Writer.Write(text)
	if err != nil {
		err = exportOutput.unwritable(f.path, err)
	}
	return n, err
}

type logCheckCmd struct{ logFlags }

// Help is printed below the usage line.
func (*logCheckCmd) Help() string {
	return "Reads all of a log: the folder's checksums and high-water mark, the mirror's checksums and chain, and whether the two go together. " +
		"Nothing is written. What is damaged is printed, and the exit code is 3 then. " + notRunning +
		"Example:\n  millrace log check --log-dir /var/lib/millrace/job --log-mirror s3://bucket/job"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *logCheckCmd) Validate() error {
	if c.LogDir == "" && c.LogMirror == "" {
		return errors.New("give --log-dir, --log-mirror or both")
	}
	return nil
}

func (c *logCheckCmd) Run(ctx context.Context) error {
	var errs []error
	if c.LogDir != "" {
		errs = append(errs, checkFolder(c.LogDir))
	}
	if c.LogMirror != "" {
		errs = append(errs, checkMirrorAt(ctx, c.LogMirror))
	}
	err := errors.Join(errs...)
	if err == nil && len(errs) == 2 {
		err = c.compare(ctx)
	}
	return err
}

// compare finds out whether folder and mirror go together.
func (c *logCheckCmd) compare(ctx context.Context) error {
	store, err := object.Open(c.LogMirror)
	if err != nil {
		return err
	}
	behind, err := mirror.Compare(ctx, mirror.Options{Dir: c.LogDir, Store: store})
	if err == nil && behind {
		fmt.Fprintf(stdout, "the folder %s is behind its mirror, or has what never reached it: a planner brings it to where the mirror stands, and so does `millrace log repair`\n", c.LogDir)
	}
	return err
}

func checkFolder(dir string) error {
	log, err := checkpoint.Open(dir, checkpoint.Options{ReadOnly: true, Whole: true})
	if err != nil {
		return err
	}
	first, _ := log.First()
	last, some := log.Last()
	steps := "no step"
	if some {
		steps = fmt.Sprintf("steps %d to %d", first, last)
	}
	fmt.Fprintf(stdout, "the folder %s is whole: %s, epoch %d\n", dir, steps, log.Epoch())
	if some {
		for _, b := range log.Branches() {
			fmt.Fprintln(stdout, b)
		}
	}
	return log.Close()
}

func checkMirrorAt(ctx context.Context, url string) error {
	store, err := object.Open(url)
	if err != nil {
		return err
	}
	r, err := mirror.Check(ctx, store)
	if err != nil {
		return err
	}
	for _, d := range r.Damage {
		fmt.Fprintln(stdout, "damaged:", d)
	}
	switch {
	case r.Readable != nil:
		return r.Readable
	case len(r.Damage) > 0:
		return fault.Userf("the mirror %s has %d damaged objects, which a planner does not need to go on: `millrace log export` may miss what is in them", store, len(r.Damage))
	}
	fmt.Fprintf(stdout, "the mirror %s is whole: %d segments, %d packs, %d key frames, epoch %d\n", store, r.Slots, r.Packs, len(r.Frames), r.Epoch)
	return nil
}

type logRepairCmd struct{ logFlags }

// Help is printed below the usage line.
func (*logRepairCmd) Help() string {
	return "Makes the folder again from the mirror where it is damaged, missing or behind; the old one is kept as DIR.replaced, or in DIR/replaced if DIR is a mount point or a link. " +
		"A mirror that cannot be read gets a key frame from the folder, if the folder's last write is the mirror's last segment. " +
		"What neither has whole is refused: nothing is guessed. Stop the service first.\n\n" +
		"Example:\n  millrace log repair --log-dir /var/lib/millrace/job --log-mirror s3://bucket/job"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *logRepairCmd) Validate() error {
	if c.LogDir == "" || c.LogMirror == "" {
		return errors.New("give --log-dir and --log-mirror: each is repaired from the other")
	}
	return nil
}

func (c *logRepairCmd) Run(ctx context.Context, log *slog.Logger) error {
	if err := mirror.CheckApart(c.LogDir, c.LogMirror); err != nil {
		return err
	}
	store, err := object.Open(c.LogMirror)
	if err != nil {
		return err
	}
	did, err := mirror.Repair(ctx, mirror.Options{Dir: c.LogDir, Log: checkpoint.Options{Logger: log}, Store: store})
	if err == nil {
		fmt.Fprintln(stdout, did)
	}
	return err
}
