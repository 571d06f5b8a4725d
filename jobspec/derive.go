package jobspec

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/millrace-data/millrace/internal/formats"
)

// derive sets the defaults that follow from other fields. It runs after
// decoding and before the rules.
func (d *decoder) derive(job *Job) {
	d.deriveSequences(job)
	d.deriveStages(job)
	d.deriveBroadcast(job)
	d.deriveDocumentMultiple(job)
	d.deriveTogether(job)
	for i := range job.Sources {
		at := itemField("sources", i)
		s := &job.Sources[i]
		if !d.given(at + ".long.max") {
			s.Long.Max = job.LongestSample()
		}
	}
	job.each(func(_ int, chain []Transform, k int, at string) {
		if step, ok := chain[k].(derived); ok {
			step.derive(d, at, chain[:k])
		}
	})
}

// deriveSequences takes batch.sequences from batch.tokens.
func (d *decoder) deriveSequences(job *Job) {
	b := &job.Batch
	hasTokens, hasSequences := d.given("batch.tokens"), d.given("batch.sequences")
	switch {
	case d.wrong["batch"]:
	case hasTokens && hasSequences:
		d.error("batch.tokens", "is given together with sequences", "keep one of the two")
	case !hasTokens && !hasSequences:
		d.error("batch.sequences", "is missing", "give the rows of one step as sequences, or its tokens as tokens")
	case hasTokens && d.sound("batch.sequence_length", "batch.tokens"):
		b.Sequences = d.divide(d.extra["batch.tokens"].(int64), int64(b.SequenceLength))
	}
}

func (d *decoder) divide(tokens, length int64) int {
	rows := tokens / length
	switch {
	case rows > maxAxis:
		d.error("batch.tokens", fmt.Sprintf("%d tokens are %d rows", tokens, rows), fmt.Sprintf("valid are at most %d rows", maxAxis))
	case tokens%length != 0:
		d.error("batch.tokens", fmt.Sprintf("%d is not a multiple of sequence_length %d", tokens, length), near(tokens, length))
	default:
		return int(rows)
	}
	return 0
}

// near names the multiples of unit around n.
func near(n, unit int64) string {
	low := n / unit * unit
	if low == 0 {
		return fmt.Sprintf("valid is %d", unit)
	}
	return fmt.Sprintf("valid are %d and %d", low, low+unit)
}

// deriveStages turns mix.weights, or nothing with a single source, into a stage.
func (d *decoder) deriveStages(job *Job) {
	m := &job.Mix
	weights, short := d.extra["mix.weights"].(map[string]float64)
	switch {
	case !d.sound("mix.weights") || d.wrong["mix.stages"] || len(job.Sources) == 0:
	case short && d.given("mix.stages"):
		d.error("mix.weights", "is given together with stages", "keep one of the two")
	case short:
		m.Stages = []Stage{{Ramp: "none", Weights: weights}}
	case m.Stages == nil && len(job.Sources) == 1:
		m.Stages = []Stage{{Ramp: "none", Weights: map[string]float64{job.Sources[0].Name: 1}}}
	case m.Stages == nil:
		d.error("mix.weights", "is missing", "with several sources, give weights or stages")
	}
	for i := range m.Stages {
		if at := d.stageWeights(i); d.sound(at) {
			d.normalise(m.Stages[i].Weights, at)
		}
	}
}

// stageWeights names the field that holds the weights of a stage.
func (d *report) stageWeights(i int) string {
	if d.given("mix.stages") {
		return itemField("mix.stages", i) + ".weights"
	}
	return "mix.weights"
}

// Published recipes are rounded, so a sum off by less than a millionth is taken
// for 1 without a word. A sum that is 1 up to rounding of the additions is left
// alone, so that printing and reading back changes no bit.
const (
	sumSilent = 1e-6
	sumExact  = 1e-9
)

// normalise divides weights by their sum, added up in order of the names.
func (d *decoder) normalise(weights map[string]float64, at string) {
	sum := 0.0
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		sum += weights[name]
	}
	off := math.Abs(sum - 1)
	switch {
	case len(weights) == 0:
		d.error(at, "is empty", "give at least one source a weight above 0")
		return
	case sum == 0:
		d.error(at, "all weights are 0", "give at least one source a weight above 0")
		return
	case off <= sumExact:
		return
	case off > sumSilent:
		d.warn(at, "the weights sum to "+strconv.FormatFloat(sum, 'g', 7, 64)+": they are normalised", "")
	}
	for name := range weights {
		weights[name] /= sum
	}
}

// deriveChain writes out the steps that a source leaves to the default. It runs
// after the rules, whose findings count the steps as they are written.
func deriveChain(s *Source) {
	switch {
	case slices.ContainsFunc(s.Transforms, func(t Transform) bool { return t != nil && OperatorOf(t.Operator()).begins }):
	case s.Transforms == nil && s.looksLike(formats.Megatron):
		s.Transforms = []Transform{Tokens("tokens")}
	default:
		if s.Transforms == nil {
			id, _ := endOfText("bytes")
			s.Transforms = []Transform{&Tokenize{Encoding: "bytes"}, &AppendEOD{ID: id}}
		}
		text := Text("{text}")
		if s.looksLike(formats.WebDataset) || s.looksLike(formats.Files) {
			text = "{txt}"
		}
		at := 0 // behind the functions, which may make the text
		if s.FirstRecords() > 0 || s.Grouped() != nil {
			at = 1
		}
		for k, t := range s.Transforms {
			if _, ok := t.(*Python); ok {
				at = k + 1
			}
		}
		s.Transforms = slices.Insert(s.Transforms, at, Transform(text))
		s.Implied = at + 1
	}
}

// StepField names step k of the chain as who wrote the spec counts: transforms[1].tokenize. The step
// that is not written has the place of the chain.
func (s *Source) StepField(k int) string {
	written := k
	switch {
	case s.Implied > 0 && k == s.Implied-1:
		return "transforms"
	case s.Implied > 0 && k >= s.Implied:
		written--
	}
	field := itemField("transforms", written)
	if t := s.Transforms[k]; t != nil {
		field += "." + t.Operator()
	}
	return field
}

// looksLike reports whether the source is of a format, by name or, without
// one, by the extension of all its files.
func (s *Source) looksLike(format string) bool {
	if s.Format != "" {
		return s.Format == format
	}
	return !slices.ContainsFunc(s.Files, func(file string) bool {
		in, known := formats.InputOf(file)
		return !known || in.Name != format
	})
}
