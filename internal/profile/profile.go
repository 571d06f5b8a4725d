// Package profile says what the sources of a job cost to read: a worker's time and bytes by
// stage, the samples and tokens of a record, the memory of what stays open and of a block.
//
// It owns the numbers, how those of several readings add up, their table and their file. It
// measures nothing and decides nothing: loaders measure, package sizing decides. No byte of a
// batch depends on a profile: a job with another one, or with none, delivers the same.
package profile

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/jobspec"
)

// Profile is what the sources of a job cost. It is not safe for concurrent use.
type Profile struct {
	Job     string   `json:"job"`
	Sources []Source `json:"sources"` // by name
}

// Source is what some records of a source cost to read. Counts and times are sums over these
// records; what is said of memory is that of one open source and of its last block.
type Source struct {
	Name    string  `json:"name"`
	Recipe  string  `json:"recipe"` // of its records: costs of another chain are no costs of this one
	Records int64   `json:"records"`
	Skipped int64   `json:"records_skipped,omitempty"` // of them, bad ones that were left out; of a service that runs, its status has them
	Samples int64   `json:"samples"`
	Tokens  int64   `json:"tokens"`
	Bytes   int64   `json:"bytes_read"`            // of files, for these records
	Seconds float64 `json:"seconds"`               // that workers of loaders took, all stages together
	CPU     float64 `json:"cpu_seconds,omitempty"` // in which they or their functions computed; of a service that runs, in which they did not wait for the store; 0: not known
	Stages  []Stage `json:"stages"`                // in the order of the work

	StateBytes  int64 `json:"state_bytes,omitempty"`  // of the open source: files, footers, chain; 0: not known
	ReaderBytes int64 `json:"reader_bytes,omitempty"` // of what one worker has open and buffered; 0: not known
	BlockBytes  int64 `json:"block_bytes,omitempty"`  // of the samples of one block; 0: not known
	Blocks      int64 `json:"blocks,omitempty"`       // of an epoch; 0: not known
}

// Stage is a part of the work: open, read, decode, a step of the chain, samples.
type Stage struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Bytes   int64   `json:"bytes"` // that it gave to the next
}

// RecipeOf names what decides what each record of a source costs.
func RecipeOf(s *jobspec.Source) string {
	sum := sha256.Sum256(s.Recipe())
	return hex.EncodeToString(sum[:8])
}

// Of is what the profile says of a source; nil if that is nothing, or of another recipe. p may be nil.
func (p *Profile) Of(s *jobspec.Source) *Source {
	if p == nil {
		return nil
	}
	i, ok := p.find(s.Name)
	if !ok || p.Sources[i].Recipe != RecipeOf(s) || p.Sources[i].Samples == 0 {
		return nil
	}
	return &p.Sources[i]
}

// Lacks says what the profile does not know of some sources; nil if it covers them.
func (p *Profile) Lacks(sources []jobspec.Source) error {
	at := slices.IndexFunc(sources, func(s jobspec.Source) bool { return p.Of(&s) == nil })
	if at < 0 {
		return nil
	}
	s := &sources[at]
	if i, ok := p.find(s.Name); ok && p.Sources[i].Recipe == RecipeOf(s) {
		return fault.Userf("source %q: none of the %d records that were measured gave a sample, so what its samples cost is not known: measure more, with `millrace profile --records N --out FILE`, and give that to --profile; or see what its steps leave out", s.Name, p.Sources[i].Records)
	}
	return fault.Userf("the profile lacks source %q, or it is of other steps: measure it again, with `millrace profile`", s.Name)
}

// Covers says whether the profile knows each of some sources.
func (p *Profile) Covers(sources []jobspec.Source) bool {
	return !slices.ContainsFunc(sources, func(s jobspec.Source) bool { return p.Of(&s) == nil })
}

func (p *Profile) find(name string) (int, bool) {
	return slices.BinarySearchFunc(p.Sources, name, func(s Source, name string) int { return strings.Compare(s.Name, name) })
}

