package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-data/millrace/internal/didyoumean"
	"github.com/millrace-data/millrace/internal/preview"
	"github.com/millrace-data/millrace/jobspec"
	"github.com/millrace-data/millrace/planner/dgraph"
)

// defaultNodes of a graph are as many as a person can look at.
const defaultNodes = 64

type explainCmd struct {
	Job        string `arg:"" help:"Job spec (YAML)." type:"path"`
	Step       int64  `help:"Step to explain, from 0." default:"-1" placeholder:"N"`
	Rank       string `help:"Only what these ranks get: indices such as dp=0,cp=1. Axes not named: all." placeholder:"AXIS=I,..."`
	Microbatch int    `help:"Only this microbatch of each dp index, from 0." default:"-1" placeholder:"M"`
	File       string `help:"Reverse look-up: the steps of --steps that get records of this file, given by its path or a suffix." placeholder:"FILE"`
	Row        int64  `help:"With --file: only this record, as --step prints it: its row or number in the file, for JSON lines its byte offset." default:"-1" placeholder:"R"`
	Source     string `help:"With --file: only this source. Default: all sources that read the file." placeholder:"NAME"`
	Steps      string `help:"With --file: the range of steps A..B, inclusive." placeholder:"A..B"`
	Graph      bool   `help:"Print the step's graph as text."`
	Dot        bool   `help:"Print the step's graph in the DOT language of Graphviz."`
	Images     bool   `help:"With --graph or --dot: the graph of images instead of rows."`
	Limit      *int   `help:"With --graph or --dot: maximum number of nodes. Default 64." placeholder:"N"`
	JSON       bool   `name:"json" help:"Print one JSON object."`
	beginFlags

	rank     map[string]int
	from, to int64
}

// Help is printed below the usage line.
func (*explainCmd) Help() string {
	return "Plans the job again up to the step, as the service did, and prints for each document its source, file and record, " +
		"the piece of a long record, and its place in the row; or, with --file, the steps that get the records of a file. No service is needed. " +
		"For a job that ran with a log, give --log-dir: it holds the changes, and makes late steps fast.\n\n" +
		"Examples:\n" +
		"  millrace explain job.yaml --step 1200 --rank dp=3 --microbatch 0 --log-dir /var/lib/millrace/job\n" +
		"  millrace explain job.yaml --file part-7.jsonl --row 12 --steps 0..500\n" +
		"  millrace explain job.yaml --step 3 --dot | dot -Tsvg > step.svg"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *explainCmd) Validate() (err error) {
	switch {
	case (c.Step >= 0) == (c.File != ""):
		return errors.New("give --step N to explain a step, or --file FILE with --steps A..B to trace a file")
	case c.File != "" && (c.Graph || c.Dot || c.Rank != "" || c.Microbatch >= 0):
		return errors.New("--graph, --dot, --rank and --microbatch are for --step")
	case c.File == "" && (c.Row >= 0 || c.Source != "" || c.Steps != ""):
		return errors.New("--row, --source and --steps are for --file")
	case c.Images && !c.Graph && !c.Dot:
		return errors.New("--images is for --graph and --dot")
	case c.Limit != nil && !c.Graph && !c.Dot:
		return errors.New("--limit is for --graph and --dot")
	case c.Graph && c.Dot:
		return errors.New("--graph and --dot are two forms of one graph: give one of them")
	case c.JSON && (c.Graph || c.Dot):
		return errors.New("--json is not for --graph and --dot")
	}
	if err := c.beginFlags.check(); err != nil {
		return err
	}
	if c.rank, err = parseRank(c.Rank); err != nil || c.File == "" {
		return err
	}
	c.from, c.to, err = parseSteps(c.Steps)
	return err
}

var rankAxes = []string{"dp", "cp", "pp", "tp"}

// parseRank reads dp=0,cp=1.
func parseRank(text string) (map[string]int, error) {
	rank := map[string]int{}
	if text == "" {
		return rank, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		axis, index, _ := strings.Cut(strings.TrimSpace(part), "=")
		i, err := strconv.Atoi(index)
		_, twice := rank[axis]
		switch {
		case !slices.Contains(rankAxes, axis):
			if near := didyoumean.Nearest(axis, rankAxes); near != "" {
				return nil, fmt.Errorf("--rank %s names no axis %q, did you mean %q?", text, axis, near)
			}
			return nil, fmt.Errorf("--rank %s names no axis %q: valid is such as dp=0,cp=1,pp=0,tp=0", text, axis)
		case err != nil || i < 0 || twice:
			return nil, fmt.Errorf("--rank %s: valid is an index from 0 for each axis, once, such as dp=0,cp=1", text)
		}
		rank[axis] = i
	}
	return rank, nil
}

