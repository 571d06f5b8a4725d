package cli

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/preview"
	"github.com/millrace-data/millrace/internal/reference"
)

type verifyCmd struct {
	Job    string `arg:"" help:"Job spec (YAML)." type:"path"`
	LogDir string `help:"Step log to check: the folder given to serve or run." type:"path" xor:"what" required:"" placeholder:"DIR"`
	Digest string `help:"Digest to check, in hex, with --steps." xor:"what" required:"" placeholder:"HEX"`
	Steps  int64  `help:"Step of the digest; with --log-dir, steps to check (0: all)." default:"0"`
	changesFlag
}

// Help is printed below the usage line.
func (*verifyCmd) Help() string {
	return "Computes the job again from the data and compares the digest of each step, and with a log also the bad records that its steps left out. A difference is exit code 5: the data, the spec or Millrace is not what it was. " +
		"A log that lacks an acknowledged record is exit code 3. The log of a running service cannot be read; stop it first.\n\n" +
		"Examples:\n" +
		"  millrace verify job.yaml --log-dir /var/lib/millrace/job\n" +
		"  millrace verify job.yaml --steps 20 --digest 227cece2b504..."
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *verifyCmd) Validate() error {
	if c.Digest == "" {
		return atLeast("--steps", c.Steps, 0)
	}
	if c.Steps < 1 {
		return errors.New("--digest needs --steps: the number N in `digest step=N HEX`")
	}
	if raw, err := hex.DecodeString(c.Digest); err != nil || len(raw) != 32 {
		return fmt.Errorf("--digest %s is not a digest: valid are the 64 hex digits of a line `digest step=N HEX`", c.Digest)
	}
	return nil
}

// differsError says where a log or a digest leaves the reference.
type differsError struct{ text string }

func (e *differsError) Error() string { return e.text }

func (c *verifyCmd) Run(ctx context.Context, names extensions) error {
	if c.Digest != "" {
		return c.digest(ctx, names)
	}
	return c.log(ctx, names)
}

func (c *verifyCmd) digest(ctx context.Context, names extensions) error {
	job, err := load(names, c.Job)
	if err != nil {
		return err
	}
	changes, err := c.possible(ctx, names, job)
	if err != nil {
		return err
	}
	progress := newCounter("computed", 0, c.Steps)
	n, digest, err := reference.ReadWith(ctx, sources(), names.reads(), job, changes, c.Steps, func(s *reference.Step) error {
		progress.at(s.Step)
		return ctx.Err()
	})
	progress.end()
	if err != nil {
		return err
	}
	if got := fmt.Sprintf("%x", digest); n != c.Steps || got != strings.ToLower(c.Digest) {
		return &differsError{fmt.Sprintf("the reference's digest is step=%d %s, not step=%d %s; `millrace reference %s --every` shows it step by step", n, got, c.Steps, c.Digest, c.Job)}
	}
	fmt.Fprintf(stdout, "verified %s\n", preview.Count(n, "step"))
	printDigest(stdout, n, digest)
	return nil
}

// log compares every digest that a step log holds with the reference's, and every bad record
// that it says a step left out.
func (c *verifyCmd) log(ctx context.Context, names extensions) error {
	job, err := load(names, c.Job)
	if err != nil {
		return err
	}
	manifests, err := reference.Manifests(ctx, sources(), names.reads(), job)
	if err != nil {
		return err
	}
	root := batch.Root(job.Identity(), batch.Combine(manifests))
	// Opened, the log has every record that was acknowledged, byte for byte.
	log, err := checkpoint.Open(c.LogDir, checkpoint.Options{Identity: root, ReadOnly: true, Whole: true})
	if err != nil {
		return err
	}
	defer log.Close()
	last, ok := log.Last()
	if !ok {
		return fault.Userf("the step log in %s holds no step", c.LogDir)
	}
	if c.Steps > 0 {
		last = min(last, c.Steps-1)
	}
	changes, err := c.changesOf(log)
	if err != nil {
		return err
	}
	ledger, err := ledgerOf(log, c.LogDir, last+1)
	if err != nil {
		return err
	}
	progress := newCounter("verified", 0, last+1)
	defer progress.end()
	var checked int64
	var final [32]byte
	gaps := gaps{log: log}
	_, _, err = reference.ReadWith(ctx, sources(), names.reads(), job, changes, last+1, func(s *reference.Step) error {
		progress.at(s.Step)
		final = s.Digest
		logged, ok, err := log.ReadDigest(s.Step)
		switch {
		case err != nil:
			return err
		case ok && logged != s.Digest:
			return &differsError{fmt.Sprintf("step %d: the log has digest %x, the reference %x", s.Step, logged, s.Digest)}
		case ok:
			checked++
		default:
			gaps.add(s.Step)
		}
		if err := ledger.compare(s); err != nil {
			return err
		}
		return ctx.Err()
	})
	progress.end()
	if err != nil {
		return err
	}
	c.report(log, checked, ledger.records, last, gaps)
	printDigest(stdout, last+1, final)
	return nil
}

