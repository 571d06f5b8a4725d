package plan

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

// Change is an external input: what is different from a step on. With the job
// spec and the data, the changes so far are all that a step depends on, so they
// are kept in the log and travel in every resume token.
type Change struct {
	Step int64 // the first step that it applies to
	Kind Kind

	Source  int32      // Pause, Unpause, Drop: which
	Shares  []uint64   // SetShares: in 2^-32 parts, by source, 2^32 in all
	Weights []float64  // SetShares: what Shares were made of; tokens say it in fewer bytes
	Batch   Shape      // Resize: zero fields stay as they are
	Mesh    mesh.Sizes // Remesh: of the axes that it names; what the others have, the changes before it say
	From    bool       // Remesh: it starts from a token, and what was planned of later steps is void
	Steps   int64      // Skip: steps whose data is passed over
	Ban     Ban        // BanSample
	Add     Added      // AddSource
	Text    []byte     // its written form, which log and tokens keep
}

// Kind says what a change does.
type Kind uint8

const (
	SetShares   Kind = 1 + iota // the mix is Shares, whatever the schedule says
	UseSchedule                 // the mix is the schedule's again
	Pause                       // nothing more is drawn from a source; its debt stays as it is
	Unpause                     // a paused source goes on where it was
	Drop                        // nothing more is drawn from a source, ever
	AddSource                   // one more source
	Resize                      // rows of another length, or another number of them
	Remesh                      // another mesh of trainer ranks
	Skip                        // the data of some steps is passed over
	BanSample                   // a record is not used any more
)

var kinds = [...]string{"", "set weights", "use schedule", "pause", "resume", "drop", "add", "resize", "topology", "skip", "ban"}

func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return fmt.Sprintf("change %d", k)
}

// Shape is the shape of a global batch.
type Shape struct {
	SequenceLength int32 // tokens per row
	Rows           int   // rows per step
}

// Ban takes a record out of its source.
type Ban struct {
	ID     uint32 // its number among those that the loaders know of, from 0
	Source int32
	File   string
	Row    int64
}

// is says whether this ban, which may name the end of a path only, is b.
func (x Ban) is(b Ban) bool {
	return b.Source == x.Source && b.Row == x.Row && (b.File == x.File || strings.HasSuffix(b.File, "/"+x.File))
}

// Added is a source that joined after the start.
type Added struct {
	Source
	Share    uint64   // its part of the mix, in 2^-32; the others share the rest
	Spec     []byte   // its entry in the job spec, JSON
	Manifest [32]byte // what its data was when it joined
}

// Settings are what the changes so far add up to. The zero value is a job as
// its spec has it.
type Settings struct {
	Shares  []uint64  // set by hand or by feedback; nil: the schedule's
	Weights []float64 // what Shares were made of
	Out     []int32   // sources that nothing is drawn from, rising
	Gone    []int32   // of them, those that will not come back, rising
	Batch   Shape     // zero fields: the job's
	Mesh    *mesh.Tree
	Bans    []Ban
	Added   []Added
	Skips   [][2]int64 // of each its step, and how many steps' data was passed over; no plan depends on them
}

// with returns settings after a change. What they hold is never written to
// again, so positions share it.
func (cfg *Config) with(s Settings, ch Change) Settings {
	switch ch.Kind {
	case SetShares:
		s.Shares, s.Weights = ch.Shares, ch.Weights
	case UseSchedule:
		s.Shares, s.Weights = nil, nil
	case Pause:
		s.Out = including(s.Out, ch.Source)
	case Unpause:
		s.Out = slices.DeleteFunc(slices.Clone(s.Out), func(i int32) bool { return i == ch.Source })
	case Drop:
		s.Out, s.Gone = including(s.Out, ch.Source), including(s.Gone, ch.Source)
	case AddSource:
		s.Added = append(slices.Clip(s.Added), ch.Add)
	case Resize:
		if ch.Batch.SequenceLength > 0 {
			s.Batch.SequenceLength = ch.Batch.SequenceLength
		}
		if ch.Batch.Rows > 0 {
			s.Batch.Rows = ch.Batch.Rows
		}
	case Remesh:
		if tree, err := cfg.mesh(s).Change(ch.Mesh); err == nil { // else Begin fails
			s.Mesh = tree
		}
	case Skip:
		s.Skips = append(slices.Clip(s.Skips), [2]int64{ch.Step, ch.Steps})
	case BanSample:
		s.Bans = append(slices.Clip(s.Bans), ch.Ban)
	}
	return s
}

