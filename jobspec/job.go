package jobspec

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
)

// Job is a whole job spec with defaults filled in. It is read-only after Load.
type Job struct {
	Name      string      // names the job in logs, tokens and errors
	Seed      uint64      // the only randomness there is
	Sources   []Source    // at least one; names unique
	Mix       Mix         //
	Batch     Batch       //
	Strategy  []Primitive // nil: rows go to ranks in the order of packing
	Topology  Topology    //
	Output    Output      //
	Resources Resources   // budgets: never change a byte of any batch

	// Dir is the spec's folder: relative paths are relative to it. It is not
	// part of the spec: neither YAML nor Identity knows it.
	Dir string
}

// ResolvedSources returns a copy of the sources whose relative files and rank
// paths are joined to Dir, ready to be opened. The copy shares no slice of
// paths with the job; what it leaves alone (columns, parameters) is shared.
func (j *Job) ResolvedSources() []Source {
	sources := slices.Clone(j.Sources)
	for i := range sources {
		s := &sources[i]
		s.Files = slices.Clone(s.Files)
		for k := range s.Files {
			s.Files[k] = j.Resolve(s.Files[k])
		}
		s.Transforms = slices.Clone(s.Transforms)
		for k, t := range s.Transforms {
			if step, ok := t.(resolved); ok {
				s.Transforms[k] = step.resolve(j)
			}
		}
	}
	return sources
}

// Resolve joins a relative path to the spec's folder. Absolute paths and URIs
// with a scheme (s3://...) come back as they are.
func (j *Job) Resolve(path string) string {
	if j.Dir == "" || filepath.IsAbs(path) || strings.Contains(path, "://") {
		return path
	}
	// Not filepath.Join alone: it would clean "a/**/../b", which means
	// something else as a glob.
	return strings.TrimSuffix(j.Dir, "/") + "/" + strings.TrimPrefix(path, "./")
}

// Source is a named dataset: files of one format, one transform chain, one shuffle.
type Source struct {
	Name        string
	Format      string   // parquet, jsonl, json, webdataset, megatron, arrow, text, files; "" = by file extension
	Files       []string // files, directories or globs; relative ones are relative to the spec's folder
	ChunkBytes  int64    // target chunk size for formats without units of their own; default 1 MiB
	Transforms  []Transform
	Keep        []string // columns carried as bytes beside the tokens, e.g. jpg
	Long        Long
	Shuffle     Shuffle
	BadRecords  BadRecords
	Limit       int64 // at most this many samples per epoch; 0 = all
	MaxRecord   int64 // bytes of a record, and of its text; 0 = 64 MiB, see Skips
	MaxElements int   // elements of the lists in one column of a record; 0 = 1 Mi, see Skips

	// Implied is the number, from 1, of the step in Transforms that the spec leaves to the default, between steps that
	// it has; 0: none. It is no field of a spec, and decides nothing but how errors count the steps: see StepField.
	Implied int
}

// LongestSample returns the tokens of a sample at most: those of a row, or of the
// widest one where rows may be cut over several ranks.
func (j *Job) LongestSample() int { return j.Batch.SequenceLength * max(j.Batch.ContextSplit, 1) }

// Images returns the image step of the source, nil if it has none.
func (s *Source) Images() *Image {
	for _, t := range s.Transforms {
		if step, ok := t.(*Image); ok {
			return step
		}
	}
	return nil
}

// Masks reports whether samples of the source may have tokens without loss.
func (s *Source) Masks() bool {
	return slices.ContainsFunc(s.Transforms, func(t Transform) bool {
		o := OperatorOf(t.Operator())
		return o != nil && slices.Contains(o.Gives, "loss")
	})
}

// Long is the rule for samples longer than Max tokens.
type Long struct {
	Rule string // split (default), truncate, drop
	Max  int    // tokens; default and upper bound: Job.LongestSample
}

// Shuffle orders a source.
type Shuffle struct {
	Enabled bool // default true; false: files by path, records in file order
	Block   int  // chunks shuffled together; default 4
}