// Add takes in what more records of a source cost. Those of another recipe replace what was
// known.
func (p *Profile) Add(more Source) {
	i, known := p.find(more.Name)
	if !known {
		p.Sources = slices.Insert(p.Sources, i, more)
		p.Sources[i].Stages = slices.Clone(more.Stages)
		return
	}
	s := &p.Sources[i]
	if s.Recipe != more.Recipe {
		*s = more
		s.Stages = slices.Clone(more.Stages)
		return
	}
	s.Records, s.Skipped = s.Records+more.Records, s.Skipped+more.Skipped
	s.Samples, s.Tokens, s.Bytes = s.Samples+more.Samples, s.Tokens+more.Tokens, s.Bytes+more.Bytes
	s.CPU, more.CPU = cmp.Or(s.CPU, s.Seconds*more.Busy()), cmp.Or(more.CPU, more.Seconds*s.Busy()) // where one does not know it
	s.Seconds, s.CPU = s.Seconds+more.Seconds, s.CPU+more.CPU
	for _, st := range more.Stages {
		s.Stage(st)
	}
	for _, m := range []struct{ of, new *int64 }{
		{&s.StateBytes, &more.StateBytes}, {&s.ReaderBytes, &more.ReaderBytes}, {&s.BlockBytes, &more.BlockBytes}, {&s.Blocks, &more.Blocks},
	} {
		if *m.new != 0 {
			*m.of = *m.new
		}
	}
}

// LastStage is the name of the stage behind all others.
const LastStage = "samples"

// Stage adds to a stage of the same name, or behind all others.
func (s *Source) Stage(more Stage) {
	at := slices.IndexFunc(s.Stages, func(x Stage) bool { return x.Name == more.Name })
	if n := len(s.Stages); at < 0 && n > 0 && s.Stages[n-1].Name == LastStage { // the first records were filtered out
		s.Stages = slices.Insert(s.Stages, n-1, more)
		return
	} else if at < 0 {
		s.Stages = append(s.Stages, more)
		return
	}
	s.Stages[at].Seconds += more.Seconds
	s.Stages[at].Bytes += more.Bytes
}

// Fade has what is known weigh no more than some records, so that what is learned from now on
// counts: files, machines and neighbours change.
func (p *Profile) Fade(records int64) {
	for i := range p.Sources {
		s := &p.Sources[i]
		if s.Records <= records {
			continue
		}
		f := float64(records) / float64(s.Records)
		part := func(n int64) int64 { return int64(float64(n) * f) }
		s.Records, s.Skipped = records, part(s.Skipped)
		s.Samples, s.Tokens, s.Bytes = part(s.Samples), part(s.Tokens), part(s.Bytes)
		s.Seconds, s.CPU = s.Seconds*f, s.CPU*f
		for k := range s.Stages {
			s.Stages[k].Seconds *= f
			s.Stages[k].Bytes = part(s.Stages[k].Bytes)
		}
	}
}

// PerToken is a worker's time for a token of the source.
func (s *Source) PerToken() float64 { return ratio(s.Seconds, s.Tokens) }

// PerSample is a worker's time for a sample.
func (s *Source) PerSample() float64 { return ratio(s.Seconds, s.Samples) }

func ratio(a float64, n int64) float64 { return a / float64(max(n, 1)) }

// String is the table that `millrace profile` prints.
func (p *Profile) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "source\trecords\tsamples/record\ttokens/record\tread B/record\tµs/sample\tns/token\tCPU %\topen KiB\treader KiB\tblock KiB\t\n")
	for i := range p.Sources {
		s := &p.Sources[i]
		fmt.Fprintf(w, "%s\t%d\t%.2f\t%.1f\t%.0f\t%.1f\t%.1f\t%s\t%s\t%s\t%s\t\n", s.Name, s.Records, ratio(float64(s.Samples), s.Records), ratio(float64(s.Tokens), s.Records),
			ratio(float64(s.Bytes), s.Records), 1e6*s.PerSample(), 1e9*s.PerToken(), s.busy(), kib(s.StateBytes), kib(s.ReaderBytes), kib(s.BlockBytes))
	}
	w.Flush()
	w = tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "\nsource\tstage\tµs/sample\tpart\tgives B/sample\n")
	for i := range p.Sources {
		s := &p.Sources[i]
		for _, st := range s.Stages {
			fmt.Fprintf(w, "%s\t%s\t%.1f\t%.0f %%\t%.0f\n", s.Name, st.Name, 1e6*ratio(st.Seconds, s.Samples), 100*st.Seconds/max(s.Seconds, 1e-12), ratio(float64(st.Bytes), s.Samples))
		}
	}
	w.Flush()
	for i := range p.Sources {
		if s := &p.Sources[i]; s.Skipped > 0 {
			fmt.Fprintf(&b, "source %s: %d of %d records are bad and were left out, as bad_records says\n", s.Name, s.Skipped, s.Records)
		}
	}
	return b.String()
}

// Busy is the part of its time for which a worker computed; 0: not known.
func (s *Source) Busy() float64 { return s.CPU / max(s.Seconds, 1e-12) }

// busy is the same in the table.
func (s *Source) busy() string {
	if s.CPU == 0 || s.Seconds == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", 100*s.Busy())
}

func kib(n int64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", float64(n)/(1<<10))
}