// Have says whether changes are part of the settings: those that were made last,
// one after the other.
func (s Settings) Have(changes []Change) bool {
	then, skips := s, slices.Clone(s.Skips)
	for _, ch := range changes {
		switch ch.Kind {
		case Remesh:
			if s.Mesh == nil {
				return false
			}
			tree, err := then.Mesh.Change(ch.Mesh)
			if err != nil {
				return false
			}
			then.Mesh = tree
		case Skip:
			i := slices.Index(skips, [2]int64{ch.Step, ch.Steps})
			if i < 0 {
				return false
			}
			skips = slices.Delete(skips, i, i+1)
		case AddSource:
			if !slices.ContainsFunc(s.Added, func(a Added) bool { return bytes.Equal(a.Spec, ch.Add.Spec) }) {
				return false
			}
		case BanSample:
			if !slices.ContainsFunc(s.Bans, ch.Ban.is) {
				return false
			}
		default: // those that are part of them already make no difference
			then = new(Config).with(then, ch)
		}
	}
	return sameMesh(then.Mesh, s.Mesh) && then.Batch == s.Batch &&
		slices.Equal(then.Shares, s.Shares) && slices.Equal(then.Out, s.Out) && slices.Equal(then.Gone, s.Gone)
}

func including(set []int32, i int32) []int32 {
	at, has := slices.BinarySearch(set, i)
	if has {
		return set
	}
	return slices.Insert(slices.Clone(set), at, i)
}

// inserted returns changes with more, behind those of the same step.
func inserted(changes []Change, more ...Change) []Change {
	all := slices.Concat(changes, more)
	slices.SortStableFunc(all, func(a, b Change) int { return cmp.Compare(a.Step, b.Step) })
	return all
}

// after returns settings after several changes.
func (cfg *Config) after(s Settings, changes []Change) Settings {
	var bans []Ban
	for _, ch := range changes {
		if ch.Kind == BanSample { // there may be thousands: they are copied once
			bans = append(bans, ch.Ban)
		} else {
			s = cfg.with(s, ch)
		}
	}
	if len(bans) > 0 {
		s.Bans = slices.Concat(s.Bans, bans)
	}
	return s
}

// ahead is what the settings will be when all pending changes are made.
func (c *Core) ahead() Settings { return c.cfg.after(c.state.Settings, c.state.Pending) }

// CheckNamed says why weights that are given now cannot be: one is of a source that is dropped by their step, which makes no
// batch other, and is not what was meant. Changes that were made are not asked.
func (c *Core) CheckNamed(ch Change) error {
	s := c.state.Settings
	for _, x := range c.state.Pending {
		if x.Step <= ch.Step {
			s = c.cfg.with(s, x)
		}
	}
	for i, w := range ch.Weights {
		if w > 0 && slices.Contains(s.Gone, int32(i)) {
			return fault.Userf("source %q was dropped, which is for good: leave it out of the mix", c.name(int32(i)))
		}
	}
	return nil
}

// Check says why a change cannot be made at its step, nil if it can. Changes
// that are pending for later steps must still be possible after it.
func (c *Core) Check(ch Change) error {
	if ch.Kind == BanSample { // nothing depends on it
		return nil
	}
	s := c.state.Settings
	for _, x := range inserted(c.state.Pending, ch) {
		if x.Kind == BanSample {
			continue
		}
		switch later := x.Step > ch.Step && x.Kind == ch.Kind; {
		case later && ch.Kind == AddSource:
			return fault.Userf("source %q joins at step %d already: sources join in the order in which they were added, so that step %d or a later one is valid", x.Add.Name, x.Step, x.Step)
		case later && ch.Kind == Remesh:
			at := c.state
			at.Step = x.Step
			return fault.Userf("the topology changes at step %d already, to %s: step %d or a later one is valid", x.Step, c.MeshAt(at).Canonical(), x.Step)
		}
		err := c.check(x, s)
		switch {
		case err != nil && x.Step > ch.Step && x.Kind == SetShares && ch.Kind == AddSource:
			return fault.Userf("it does not go with the change %q of step %d: %w; cancel that change, add the source, and set the weights again with one for it", x.Kind, x.Step, err)
		case err != nil && x.Step > ch.Step:
			return fault.Userf("it does not go with the change %q of step %d: %w", x.Kind, x.Step, err)
		case err != nil:
			return err
		}
		s = c.cfg.with(s, x)
	}
	return nil
}