// BadRecords is the policy for records that cannot be read: deterministic faults only.
type BadRecords struct {
	Policy string // stop (default) or skip
	Limit  int    // with skip: the job stops when more than this many were skipped in one epoch; default 100

	// With skip the job stops, too, when more than WindowLimit of Window records in a row
	// (default 10,000) were skipped. WindowLimit 0 is 1000, and none if Limit is more: who
	// expects that many an epoch expects them close together.
	Window, WindowLimit int
}

// InWindow is how many of Window records in a row may be skipped.
func (b BadRecords) InWindow() int {
	switch {
	case b.WindowLimit > 0:
		return b.WindowLimit
	case b.Limit > 1000:
		return math.MaxInt
	}
	return 1000
}

// Mix says how much of each source.
type Mix struct {
	Unit      string  // tokens (default) or samples
	Stages    []Stage // by rising start step; the first starts at 0
	Grain     string  // epoch, step (default) or substep: how often the stages' weights move
	Draw      string  // deficit (default) or random
	Feedback  Feedback
	Epochs    int    // limit on epochs of every source; 0 = none
	Exhausted string // at the epochs limit: repeat is not possible; stop (default) or renormalize
}

// Feedback moves the weights by the losses that trainers report.
type Feedback struct {
	Policy string // none (default) or exponential
	Every  int    // steps between two changes
	Rate   int    // in thousandths
	Floor  int    // of a source's part of the mix in the spec, in thousandths
}

// Stage gives the weights from a step on.
type Stage struct {
	From    int64              // first step (steps count from 0)
	Ramp    string             // none (default), linear or cosine: how to get there from the stage before
	Over    int64              // steps the ramp takes, from From on
	Weights map[string]float64 // by source name; absent = 0; normalised
}

// Batch is the shape of one global step.
type Batch struct {
	SequenceLength int  // tokens per row
	Sequences      int  // rows per step over all DP ranks (or given as Tokens / SequenceLength)
	MicrobatchSize int  // rows per microbatch and DP rank; default 1
	Packing        bool // several samples per row; default true
	Fill           int  // thousandths of a step's tokens that samples fill; 0: as many as fit, and rows are evened as before there was a choice
	ContextSplit   int  // ranks that a sample longer than a row may be cut over, a power of two; 0 = none. See LongestSample

	Outliers *Outliers // nil: no sample waits for others
}

// Outliers are long samples that wait for others.
type Outliers struct {
	Above    []int // tokens from which a sample is of a level, increasing
	Together int   // samples of a level that end its wait
	Wait     int   // steps that a sample waits at most
}

// Topology is the mesh of trainer ranks. All sizes are >= 1.
type Topology struct {
	DP, CP, PP, TP, VPP, EP int
	Order                   []string // innermost axis first; default tp, cp, dp, pp (Megatron's)
}

// Output is how batches look to the trainer.
type Output struct {
	Format           string // megatron (default), megatron-thd, hf, torchtitan, jax
	CPSlicing        string // zigzag (default), contiguous, none
	BroadcastAt      string // "" (every rank fetches) or tp: only TP rank 0 fetches
	PadID            int32  // default 0
	DocumentMultiple int    // megatron-thd: documents are padded to a multiple of it; 0 with other formats. See RowLength
}

// Resources bound memory and read-ahead. Nothing here may change a byte.
type Resources struct {
	LoaderBuffer      int64    // bytes of samples a loader may hold in memory; default 512 MiB
	LoaderDisk        int64    // bytes of samples a loader may keep on its local disk beside them; default 4 GiB
	ConstructorBuffer int64    // bytes of assembled batches a constructor may hold; default 256 MiB
	Prefetch          int      // steps planned ahead of the slowest trainer; default 4
	Window            int      // samples of each source known ahead to the planner; default 256
	Spill             int64    // bytes of batches between stages a loader may put on its local disk when nothing else helps; 0 = none
	PythonWorkers     int      // processes of each environment of Python functions; 0 = one for each core
	WorkerPools       []string // addresses of worker pools that run Python functions too
}
