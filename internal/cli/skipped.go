package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/planner/token"
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

func (c *skippedCmd) Run(names compile.Registry) (err error) {
	job, err := load(names, c.Job)
	if err != nil {
		return err
	}
	log, err := checkpoint.Open(c.LogDir, checkpoint.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	last, ok := log.Last()
	if !ok {
		return nil
	}
	first, _ := log.First()
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	return log.Records(first, last+1, func(step int64, data []byte) error {
		record, err := token.DecodeRecord(data)
		if err != nil {
			return fmt.Errorf("step %d of the log in %s: %w", step, c.LogDir, err)
		}
		for _, s := range record.Skips {
			if err := out.Encode(skippedRecord{step, sourceName(job, int(s.Source)), s.File, s.Row, s.Reason}); err != nil {
				return err
			}
		}
		return nil
	})
}

// sourceName is the name of a source; one that joined the job has its number.
func sourceName(job *jobspec.Job, i int) string {
	if i < len(job.Sources) {
		return job.Sources[i].Name
	}
	return fmt.Sprintf("source %d, which joined", i)
}
