package prepare

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/internal/didyoumean"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader"
	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/store/bucket"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// tellEvery is the documents between two reports of progress within a chunk.
const tellEvery = 64

// Options say what to prepare. Job and Out are required.
type Options struct {
	Job        *jobspec.Job
	Out        string              // folder that gets a folder for each source
	Sources    []string            // names; default: all of the job
	Workers    int                 // groups at a time, at most; default GOMAXPROCS
	ShardBytes int64               // of rows before compression; default DefaultShardBytes
	Store      store.Store         // default: the local file system, and buckets
	Functions  transform.Functions // of sources; nil: a source with one is refused
	// Progress hears how far a source is: when it begins, after each chunk, and now and then while documents are made,
	// from several goroutines. May be nil.
	Progress func(Progress)
}

// Progress is how far a source is.
type Progress struct {
	Source      string
	Done, Bytes int64 // of the files
	Kept        int64 // of Done, of groups that were finished before
	Documents   int64 // made, those of chunks that are not finished among them
}

// Result is what a source came to.
type Result struct {
	Source   string   `json:"source"`
	Folder   string   `json:"folder"`
	Files    int      `json:"files"`
	Shards   int      `json:"shards"`
	Kept     int      `json:"kept"` // of the shards, that were finished before
	Records  uint64   `json:"records"`
	Filtered uint64   `json:"filtered"`
	Empty    uint64   `json:"empty"`
	Rows     int64    `json:"rows"`
	Tokens   int64    `json:"tokens"`
	Skipped  int      `json:"skipped"`
	Read     int64    `json:"read"`    // bytes of the files
	Written  int64    `json:"written"` // bytes of the shards
	Masks    bool     `json:"masks"`   // there is a column loss_mask
	Keep     []string `json:"keep,omitempty"`
}

// workerBytes is what a worker takes at most, beside a record and what becomes of it: a row group, its
// pages, a compressor and the reader of a file.
const workerBytes = 32 << 20

// Run prepares the sources, one after the other, and returns what they came to. Its errors are of class
// fault.User where spec, data or folder are at fault, and of class fault.Lost where the disk is. Shards that
// are finished stay, whatever ends it, and the next Run goes on behind them.
func Run(ctx context.Context, opts Options) ([]Result, error) {
	if opts.Store == nil {
		opts.Store = bucket.NewAny("")
	}
	opts.ShardBytes = cmp.Or(opts.ShardBytes, DefaultShardBytes)
	if opts.ShardBytes < leastShardBytes {
		return nil, fault.Userf("shards of %d bytes: %d is the least", opts.ShardBytes, leastShardBytes)
	}
	chosen, err := choose(opts.Job, opts.Sources)
	if err != nil {
		return nil, err
	}
	budget := opts.Job.Resources.LoaderBuffer
	workers := max(min(cmp.Or(opts.Workers, runtime.GOMAXPROCS(0)), int(budget/workerBytes)), 1)
	ctx, end := context.WithCancel(ctx)
	passes, err := sourceloader.NewPasses(ctx, budget, workers)
	if err != nil {
		end()
		return nil, err
	}
	defer passes.Close()
	defer end()
	shared := transform.NewShared(opts.Job.Seed, opts.Functions)
	var results []Result
	for _, i := range chosen {
		src, err := passes.Open(ctx, opts.Store, opts.Job, i, shared)
		if err != nil {
			return results, err
		}
		p := &preparation{opts: opts, source: src, spec: &opts.Job.Sources[i], most: workers, bytes: src.Manifest.Bytes()}
		r, err := p.run(ctx)
		if err != nil {
			return results, err
		}
		results = append(results, r)
	}
	return results, nil
}

// choose returns the numbers of the sources with these names, in the order of the job.
func choose(job *jobspec.Job, names []string) (chosen []int, err error) {
	var all []string
	for i := range job.Sources {
		s := &job.Sources[i]
		all = append(all, s.Name)
		if len(names) > 0 && !slices.Contains(names, s.Name) {
			continue
		}
		if s.Images() != nil {
			return nil, fault.Userf("source %q has an image step, which makes no tokens that could be written: for prepare leave the step out and `keep` the columns of the images; "+
				"the job that reads the shards has the step, after its tokens step", s.Name)
		}
		chosen = append(chosen, i)
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			hint := ""
			if near := didyoumean.Nearest(name, all); near != "" {
				hint = fmt.Sprintf("; did you mean %q?", near)
			}
			return nil, fault.Userf("no source %q%s (the job has %s)", name, hint, strings.Join(all, ", "))
		}
	}
	return chosen, nil
}