// report says what of the steps up to a last one was checked, and what was not.
func (c *verifyCmd) report(log checkpoint.Reader, checked, records, last int64, gaps gaps) {
	what := preview.Count(checked, "digest")
	if records > 0 {
		what += fmt.Sprintf(" and %s that were left out,", preview.Count(records, "bad record"))
	}
	fmt.Fprintf(stdout, "verified %s of %s in %s\n", what, preview.Count(last+1, "step"), c.LogDir)
	for _, line := range gaps.lines(last) {
		fmt.Fprintln(stdout, line)
	}
	if left := len(log.Branches()) - 1; left > 0 {
		fmt.Fprintf(stdout, "the job went back %s: steps that it left are not among these, `millrace log read --branch N` prints them\n", preview.Count(int64(left), "time"))
	}
}

// changesOf are the changes in a log, and those that are given beside it.
func (c *verifyCmd) changesOf(log checkpoint.Reader) ([]change.Change, error) {
	changes, err := preview.ChangesOf(log)
	if err != nil {
		return nil, err
	}
	more, err := c.changes()
	if err != nil {
		return nil, err
	}
	changes = append(changes, change.Without(more, changes)...)
	change.Sort(changes)
	return changes, nil
}

// gaps are the steps of which a log has no digest.
type gaps struct {
	log checkpoint.Reader
	all [][2]int64 // first and last
}

// add takes the steps in their order.
func (g *gaps) add(step int64) {
	first, _ := g.log.First()
	if n := len(g.all); n > 0 && g.all[n-1][1] == step-1 && step != first {
		g.all[n-1][1] = step
		return
	}
	g.all = append(g.all, [2]int64{step, step})
}

// lines say which steps were not checked, of those up to a last one, and why.
func (g *gaps) lines(last int64) (lines []string) {
	for _, gap := range g.all {
		what := fmt.Sprintf("steps %d to %d were", gap[0], gap[1])
		if gap[0] == gap[1] {
			what = fmt.Sprintf("step %d was", gap[0])
		}
		lines = append(lines, fmt.Sprintf("%s not checked: %s", what, g.why(gap, last)))
	}
	return lines
}

func (g *gaps) why(gap [2]int64, last int64) string {
	first, _ := g.log.First()
	end, _ := g.log.Last()
	left := func(b checkpoint.Branch) bool { return b.From <= gap[1] && gap[0] < b.Next }
	all := g.log.Branches()
	switch {
	case gap[1] < first && first <= g.log.Trimmed():
		return fmt.Sprintf("the log let go of those before step %d (--log-retain)", first)
	case gap[1] < first && slices.ContainsFunc(all[:len(all)-1], left):
		return fmt.Sprintf("the branch that is written begins with step %d, as the job went on there from a token to which no branch of the log leads", first)
	case gap[1] < first:
		return fmt.Sprintf("the log begins with step %d: the job came there from a token of another log, or the folder was filled from the mirror, of which `millrace log repair --log-dir NEW --log-mirror URL` makes one with all", first)
	case gap[1] == end && last == end:
		return "planned, and not delivered when the service stopped"
	}
	return "the log has no digest of what was delivered"
}
