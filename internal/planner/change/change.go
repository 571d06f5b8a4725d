// Package change is the written form of changes: what operators and trainers do
// to a running job, and the journal of it.
//
// It owns the JSON that stands in change files, requests and the step log, and
// the checks that need no running job. What a change does to the steps after it
// is planner/plan's; the names in it become numbers there.
package change

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/didyoumean"
	"github.com/millrace-data/millrace/internal/fault"
)

// Change is one external input. Exactly one thing is changed; the others are
// zero. The JSON form is one line.
type Change struct {
	Step           int64              `json:"step"`                      // the first step that it applies to; in a request, 0 = as soon as possible
	Weights        map[string]float64 `json:"weights,omitempty"`         // the mix from here on, by source; those not named get 0
	Schedule       bool               `json:"schedule,omitempty"`        // the mix is the job spec's again
	Pause          string             `json:"pause,omitempty"`           // nothing more is drawn from this source, for now
	Resume         string             `json:"resume,omitempty"`          // a paused source goes on where it was
	Drop           string             `json:"drop,omitempty"`            // nothing more is drawn from this source, ever
	Add            *Add               `json:"add,omitempty"`             // one more source
	SequenceLength int                `json:"sequence_length,omitempty"` // tokens in a row; may come with Sequences
	Sequences      int                `json:"sequences,omitempty"`       // rows in a step
	Topology       map[string]int     `json:"topology,omitempty"`        // sizes of mesh axes; those not named stay
	From           string             `json:"from,omitempty"`            // with Topology: the digest of the position, at Step, that it starts from
	Skip           int64              `json:"skip,omitempty"`            // the data of this many steps is passed over
	Ban            *Record            `json:"ban,omitempty"`             // a record that is not used any more
	Cancel         *Change            `json:"cancel,omitempty"`          // a change, as the journal has it, that is taken back before its step
	Reason         string             `json:"reason,omitempty"`          // for people who read the log
	Origin         string             `json:"-"`                         // before what is said of it: "FILE:LINE: ", if it is known
}

// maxSkip is how many steps a change may pass over: all of their data is read, and a mistyped number cannot be taken back.
const maxSkip = 1 << 24

// Add is a source that joins.
type Add struct {
	Source json.RawMessage `json:"source"` // as in the job spec
	Weight float64         `json:"weight"` // its part of the whole mix, between 0 and 1
}

// Record is a place in a source: the number of a row or member of a file, or the
// offset of a line in bytes, as `millrace explain` and messages give it.
type Record struct {
	Source string `json:"source"`
	File   string `json:"file"`
	Row    int64  `json:"row"`
}

func (r Record) String() string {
	return fmt.Sprintf("%s row %d of source %q", r.File, r.Row, r.Source)
}

// String is the JSON form.
func (c Change) String() string {
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Sprintf("change of step %d: %v", c.Step, err)
	}
	return string(data)
}

// Equal says whether two changes are the same external input, wherever they were written.
func (c Change) Equal(o Change) bool {
	return c.Step == o.Step && c.Schedule == o.Schedule && c.Pause == o.Pause && c.Resume == o.Resume && c.Drop == o.Drop &&
		c.SequenceLength == o.SequenceLength && c.Sequences == o.Sequences && c.From == o.From && c.Skip == o.Skip && c.Reason == o.Reason &&
		maps.Equal(c.Weights, o.Weights) && maps.Equal(c.Topology, o.Topology) &&
		same(c.Add, o.Add, func(a, b Add) bool { return a.Weight == b.Weight && bytes.Equal(a.Source, b.Source) }) &&
		same(c.Ban, o.Ban, func(a, b Record) bool { return a == b }) && same(c.Cancel, o.Cancel, Change.Equal)
}

// same compares what two pointers point at.
func same[T any](a, b *T, equal func(a, b T) bool) bool {
	return a == b || a != nil && b != nil && equal(*a, *b)
}

// Parse reads the JSON form and checks it.
func Parse(data []byte) (Change, error) {
	var c Change
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fault.Userf("%w%s; valid is such as {\"step\":100,\"weights\":{\"web\":0.7,\"code\":0.3}}", err, meant(err))
	}
	if d.More() {
		return c, fault.Userf("there is more than one JSON object")
	}
	if c.Add != nil { // as it will be written: entries are compared
		entry, err := json.Marshal(c.Add.Source)
		if err != nil {
			return c, fault.Userf("the added source: %w", err)
		}
		c.Add.Source = entry
	}
	if c.Cancel != nil && c.Step == 0 {
		c.Step = c.Cancel.Step
	}
	return c, c.Validate()
}