// preparation is that of one source.
type preparation struct {
	opts     Options
	source   *sourceloader.Source
	spec     *jobspec.Source // as written
	layout   *layout
	manifest *manifest
	workers  sync.Pool    // of *transform.Worker
	most     int          // of them, that work at a time
	left     atomic.Int64 // bytes of groups that are not finished
	read     atomic.Int64
	skipped  atomic.Int64 // bytes of groups that were finished before
	kept     atomic.Int64 // shards
	made     atomic.Int64 // documents
	bytes    int64        // of the files
}

func (p *preparation) run(ctx context.Context) (r Result, err error) {
	groups := divide(p.source.Source, p.opts.ShardBytes)
	for _, g := range groups {
		p.left.Add(g.bytes)
	}
	if err := p.begin(len(groups)); err != nil {
		return r, err
	}
	locked, err := lock(filepath.Join(p.layout.dir, ".prepare.lock"))
	if err != nil {
		return r, err
	}
	defer locked.Close()
	if p.manifest, err = openManifest(p.layout.dir, p.header(len(groups))); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.manifest.close()) }()
	p.tell(0)
	work, ctx := errgroup.WithContext(ctx)
	next := make(chan group)
	work.Go(func() error {
		defer close(next)
		for _, g := range groups {
			select {
			case next <- g:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	for range min(p.most, len(groups)) {
		work.Go(func() error {
			for g := range next {
				if err := p.group(ctx, g); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return r, err
	}
	if err := p.tooMany(noGroup, nil); err != nil { // groups that were made at the same time did not see each other's
		return r, err
	}
	if err := p.manifest.finish(); err != nil {
		return r, err
	}
	if r = p.result(p.manifest.all()); r.Shards == 0 { // the ledger stays; other files or steps are no change of shards
		return Result{}, errors.Join(p.barren(&r), p.manifest.remove())
	}
	return r, nil
}

// barren is the error of a source that gave no document.
func (p *preparation) barren(r *Result) error {
	if r.Records == 0 && r.Skipped == 0 {
		return order.Empty(p.source.Spec, r.Files)
	}
	remedy := "a record's text is its column `text` unless `transforms` says otherwise"
	switch most := max(r.Filtered, r.Empty, uint64(r.Skipped)); most {
	case r.Filtered:
		remedy = "look at its filter"
	case uint64(r.Skipped):
		_, first := p.manifest.skipped(noGroup)
		remedy = fmt.Sprintf("the bad records are in %s, the first is %s row %d: %s", Ledger(r.Folder), first.File, first.Row, first.Reason)
	}
	return fault.Userf("source %q gave no document: of the records of its %d files %d were filtered out, %d empty, %d bad; %s", p.spec.Name, r.Files, r.Filtered, r.Empty, r.Skipped, remedy)
}

// begin makes the folder and the schema.
func (p *preparation) begin(groups int) error {
	s := p.source
	p.layout = &layout{
		dir: filepath.Join(p.opts.Out, folderName(p.spec.Name)), target: p.opts.ShardBytes, keep: p.spec.Keep, masks: p.spec.Masks(),
		origin: fmt.Sprintf("source %s, input %s", p.spec.Name, p.input()), digits: max(6, len(strconv.Itoa(groups))),
	}
	if err := p.layout.arrange(); err != nil {
		return fault.As(fault.ClassOf(err), fmt.Errorf("source %q: %w", s.Spec.Name, err))
	}
	if err := os.MkdirAll(p.layout.dir, 0o777); err != nil {
		return writing(p.layout.dir, err)
	}
	return nil
}

// input is the digest of what is read.
func (p *preparation) input() string {
	d := p.source.Manifest.Digest()
	return hex.EncodeToString(d[:])
}

func (p *preparation) header(groups int) header {
	m := &p.source.Manifest
	h := header{
		Version: manifestVersion, Source: p.spec.Name, Folder: m.Folder(), Files: len(m.Files), Bytes: m.Bytes(), Input: p.input(),
		Recipe: string(p.spec.Recipe()), ShardBytes: p.opts.ShardBytes, Groups: groups,
	}
	if len(p.source.Chain.Segments()) > 1 { // it has functions
		h.Seed = p.opts.Job.Seed
	}
	return h
}

// group makes the shards of a group, unless they are there.
func (p *preparation) group(ctx context.Context, g group) error {
	if e, ok := p.manifest.done(g.number); ok {
		p.kept.Add(int64(len(e.Shards)))
		p.skipped.Add(g.bytes)
		p.left.Add(-g.bytes)
		p.tell(g.bytes)
		return nil
	}
	workers := make([]*transform.Worker, p.workersFor(g))
	for i := range workers {
		w, ok := p.workers.Get().(*transform.Worker)
		if !ok {
			w = p.source.Chain.Worker()
		}
		defer p.workers.Put(w)
		workers[i] = w
	}
	defer p.left.Add(-g.bytes)
	out := &shards{layout: p.layout, group: g.number, name: p.source.Manifest.Name}
	defer out.discard()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	block, err := p.source.Pass(ctx, p.opts.Store, workers, g.chunks[0], g.chunks, p.counted(out.add), func(chunk int64, found *sourceloader.Block) {
		if err := p.tooMany(g.number, found.Skips); err != nil {
			stop(err)
		}
		p.tell(chunkBytes(p.source.Source, p.source.Order.Layout.Units(chunk)))
	})
	if err := cmp.Or(context.Cause(ctx), err); err != nil {
		return err
	}
	if err := out.finish(); err != nil {
		return err
	}
	if err := syncFolder(p.layout.dir); err != nil {
		return err
	}
	e := entry{Group: g.number, Shards: out.done, Records: block.Records, Filtered: block.Filtered, Empty: block.Empty}
	for _, s := range block.Skips {
		e.Skipped = append(e.Skipped, skipped(s))
	}
	return p.manifest.add(e)
}

// workersFor is how many of the workers a group gets: its part of what is left to do.
func (p *preparation) workersFor(g group) int {
	return max(int(float64(p.most)*float64(g.bytes)/float64(max(p.left.Load(), 1))), 1)
}

func skipped(s sourceloader.Skip) Skip { return Skip{File: s.File, Row: s.Row, Reason: s.Reason} }

// tooMany is the error of more bad records than the source's policy allows, these of a group that is being made
// among them.
func (p *preparation) tooMany(group int, bad []sourceloader.Skip) error {
	n, first := p.manifest.skipped(group)
	if n == 0 && len(bad) > 0 {
		first = skipped(bad[0])
	}
	if n += len(bad); n == 0 || n <= p.spec.BadRecords.Limit {
		return nil
	}
	return fault.Userf("source %q: %d bad records, more than bad_records.limit %d allows, such as %s row %d: %s; mend them, or raise the limit if they may be left out",
		p.spec.Name, n, p.spec.BadRecords.Limit, first.File, first.Row, first.Reason)
}

func (p *preparation) tell(bytes int64) {
	done := p.read.Add(bytes)
	if p.opts.Progress != nil {
		p.opts.Progress(Progress{p.spec.Name, done, p.bytes, p.skipped.Load(), p.made.Load()})
	}
}

// counted tells of documents, too: a chunk may be a large compressed file.
func (p *preparation) counted(add func(order.Place, *transform.Sample) error) func(order.Place, *transform.Sample) error {
	return func(at order.Place, doc *transform.Sample) error {
		if err := add(at, doc); err != nil {
			return err
		}
		if p.made.Add(1)%tellEvery == 1 {
			p.tell(0)
		}
		return nil
	}
}

func (p *preparation) result(entries []entry) Result {
	m := &p.source.Manifest
	r := Result{
		Source: p.spec.Name, Folder: p.layout.dir, Files: len(m.Files), Kept: int(p.kept.Load()), Read: m.Bytes(), Masks: p.layout.masks, Keep: p.layout.keep,
	}
	for _, e := range entries {
		r.Records, r.Filtered, r.Empty, r.Skipped = r.Records+e.Records, r.Filtered+e.Filtered, r.Empty+e.Empty, r.Skipped+len(e.Skipped)
		r.Shards += len(e.Shards)
		for _, s := range e.Shards {
			r.Rows, r.Tokens, r.Written = r.Rows+s.Rows, r.Tokens+s.Tokens, r.Written+s.Bytes
		}
	}
	return r
}

// folderName is the name of a source as that of a folder: what means something in paths and globs, or
// hides a folder from readers, is written as %XX.
func folderName(source string) string {
	var b strings.Builder
	for i, r := range source {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == ' ', i > 0 && (r == '.' || r == '_'):
			b.WriteRune(r)
		default:
			for _, c := range []byte(string(r)) {
				fmt.Fprintf(&b, "%%%02X", c)
			}
		}
	}
	return b.String()
}

// Ledger is the file with the bad records of a folder of shards, one JSON object a line.
func Ledger(folder string) string { return filepath.Join(folder, skippedName) }

// Columns are the names of kept columns as a job names them that reads the shards: in these, a column has as
// its name the whole path that it was kept by.
func Columns(keep []string) []string {
	escape := strings.NewReplacer(`\`, `\\`, ".", `\.`, "[", `\[`)
	var columns []string
	for _, path := range keep {
		columns = append(columns, strconv.Quote(escape.Replace(path)))
	}
	return columns
}