// CheckSettings says why no step could be planned with this mesh and shape of the batch: those of a
// token need not be any that was checked.
func (c *Core) CheckSettings() error { return c.checkShape(c.state.Settings.Batch, c.state.Settings) }

// Sources is the number of sources, those that will join included.
func (c *Core) Sources() int { return len(c.sources) }

// Mesh is the mesh when all pending changes are made.
func (c *Core) Mesh() *mesh.Tree { return c.cfg.mesh(c.ahead()) }

// SequenceLength is the number of tokens in a row when all changes so far are made.
func (c *Core) SequenceLength() int32 { return c.shape(c.ahead()).SequenceLength }

// SourcesAt is the number of sources at a step to come.
func (c *Core) SourcesAt(step int64) int {
	n := len(c.state.Cursors)
	if !c.step.begun || step > c.state.Step {
		for _, ch := range c.state.Pending {
			if ch.Kind == AddSource && ch.Step <= step {
				n++
			}
		}
	}
	return n
}

// check says why a change cannot follow these settings.
func (c *Core) check(ch Change, s Settings) error {
	switch ch.Kind {
	case SetShares:
		return c.checkShares(ch, s)
	case Pause, Drop:
		return c.checkOut(ch, s)
	case UseSchedule:
		if !c.anyLeft(c.cfg.with(s, ch), ch.Step) {
			return fault.Userf("all weight of the schedule is on sources that are paused or dropped: resume one of them first")
		}
	case Unpause:
		if slices.Contains(s.Gone, ch.Source) {
			return fault.Userf("source %q was dropped, which is for good", c.name(ch.Source))
		}
		if !slices.Contains(s.Out, ch.Source) {
			return fault.Userf("source %q is not paused", c.name(ch.Source))
		}
	case AddSource:
		if length := c.longest(c.shape(s)); ch.Add.Longest > length {
			return fault.Userf("source %q has samples of up to %d tokens, rows have %d: give it `long: {max: %d}`", ch.Add.Name, ch.Add.Longest, length, length)
		}
	case Resize:
		return c.checkShape(ch.Batch, s)
	case Remesh:
		if _, err := c.cfg.mesh(s).Change(ch.Mesh); err != nil {
			return err
		}
		return c.checkPlace(c.cfg.with(s, ch))
	}
	return nil
}

// checkPlace tries the strategy on a batch of one token, for all that it and Fits have to
// say about the mesh and the shape of the batch.
func (c *Core) checkPlace(s Settings) error {
	shape := c.shape(s)
	if c.cfg.Fits != nil {
		if err := c.cfg.Fits(shape, c.cfg.mesh(s)); err != nil {
			return err
		}
	}
	draw := func([]uint64) (*dgraph.Buffer, []int32, error) {
		b := &dgraph.Buffer{Source: []int32{0}, Seq: []int64{0}, Index: []int32{0}, Tokens: []int32{1}}
		if c.cfg.Images {
			b.ImageOffsets = []int32{0, 0}
		}
		return b, []int32{0}, nil
	}
	_, err := new(strategy.Runner).Run(c.cfg.Strategy, strategy.Input{
		Number: c.state.Step, Tree: c.cfg.mesh(s), Shape: c.strategyShape(shape), Sources: c.names(), Draw: draw,
	})
	return err
}

func (c *Core) checkShares(ch Change, s Settings) error {
	if have := len(c.cfg.Sources) + len(s.Added); len(ch.Shares) != have {
		return fault.Userf("%d weights for %d sources", len(ch.Shares), have)
	}
	if !c.anyLeft(c.cfg.with(s, ch), ch.Step) {
		return fault.Userf("all weight is on sources that are paused or dropped: resume one of them first, or give weight to another")
	}
	return nil
}

func (c *Core) checkOut(ch Change, s Settings) error {
	if slices.Contains(s.Gone, ch.Source) {
		return fault.Userf("source %q was dropped already", c.name(ch.Source))
	}
	if !c.anyLeft(c.cfg.with(s, ch), ch.Step) {
		return fault.Userf("without source %q no source with a weight is left: give weight to another first, or stop the job", c.name(ch.Source))
	}
	return nil
}