var fields = []string{"step", "weights", "schedule", "pause", "resume", "drop", "add", "sequence_length", "sequences", "topology", "from", "skip", "ban", "cancel", "reason"}

// kinds are the fields that say what is changed.
func kinds() []string {
	return slices.DeleteFunc(slices.Clone(fields), func(name string) bool { return name == "step" || name == "from" || name == "reason" })
}

// ParseAll reads changes that a log or a token kept.
func ParseAll(texts [][]byte) ([]Change, error) {
	var changes []Change
	for _, text := range texts {
		c, err := Parse(text)
		if err != nil {
			return nil, fault.Userf("the change %s cannot be read: %w; use the version of Millrace that wrote it", text, err)
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// meant suggests a field for an unknown one.
func meant(err error) string {
	_, name, unknown := strings.Cut(err.Error(), `unknown field "`)
	if near := didyoumean.Nearest(strings.TrimSuffix(name, `"`), fields); unknown && near != "" {
		return fmt.Sprintf(", did you mean %q?", near)
	}
	return ""
}

// Validate refuses what no job could do.
func (c Change) Validate() error {
	given := 0
	for _, is := range []bool{c.Weights != nil, c.Schedule, c.Pause != "", c.Resume != "", c.Drop != "", c.Add != nil,
		c.SequenceLength != 0 || c.Sequences != 0, c.Topology != nil, c.Skip != 0, c.Ban != nil, c.Cancel != nil} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return fault.Userf("a change changes one thing, this one %d: valid is one of %s", given, strings.Join(kinds(), ", "))
	case c.Step < 0:
		return fault.Userf("step is %d, valid is 0 or more", c.Step)
	case c.Skip < 0 || c.Skip > maxSkip:
		return fault.Userf("skip is %d, valid is 1 to %d steps", c.Skip, int64(maxSkip))
	case c.SequenceLength < 0 || c.Sequences < 0:
		return fault.Userf("sequence_length is %d and sequences %d, valid is 1 or more", c.SequenceLength, c.Sequences)
	case c.Add != nil && !(c.Add.Weight > 0 && c.Add.Weight < 1):
		return fault.Userf("the weight of the added source is %v, its part of the whole mix: valid is between 0 and 1", c.Add.Weight)
	case c.Ban != nil && (c.Ban.Source == "" || c.Ban.File == "" || c.Ban.Row < 0):
		return fault.Userf("a ban names source, file and row (from 0), this one source %q, file %q and row %d; `millrace explain` says which they are", c.Ban.Source, c.Ban.File, c.Ban.Row)
	}
	return cmp.Or(c.checkWeights(), c.checkTopology(), c.checkCancel())
}

func (c Change) checkCancel() error {
	switch x := c.Cancel; {
	case x == nil:
		return nil
	case x.Cancel != nil:
		return fault.Userf("what was cancelled cannot be taken back: make the change again")
	case x.Add != nil:
		return fault.Userf("a source that is to join cannot be taken back, since others may be numbered after it: drop it at the same step, and nothing is drawn from it")
	case x.Step != c.Step:
		return fault.Userf("the change that is cancelled is for step %d, not %d", x.Step, c.Step)
	default:
		return x.Validate()
	}
}

// axes are those of a mesh of trainer ranks.
var axes = []string{"dp", "cp", "pp", "tp", "vpp", "ep"}

// CheckToken refuses a change that cannot start from the token that came with it.
func (c Change) CheckToken(token []byte) error {
	switch {
	case len(token) > 0 && c.Topology == nil:
		return fault.Userf("only a change of the topology starts from a token; all others apply to steps that are not planned yet: leave the token out")
	case c.From != "":
		return fault.Userf("`from` is what the service writes of a token: give the token itself, as `millrace topology --from FILE` does")
	}
	return nil
}

func (c Change) checkTopology() error {
	if digest, err := hex.DecodeString(c.From); c.From != "" && (c.Topology == nil || err != nil || len(digest) != 32) {
		return fault.Userf("from is %q: it stands beside a topology, and is the digest of 64 hexadecimal digits that the service wrote there", c.From)
	}
	if c.Topology != nil && len(c.Topology) == 0 {
		return fault.Userf("the topology names no axis: valid are %s", strings.Join(axes, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Topology)) {
		switch n := c.Topology[name]; {
		case !slices.Contains(axes, name):
			return fault.Userf("the topology has no axis %q: valid are %s", name, strings.Join(axes, ", "))
		case n < 1:
			return fault.Userf("topology.%s is %d, valid is 1 or more", name, n)
		}
	}
	return nil
}

func (c Change) checkWeights() error {
	sum := 0.0
	for _, name := range slices.Sorted(maps.Keys(c.Weights)) {
		w := c.Weights[name]
		if !(w >= 0) || math.IsInf(w, 0) {
			return fault.Userf("the weight of source %q is %v, valid is 0 or more", name, w)
		}
		sum += w
	}
	if c.Weights != nil && sum == 0 {
		return fault.Userf("all weights are 0: give one source a weight")
	}
	return nil
}

// WeightsOf returns the weights by source, for sources in this order.
func (c Change) WeightsOf(sources []string) ([]float64, error) {
	weights := make([]float64, len(sources))
	for _, name := range slices.Sorted(maps.Keys(c.Weights)) {
		i, err := Find(sources, name)
		if err != nil {
			return nil, err
		}
		weights[i] = c.Weights[name]
	}
	return weights, nil
}

// Source is the source that is paused, resumed, dropped or has a record banned.
func (c Change) Source() string {
	if c.Ban != nil {
		return c.Ban.Source
	}
	return c.Pause + c.Resume + c.Drop // one of them
}

// Find returns the number of a source.
func Find(sources []string, name string) (int, error) {
	if i := slices.Index(sources, name); i >= 0 {
		return i, nil
	}
	if near := didyoumean.Nearest(name, sources); near != "" {
		return 0, fault.Userf("there is no source %q, did you mean %q?", name, near)
	}
	return 0, fault.Userf("there is no source %q; valid are %s", name, strings.Join(sources[:min(len(sources), 10)], ", "))
}

// Read reads a change file: one change a line, empty lines and lines that begin
// with # are left out. The changes come back by step, those of one step in the
// order of the file. name is for errors.
func Read(r io.Reader, name string) ([]Change, error) {
	var changes []Change
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		c, err := Parse(line)
		c.Origin = fmt.Sprintf("%s:%d: ", name, n)
		if err != nil {
			return nil, fault.Userf("%s%w", c.Origin, err)
		}
		changes = append(changes, c)
	}
	if err := lines.Err(); err != nil {
		return nil, fault.Userf("reading %s: %w", name, err)
	}
	Sort(changes)
	return changes, nil
}

// Without returns the changes that are not among old ones, in their order. One
// that is there twice has to be old twice.
func Without(changes, old []Change) (fresh []Change) {
	taken, first := make([]bool, len(old)), 0 // all before the first are taken
	for _, c := range changes {
		at := first
		for at < len(old) && (taken[at] || !old[at].Equal(c)) {
			at++
		}
		if at == len(old) {
			fresh = append(fresh, c)
			continue
		}
		for taken[at] = true; first < len(old) && taken[first]; first++ {
		}
	}
	return fresh
}

// Merge returns the changes that a token awaits and behind them those that only a journal has, so that of one step the
// last is the journal's. For a step of which a change was cancelled the token may be older than that: there the
// journal's stand first, as it has them, and then what only the token has and was not cancelled.
func Merge(token, journal []Change, cancelled func(Change) bool) []Change {
	later := map[int64]bool{} // steps of which one was cancelled
	for _, c := range slices.Concat(token, journal) {
		later[c.Step] = later[c.Step] || cancelled(c)
	}
	var all []Change
	for _, c := range token {
		if !later[c.Step] {
			all = append(all, c)
		}
	}
	all = append(all, Without(journal, all)...)
	for _, c := range Without(token, all) {
		if !cancelled(c) {
			all = append(all, c)
		}
	}
	return all
}

// Cancelled marks those of the changes that one behind them takes back, and those
// that do. It is an error if there is nothing that one could take back.
func Cancelled(changes []Change) (gone []bool, err error) {
	gone = make([]bool, len(changes))
	for i, c := range changes {
		if c.Cancel == nil {
			continue
		}
		at := i - 1
		for at >= 0 && (gone[at] || !changes[at].Equal(*c.Cancel)) {
			at--
		}
		if at < 0 {
			return nil, fault.Userf("%sthere is no change %s before the one that cancels it: give both, in this order", c.Origin, c.Cancel)
		}
		gone[at], gone[i] = true, true
	}
	return gone, nil
}

// InForce returns the changes without those that were cancelled, in their order.
func InForce(changes []Change) (left []Change, err error) {
	gone, err := Cancelled(changes)
	for i, c := range changes {
		if err == nil && !gone[i] {
			left = append(left, c)
		}
	}
	return left, err
}

// Sort orders changes by step; those of one step stay in their order.
func Sort(changes []Change) {
	slices.SortStableFunc(changes, func(a, b Change) int { return cmp.Compare(a.Step, b.Step) })
}
