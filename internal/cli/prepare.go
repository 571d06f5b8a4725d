package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/prepare"
	"github.com/millrace-data/millrace/internal/preview"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/jobspec"
)

type prepareCmd struct {
	Job       string   `arg:"" help:"Job spec (YAML)." type:"path"`
	Out       string   `required:"" help:"Folder to write to; each source gets a folder in it." type:"path" placeholder:"DIR"`
	Source    []string `help:"Only this source; may be repeated. Default: all." placeholder:"NAME" sep:"none"`
	Workers   int      `help:"Groups of chunks worked on at a time; 0: one per core, as far as resources.loader_buffer allows."`
	ShardSize string   `help:"Size of a shard before compression." default:"128MiB" placeholder:"BYTES"`
	JSON      bool     `name:"json" help:"Print one JSON object per source."`
	memoryFlag

	shardBytes int64
}

// Help is printed below the usage line.
func (*prepareCmd) Help() string {
	return "Runs the transforms of each source once over all its records, in the order of the files, and writes the token ids, with the loss mask and the kept columns if there are any, " +
		"and the origin of each document, as Parquet. A job whose source has those files and the step `tokens: tokens` then delivers the same tokens, without tokenizing again.\n\n" +
		"Documents are whole: `long`, `shuffle`, `limit`, the mix and the batch are those of the job that reads the shards. " +
		"Interrupted, or killed, the same command goes on behind the shards that are finished; the shards are the same as without. " +
		"It uses the memory of a loader (resources.loader_buffer).\n\n" +
		"Example:\n  millrace prepare job.yaml --out prepared"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *prepareCmd) Validate() (err error) {
	if c.shardBytes, err = jobspec.ParseBytes(c.ShardSize); err != nil {
		return fmt.Errorf("--shard-size: %w", err)
	}
	return cmp.Or(atLeast("--workers", int64(c.Workers), 0), c.memoryFlag.check())
}

func (c *prepareCmd) Run(ctx context.Context, log *slog.Logger, names extensions, stderr io.Writer) error {
	job, err := load(names, c.Job)
	if err != nil {
		return err
	}
	if err := c.apart(job); err != nil {
		return err
	}
	job.Resources.LoaderBuffer = c.memory(service.Roles{Loader: 1}, log).Loader(job.Resources.LoaderBuffer)
	shown := newPreparing(stderr, terminalWidth(os.Stderr) > 0)
	results, err := prepare.Run(ctx, prepare.Options{
		Job: job, Out: c.Out, Sources: c.Source, Workers: c.Workers, ShardBytes: c.shardBytes, Store: sources(), Functions: names.functions.Open, Progress: shown.at,
	})
	shown.end()
	for i := range results {
		if c.JSON {
			err = firstOf(err, printJSON(&results[i]))
		} else {
			c.print(&results[i])
		}
	}
	if err != nil && ctx.Err() != nil {
		fmt.Fprintln(stderr, "interrupted: finished shards stay, and the same command goes on behind them")
	}
	return err
}

// apart refuses an output that a source would read as its own data, of the sources that are prepared.
func (c *prepareCmd) apart(job *jobspec.Job) error {
	var written []string
	for _, s := range job.Sources {
		if folder := filepath.Join(c.Out, s.Name); c.selects(s.Name) {
			written = append(written, filepath.Join(folder, "shard-000000-00000.parquet"), prepare.Ledger(folder))
		}
	}
	for i, s := range job.ResolvedSources() {
		for k, pattern := range s.Files {
			if c.selects(s.Name) && slices.ContainsFunc(written, func(file string) bool { return takesIn(pattern, file) }) {
				return fault.Userf("--out %s: source %q would read what is written there: its files are %s; name a folder that they do not take in", c.Out, s.Name, job.Sources[i].Files[k])
			}
		}
	}
	return nil
}

func (c *prepareCmd) selects(source string) bool {
	return len(c.Source) == 0 || slices.Contains(c.Source, source)
}

// takesIn says whether a source whose files are a pattern, or a folder, reads a file.
func takesIn(pattern, file string) bool {
	pattern = filepath.Clean(pattern)
	matched, _ := doublestar.PathMatch(pattern, file) // lint says what is wrong with a pattern
	return matched || strings.HasPrefix(file, pattern+string(filepath.Separator))
}

// firstOf returns the error that came first.
func firstOf(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

// print says what a source came to, and how a job reads it.
func (c *prepareCmd) print(r *prepare.Result) {
	fmt.Fprintf(stdout, "%s: %s of %s, %d bytes, gave %s of %s in %s, %d bytes", r.Source, preview.Count(int64(r.Records), "record"), preview.Count(int64(r.Files), "file"), r.Read,
		preview.Count(r.Rows, "document"), preview.Count(r.Tokens, "token"), preview.Count(int64(r.Shards), "shard"), r.Written)
	if r.Kept > 0 {
		fmt.Fprintf(stdout, " (%d finished before)", r.Kept)
	}
	fmt.Fprintf(stdout, "; filtered out %d, empty %d, bad %d\n", r.Filtered, r.Empty, r.Skipped)
	if r.Skipped > 0 {
		fmt.Fprintf(stdout, "  bad records: %s\n", prepare.Ledger(r.Folder))
	}
	mask := ""
	if r.Masks {
		mask = ", loss_mask: loss_mask"
	}
	fmt.Fprintf(stdout, "  - name: %s\n    files: %q\n    transforms: [tokens: tokens%s]\n", r.Source, r.Folder+"/*.parquet", mask)
	if len(r.Keep) > 0 {
		fmt.Fprintf(stdout, "    keep: [%s]\n", strings.Join(prepare.Columns(r.Keep), ", "))
	}
}

// preparing tells a person who waits how far it is: on a terminal one line that is drawn again and
// again, elsewhere a line now and then. It is safe for concurrent use.
type preparing struct {
	out   io.Writer
	live  bool // a terminal
	mu    sync.Mutex
	of    string    // the source that it tells of
	began time.Time // with that source: when it was made, or heard the last of the source before
	heard time.Time
	told  time.Time
	drawn bool
}

func newPreparing(out io.Writer, live bool) *preparing {
	now := time.Now()
	return &preparing{out: out, live: live, heard: now, told: now}
}

func (p *preparing) at(s prepare.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	begins := s.Source != p.of
	if begins {
		p.of, p.began = s.Source, p.heard
	}
	p.heard = now
	every := countEvery
	if p.live {
		every = time.Second
	}
	if now.Sub(p.told) < every && !(begins && p.live) {
		return
	}
	p.told = now
	text := fmt.Sprintf("%s: %.1f of %.1f MB, %s", s.Source, float64(s.Done)/1e6, float64(s.Bytes)/1e6, preview.Count(s.Documents, "document"))
	if rate := float64(s.Done-s.Kept) / max(now.Sub(p.began).Seconds(), 1e-3); rate > 0 {
		left := time.Duration(float64(s.Bytes-s.Done) / rate * float64(time.Second))
		text += fmt.Sprintf(", %.1f MB/s, %v left", rate/1e6, elapsed(left))
	}
	if p.drawn = p.live; p.live {
		fmt.Fprintf(p.out, "\r\x1b[K%s", text)
		return
	}
	fmt.Fprintln(p.out, text)
}

// end takes the live line away.
func (p *preparing) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