// parseSteps reads A..B, or a single step.
func parseSteps(text string) (from, to int64, err error) {
	a, b, ranged := strings.Cut(text, "..")
	if !ranged {
		b = a
	}
	from, errA := strconv.ParseInt(a, 10, 64)
	to, errB := strconv.ParseInt(b, 10, 64)
	if errA != nil || errB != nil || from < 0 || to < from {
		return 0, 0, fmt.Errorf("--steps %q is not a range of steps: valid is such as 0..100, the first not after the last", text)
	}
	return from, to, nil
}

// beginFlags say where a plan begins, and which changes were made.
type beginFlags struct {
	Resume string `help:"Plan from the position of this resume token, a file that --save-token wrote." type:"path" placeholder:"FILE"`
	LogDir string `help:"Plan from the nearest key frame of this step log, with the changes in it." type:"path" placeholder:"DIR"`
	changesFlag
}

func (f *beginFlags) check() error {
	if f.LogDir != "" && (f.Resume != "" || f.Changes != "") {
		return errors.New("--log-dir says where to begin and which changes were made: leave --resume and --changes out")
	}
	return nil
}

// open opens a job to be planned up to a step.
func (f *beginFlags) open(ctx context.Context, names extensions, job *jobspec.Job, step int64) (*preview.Job, error) {
	changes, err := f.changes()
	if err != nil {
		return nil, err
	}
	token, err := readToken(f.Resume)
	if err != nil {
		return nil, err
	}
	return preview.Open(ctx, preview.Options{Job: job, Changes: changes, Token: token, LogDir: f.LogDir, From: step, Registry: names.Registry, Functions: names.functions.Open})
}

func (c *explainCmd) Run(ctx context.Context, names extensions) error {
	job, err := load(names, c.Job)
	if err != nil {
		return err
	}
	j, err := c.open(ctx, names, job, max(c.Step, c.from))
	if err != nil {
		return err
	}
	progress := newCounter("planned", j.Start(), max(c.Step, c.to)+1-j.Start())
	defer progress.end()
	if c.File != "" {
		return c.trace(ctx, j, progress)
	}
	x, err := j.Explain(ctx, preview.Query{Step: c.Step, Rank: c.rank, Microbatch: c.Microbatch}, progress.at)
	progress.end()
	switch kind := dgraph.Text; {
	case err != nil:
		return err
	case c.Graph || c.Dot:
		if c.Images {
			kind = dgraph.Image
		}
		limit := defaultNodes
		if c.Limit != nil {
			limit = *c.Limit
		}
		return x.WriteGraph(ctx, stdout, kind, limit, c.Dot)
	case c.JSON:
		return printJSON(x)
	}
	c.print(job, j, x)
	return nil
}

func (c *explainCmd) trace(ctx context.Context, j *preview.Job, progress *counter) error {
	t, err := j.Trace(ctx, preview.FileQuery{Source: c.Source, File: c.File, Record: c.Row, From: c.from, To: c.to}, progress.at)
	progress.end()
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(t)
	}
	what := fmt.Sprintf("documents of %s", c.File)
	if c.Row >= 0 {
		what = fmt.Sprintf("documents of record %d of %s", c.Row, c.File)
	}
	fmt.Fprintf(stdout, "%s: %d %s\n", fromTo(t.From, t.To), len(t.Samples), what)
	if t.End >= 0 {
		fmt.Fprintf(stdout, "the data ends after %s\n", preview.Count(t.End, "step"))
	}
	if len(t.Samples) == 0 {
		return nil
	}
	w := newTable(stdout)
	fmt.Fprintf(w, "\nstep\tdp\tmicrobatch\trow\toffset\ttokens\tsource\trecord\tpiece\tepoch\tblock\tindex\t\n")
	for _, s := range t.Samples {
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%d\t%d\t%d\t\n", s.Step, s.DP, s.Microbatch, s.Row, s.Offset, s.Tokens, s.Source, recordOf(&s), pieceOf(&s), s.Epoch, s.Block, s.Index)
	}
	return w.Flush()
}

// recordOf prints the place of a record in its file.
func recordOf(s *preview.Sample) string { return fmt.Sprintf("%s %d", s.RecordUnit, s.Record) }

// pieceOf prints which piece of a split record a sample is.
func pieceOf(s *preview.Sample) string {
	if s.Pieces < 2 {
		return "-"
	}
	return fmt.Sprintf("%d of %d", s.Piece+1, s.Pieces)
}

