package telemetry

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Span is a part of the work on one step that is done.
type Span struct {
	Of         StepID
	Name       string // SpanStep, SpanPlan, SpanFetch, SpanAssemble or SpanDeliver
	Who        string // the constructor or rank, of a name that several have
	Begin, End time.Time
	Notes      []Note
}

// Note is something to know of a span.
type Note struct {
	Key   string
	Value any // string or int64
}

// The parts of a step. SpanStep is all of them, until all ranks are done with the step.
const (
	SpanStep     = "step"
	SpanPlan     = "plan"
	SpanFetch    = "fetch"
	SpanAssemble = "assemble"
	SpanDeliver  = "deliver"
)

// StepID names a step of a job in one of its generations.
type StepID struct {
	Identity   [32]byte // of the job spec
	Generation uint64
	Step       uint64
}

// Trace is the number of the step's trace. It is a function of the step alone, so that all roles, and
// trainers, put their spans in the same one without a word between them (docs/bytes.md).
func (s StepID) Trace() (id [16]byte) {
	sum := s.sum("")
	copy(id[:], sum[:])
	return id
}

// Span is the number of a span in the step's trace.
func (s StepID) Span(name, who string) (id [8]byte) {
	sum := s.sum(name + "\x00" + who)
	copy(id[:], sum[:])
	return id
}

func (s StepID) sum(what string) [32]byte {
	text := append([]byte("millrace step\x00"), s.Identity[:]...)
	text = binary.LittleEndian.AppendUint64(text, s.Generation)
	text = binary.LittleEndian.AppendUint64(text, s.Step)
	return sha256.Sum256(append(text, what...))
}

// Sampled says whether a step is traced, when one in every is. It is a function of the step, so that
// all roles trace the same ones.
func Sampled(step, every uint64) bool { return every > 0 && step%every == 0 }

// Traces says whether spans of a step are to be recorded, when one in every is.
func (b *Board) Traces(step, every uint64) bool {
	return b != nil && b.traces != nil && Sampled(step, every)
}

// Record takes a span of a step for which Traces is true.
func (b *Board) Record(s Span) { b.traces(s) }