// anyLeft says whether a source that is drawn from has a weight at a step. When
// an epoch begins is not known ahead: there, a weight in any stage is one.
func (c *Core) anyLeft(s Settings, step int64) bool {
	at := c.state
	at.Step = step
	shares := slices.Clone(c.cfg.shares(s, at, 0, 1))
	if s.Shares == nil && c.cfg.Grain == grainEpoch {
		for i := range c.cfg.Sources {
			if c.cfg.Schedule.Ever(i) {
				shares[i] = 1
			}
		}
	}
	return mix.Without(shares, s.out(len(shares))) != nil
}

func (c *Core) checkShape(shape Shape, s Settings) error {
	for i := range c.sources {
		if n, widest := c.sources[i].Longest, max(c.cfg.Widest, 1); shape.SequenceLength > 0 && c.longest(shape) < n {
			return fault.Userf("rows of %d tokens are too short for source %q, whose samples have up to %d: valid is %d or more, or a job with `long: {max: %d}` for it",
				c.longest(shape), c.name(int32(i)), n, (n-1)/widest+1, c.longest(shape))
		}
	}
	return c.checkPlace(c.cfg.with(s, Change{Kind: Resize, Batch: shape}))
}

// out says which of n sources nothing is drawn from.
func (s Settings) out(n int) []bool {
	out := make([]bool, n)
	for _, i := range s.Out {
		out[i] = true
	}
	return out
}

// shape is the shape of a global batch under settings.
func (c *Core) shape(s Settings) Shape {
	shape := Shape{c.cfg.SequenceLength, c.cfg.Rows}
	if s.Batch.SequenceLength > 0 {
		shape.SequenceLength = s.Batch.SequenceLength
	}
	if s.Batch.Rows > 0 {
		shape.Rows = s.Batch.Rows
	}
	return shape
}

// longest is how many tokens the widest row of a shape has room for.
func (c *Core) longest(s Shape) int32 {
	return int32(min(int64(s.SequenceLength)*int64(max(c.cfg.Widest, 1)), math.MaxInt32))
}

// StateOf says whether a source is "paused" or "dropped"; "" if it is neither.
func (s Settings) StateOf(source int32) string {
	switch {
	case slices.Contains(s.Gone, source):
		return "dropped"
	case slices.Contains(s.Out, source):
		return "paused"
	}
	return ""
}

// Shares are those of all sources at the next step, in 2^-32 parts.
func (c *Core) Shares() []uint64 { return c.liveShares(c.state.Settings, c.state) }

// SharesAt are those of the step after a position.
func (c *Core) SharesAt(s State) []uint64 { return c.liveShares(c.cfg.due(s), s) }

func (c *Core) liveShares(s Settings, at State) []uint64 {
	shares := c.cfg.shares(s, at, 0, 1)
	if out := s.out(len(shares)); slices.Contains(out, true) {
		return mix.Without(shares, out)
	}
	return shares
}

// Weights are the shares at the next step with those of sources that are paused.
func (c *Core) Weights() []uint64 { return c.cfg.shares(c.state.Settings, c.state, 0, 1) }

// Scheduled are the shares of all sources at the next step by the job's schedule.
func (c *Core) Scheduled() []uint64 {
	s := c.state.Settings
	s.Shares = nil
	return c.cfg.shares(s, c.state, 0, 1)
}

// MeshAt is the mesh of the step after a position.
func (c *Core) MeshAt(s State) *mesh.Tree { return c.cfg.mesh(c.cfg.due(s)) }

// MicrobatchesAt is the number of microbatches of each DP rank in the step after
// a position.
func (c *Core) MicrobatchesAt(s State) int {
	rows, mesh := c.shape(c.cfg.due(s)).Rows, c.MeshAt(s)
	n, err := mesh.Microbatches(rows, c.cfg.MicrobatchSize)
	if c.cfg.Pool {
		n, err = mesh.PoolMicrobatches(rows, int(max(c.cfg.Widest, 1)), c.cfg.MicrobatchSize)
	}
	if err != nil {
		return 0 // Check lets no such change pass
	}
	return n
}

// due are the settings of the step after a position.
func (cfg *Config) due(s State) Settings {
	settings := s.Settings
	for _, ch := range s.Pending {
		if ch.Step <= s.Step {
			settings = cfg.with(settings, ch)
		}
	}
	return settings
}

// mesh is the mesh of trainer ranks under settings.
func (cfg *Config) mesh(s Settings) *mesh.Tree {
	switch {
	case s.Mesh != nil:
		return s.Mesh
	case cfg.Mesh != nil:
		return cfg.Mesh
	}
	return mesh.Single()
}
