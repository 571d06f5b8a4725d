package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/planner/token"
	"github.com/millrace-data/millrace/internal/reference"
	"github.com/millrace-data/millrace/jobspec"
)

type skippedCmd struct {
	Job    string `arg:"" help:"Job spec (YAML)." type:"path"`
	LogDir string `help:"Step log: the folder given to serve or run." type:"path" required:"" placeholder:"DIR"`
}

// Help is printed below the usage line.
func (*skippedCmd) Help() string {
	return "Prints the skip ledger of a job: every bad record that its steps left out, by the step that was the first to leave it out, one JSON object per line. " +
		"A record is in the log before a batch without it is delivered. The log of a running service cannot be read; its status counts the records and names the last of each source.\n\n" +
		"Example:\n  millrace skipped job.yaml --log-dir /var/lib/millrace/job"
}

// skippedRecord is a line of the ledger.
type skippedRecord struct {
	Step   int64  `json:"step"`
	Source string `json:"source"`
	File   string `json:"file"`
	Row    int64  `json:"row"`
	Reason string `json:"reason"`
}

func (c *skippedCmd) Run(names extensions) (err error) {
	job, err := load(names, c.Job)
	if err != nil {
		return err
	}
	log, err := checkpoint.Open(c.LogDir, checkpoint.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	out := json.NewEncoder(stdout)
	out.SetEscapeHTML(false)
	return eachSkip(log, c.LogDir, math.MaxInt64, func(step int64, skips []token.Skip) error {
		for _, s := range skips {
			if err := out.Encode(skippedRecord{step, sourceName(job, int(s.Source)), s.File, s.Row, s.Reason}); err != nil {
				return err
			}
		}
		return nil
	})
}

// eachSkip calls fn with each step before the given one that a log holds, and what it left out.
func eachSkip(log checkpoint.Reader, dir string, before int64, fn func(step int64, skips []token.Skip) error) error {
	first, _ := log.First()
	last, ok := log.Last()
	if !ok {
		return nil
	}
	return log.Records(first, min(before, last+1), func(step int64, data []byte) error {
		record, err := token.DecodeRecord(data)
		if err != nil {
			return fmt.Errorf("step %d of the log in %s: %w", step, dir, err)
		}
		return fn(step, record.Skips)
	})
}

// ledger is what the steps of a log left out, to be compared with the reference.
type ledger struct {
	first, last int64 // steps that the log has
	skips       map[int64][]token.Skip
	records     int64 // in all
}

func ledgerOf(log checkpoint.Reader, dir string, before int64) (*ledger, error) {
	l := &ledger{skips: map[int64][]token.Skip{}}
	l.first, _ = log.First()
	err := eachSkip(log, dir, before, func(step int64, skips []token.Skip) error {
		l.last = step
		if len(skips) > 0 {
			l.skips[step] = skips
			l.records += int64(len(skips))
		}
		return nil
	})
	return l, err
}

// compare says where the log and the reference differ in what a step is the first to leave out.
func (l *ledger) compare(s *reference.Step) error {
	if s.Step < l.first || s.Step > l.last {
		return nil
	}
	logged, at := l.skips[s.Step], 0 // both in the order of reading
	for at < min(len(logged), len(s.Skipped)) && sameRecord(logged[at], s.Skipped[at]) {
		at++
	}
	if at == len(logged) && at == len(s.Skipped) {
		return nil
	}
	if more := logged[at:]; len(more) > 0 && !slices.ContainsFunc(s.Skipped[at:], func(want reference.Skip) bool { return sameRecord(more[0], want) }) {
		x := more[0]
		return &differsError{fmt.Sprintf("step %d: %s: %s row %d: the log says that it was left out as a bad record (%s), and the reference does not leave it out in this step",
			s.Step, nameAt(s.Sources, int(x.Source)), x.File, x.Row, x.Reason)}
	}
	x := s.Skipped[at]
	return &differsError{fmt.Sprintf("step %d: %s: %s row %d: the reference leaves it out as a bad record (%s), and the log's ledger does not have it in this step, or not in this place",
		s.Step, nameAt(s.Sources, x.Source), x.File, x.Row, x.Reason)}
}

// nameAt is a source of a list, for a message.
func nameAt(names []string, i int) string {
	if i < len(names) {
		return fmt.Sprintf("source %q", names[i])
	}
	return fmt.Sprintf("source %d", i)
}

// sameRecord says whether the log and the reference, which may have read a copy of the
// files in another folder, name one record.
func sameRecord(x token.Skip, want reference.Skip) bool {
	return int(x.Source) == want.Source && x.Seq == want.Seq && x.Row == want.Row &&
		(x.File == want.File || x.File == want.Name || strings.HasSuffix(x.File, "/"+want.Name))
}

// sourceName is the name of a source; one that joined the job has its number.
func sourceName(job *jobspec.Job, i int) string {
	if i < len(job.Sources) {
		return job.Sources[i].Name
	}
	return fmt.Sprintf("source %d, which joined", i)
}
