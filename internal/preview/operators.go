package preview

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/millrace-data/millrace/internal/sourceloader"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// OperatorPlan is how loaders carry out the sources of a job. Its JSON form is part of the contract of
// `millrace plan --operators --json`; fields are added, never changed.
type OperatorPlan struct {
	Job          string                   `json:"job"`
	LoaderBuffer int64                    `json:"loader_buffer"` // bytes
	Workers      int                      `json:"workers"`       // of each environment of functions, on this machine
	Sources      []*sourceloader.Physical `json:"sources"`
}

// Operators puts the first n records of every source, none behind its first chunk, through its chain, and
// tells how loaders carry the chain out and about how many bytes its stages give. workers are those of an
// environment of functions; 0: as many as there are processors.
func Operators(ctx context.Context, st store.Store, functions transform.Functions, job *jobspec.Job, workers int, n int64) (*OperatorPlan, error) {
	p := &OperatorPlan{Job: job.Name, LoaderBuffer: job.Resources.LoaderBuffer, Workers: workers}
	if workers == 0 {
		p.Workers = runtime.GOMAXPROCS(0)
	}
	shared := transform.NewShared(job.Seed, functions)
	for i := range job.Sources {
		src, err := sourceloader.Open(ctx, st, job, i, shared)
		if err != nil {
			return nil, err
		}
		physical, err := src.Physical(ctx, st, job.Resources.LoaderBuffer, n)
		if err != nil {
			return nil, err
		}
		p.Sources = append(p.Sources, physical)
	}
	return p, nil
}

// String is the page that `millrace plan --operators` prints.
func (p *OperatorPlan) String() string {
	var b strings.Builder
	for i, s := range p.Sources {
		if i > 0 {
			b.WriteByte('\n')
		}
		p.source(&b, s)
	}
	return b.String()
}

func (p *OperatorPlan) source(b *strings.Builder, s *sourceloader.Physical) {
	fmt.Fprintf(b, "source %s: %s, %s of %s in %s, %s of up to %s an epoch; %s\n", s.Source, s.Format, Count(s.Files, "file"), size(s.Bytes),
		Count(s.Chunks, "chunk"), Count(s.Blocks, "block"), Count(s.BlockChunks, "chunk"), records(s))
	if s.Partition > 0 {
		fmt.Fprintf(b, "batches between stages: %s; workers of an environment: %d on this machine\n", size(s.Partition), p.Workers)
	}
	b.WriteByte('\n')
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "  stage\truns in\tneeds\tgives an epoch\toperators\n")
	for k := range s.Stages {
		st := &s.Stages[k]
		where, what := "loader", strings.Join(st.Operators, ", ")
		if st.Function != "" {
			where, what = "worker processes", withFunction(st)
			if slices.Contains(st.Operators, (*jobspec.Call)(nil).Operator()) {
				where = "model server"
			}
		}
		gives := "not known"
		if st.Bytes >= 0 {
			gives = size(st.Bytes)
		}
		fmt.Fprintf(w, "  %d\t%s\t%s\t%s\t%s\n", k+1, where, needs(st.Needs), gives, what)
	}
	w.Flush()
	for k := range s.Stages {
		st := &s.Stages[k]
		fmt.Fprintf(b, "  %d: %s", k+1, st.Why)
		if st.Runtime != "" {
			fmt.Fprintf(b, "; run by %s, versions that are in no digest", st.Runtime)
		}
		b.WriteByte('\n')
	}
}

// withFunction names the operators of a stage, and the function behind that which runs it.
func withFunction(st *sourceloader.PhysicalStage) string {
	var words []string
	for _, name := range st.Operators {
		if o := jobspec.OperatorOf(name); o != nil && o.Worker {
			name += " " + st.Function
		}
		words = append(words, name)
	}
	return strings.Join(words, ", ")
}

func records(s *sourceloader.Physical) string {
	tried := fmt.Sprintf("the first %d tried", s.Tried)
	if s.Bad > 0 {
		tried += fmt.Sprintf(", %d of them bad", s.Bad)
	}
	switch {
	case s.Exact:
		return Count(s.Records, "record") + ", " + tried
	case s.Records >= 0:
		return "about " + Count(s.Records, "record") + ", " + tried
	}
	return "records not counted, " + tried
}

func needs(slots map[string]float64) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(slots)) {
		words = append(words, fmt.Sprintf("%s %g", name, slots[name]))
	}
	return max(strings.Join(words, ", "), "-")
}

// size is a number of bytes for a person.
func size(n int64) string {
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	if n < 1<<10 {
		return Count(n, "byte")
	}
	x, k := float64(n)/(1<<10), 0
	for ; x >= 1<<10 && k+1 < len(units); k++ {
		x /= 1 << 10
	}
	return fmt.Sprintf("%.1f %s", x, units[k])
}