// print prints an explanation, row by row in the order of delivery.
func (c *explainCmd) print(job *jobspec.Job, j *preview.Job, x *preview.Explanation) {
	split, consumers := job.Batch.ContextSplit, "dp index"
	if job.Pool() {
		consumers = "rank of dp x cp"
	}
	fmt.Fprintf(stdout, "step %d of %s, mesh %s: %d rows of %d tokens, %d microbatches for each %s\nplan %s\n",
		x.Step, job.Name, x.Mesh, x.Rows, x.RowTokens, x.Microbatches, consumers, x.Plan)
	for _, text := range x.Changes {
		fmt.Fprintf(stdout, "from this step on: %s\n", text)
	}
	if cp := job.Output.CPSlicing; split > 0 {
		fmt.Fprintf(stdout, "with context_split %d a row may have up to %d times as many tokens, for as many ranks of dp x cp that share it, dp by dp; pp and tp ranks get the same tokens\n", split, split)
	} else if job.Pool() {
		fmt.Fprintln(stdout, "each rank of dp x cp has rows of its own, which no other cp rank has a part of; pp and tp ranks get the same tokens")
	} else if strings.Contains(x.Mesh, "cp") && !strings.Contains(x.Mesh, "cp1") {
		fmt.Fprintf(stdout, "the cp ranks of a dp index share its rows, cut by cp_slicing %s; its pp and tp ranks get the same tokens\n", cp)
	}
	samples := x.Samples
	slices.SortStableFunc(samples, byDelivery)
	for len(samples) > 0 {
		n := 1
		for n < len(samples) && samples[n].Row == samples[0].Row {
			n++
		}
		printRow(samples[:n], x.RowTokens)
		samples = samples[n:]
	}
	for _, o := range x.Waiting {
		fmt.Fprintf(stdout, "\nwaits for others of its length: %d tokens of %s, block %d, index %d, since step %d", o.Tokens, o.Source, o.Block, o.Index, o.Since)
	}
	fmt.Fprintln(stdout)
	for _, words := range j.Words() {
		fmt.Fprintln(stdout, words)
	}
}

// shownRuns are the runs of tokens with loss that are printed of a document: a chat has one
// a turn.
const shownRuns = 8

func byDelivery(a, b preview.Sample) int {
	return slices.Compare([]int32{a.DP, a.CP, a.Microbatch, a.Position}, []int32{b.DP, b.CP, b.Microbatch, b.Position})
}

func printRow(samples []preview.Sample, room int32) {
	tokens := int32(0)
	for _, s := range samples {
		tokens += s.Tokens
	}
	first := &samples[0]
	ranks := fmt.Sprintf("dp=%d", first.DP)
	if first.Ranks > 0 {
		ranks, room = ranksOf(first), room*first.Ranks
	}
	fmt.Fprintf(stdout, "\n%s microbatch %d, row %d: %d documents, %d of %d tokens\n", ranks, first.Microbatch, first.Row, len(samples), tokens, room)
	w := newTable(stdout)
	fmt.Fprintf(w, "offset\ttokens\tsource\tfile\trecord\tpiece\tepoch\tblock\tindex\t\n")
	for i := range samples {
		s := &samples[i]
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t", s.Offset, s.Tokens, s.Source, s.File, recordOf(s), pieceOf(s), s.Epoch, s.Block, s.Index)
		fmt.Fprintln(w, notesOf(s))
		for k, im := range s.Images {
			fmt.Fprintf(w, "\t\timage %d\t%d patches\t%s\n", k, im.Patches, encoderOf(im))
		}
	}
	w.Flush()
}

// notesOf is what a row of the table says of a document behind its columns.
func notesOf(s *preview.Sample) (notes string) {
	if s.Waited > 0 {
		notes = fmt.Sprintf(" waited %s for others of its length\t", preview.Count(s.Waited, "step"))
	} else if s.Carried {
		notes = " carried over from an earlier step\t"
	}
	if len(s.Masked) > 0 {
		notes += "  " + lossWords(s.Loss(), s.Tokens)
	}
	return notes
}

// lossWords says which tokens of a document carry loss, counted from 0: the first runs of
// them, and the last.
func lossWords(bounds []int32, tokens int32) string {
	var runs []string
	n, last := int32(0), len(bounds)/2-1
	for i := range last + 1 {
		from, to := bounds[2*i], bounds[2*i+1]
		n += to - from
		if i == shownRuns-1 && last > i {
			runs = append(runs, fmt.Sprintf("%d more", last-i))
		}
		if i < shownRuns-1 || i == last {
			runs = append(runs, fmt.Sprintf("%d-%d", from, to-1))
		}
	}
	if n == 0 {
		return fmt.Sprintf("loss on none of %d tokens", tokens)
	}
	return fmt.Sprintf("loss on %d of %d tokens: %s", n, tokens, strings.Join(runs, ", "))
}

// ranksOf names the ranks of a pool that share the row of a sample.
func ranksOf(s *preview.Sample) string {
	first := fmt.Sprintf("dp=%d cp=%d", s.DP, s.CP)
	if s.Ranks == 1 {
		return first
	}
	return fmt.Sprintf("%d ranks from %s on,", s.Ranks, first)
}

func encoderOf(im preview.Image) string {
	if im.Encoder < 0 {
		return ""
	}
	return fmt.Sprintf("encoded by bucket %d", im.Encoder)
}
