package planner

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/planner/mesh"
)

// packSettings is what a token says of the changes up to a position; nil if there
// were none.
func packSettings(s plan.Settings) *pb.Settings {
	out := &pb.Settings{SequenceLength: uint32(s.Batch.SequenceLength), Sequences: uint32(s.Batch.Rows)}
	for _, x := range s.Skips {
		out.Skips = append(out.Skips, uint64(x[0]), uint64(x[1]))
	}
	if weights, short := appendDecimals([]byte{}, s.Weights); s.Weights != nil && short {
		out.Weights = weights
	} else if s.Shares != nil {
		out.Shares = appendColumn([]byte{}, s.Shares)
	}
	if len(s.Out) > 0 {
		out.States = appendColumn([]byte{}, states(s))
	}
	if s.Mesh != nil {
		out.Topology = s.Mesh.Canonical()
	}
	for _, b := range s.Bans {
		out.Bans = append(out.Bans, &pb.Ban{Source: uint32(b.Source), File: b.File, Row: b.Row}) // its number is this service's own
	}
	for _, a := range s.Added {
		out.Added = append(out.Added, &pb.AddedSource{Yaml: a.Spec, Share: a.Share, Limited: a.Limit > 0, Manifest: a.Manifest[:]})
	}
	if proto.Size(out) == 0 {
		return nil
	}
	return out
}

// texts are changes in their written form.
func texts(changes []plan.Change) (texts [][]byte) {
	for _, ch := range changes {
		texts = append(texts, ch.Text)
	}
	return texts
}

// whole is the position of a token with the changes up to it and after it, those
// that the journal knows among them. The sources that joined are indexed.
func (p *Planner) whole(t *position) (plan.State, error) {
	state := t.state
	var err error
	if state.Settings, err = p.unpackSettings(t.settings, len(state.Cursors)); err != nil {
		return state, err
	}
	for _, ch := range p.journal {
		if ch.Step >= state.Step {
			state.Await(ch)
		}
	}
	var unknown []change.Change
	for _, c := range t.pending {
		if text := c.String(); !p.cancelled[text] && !slices.ContainsFunc(p.journal, func(ch plan.Change) bool { return string(ch.Text) == text }) {
			unknown = append(unknown, c)
		}
	}
	if err := p.resume(&state, unknown, byToken); err != nil {
		return state, err
	}
	return state, p.agree(state)
}

// agree refuses a position if changes of a file, for steps before it, are no part
// of it: they would be passed over without a word.
func (p *Planner) agree(state plan.State) error {
	past := slices.DeleteFunc(slices.Clone(p.journal), func(ch plan.Change) bool { return ch.Step >= state.Step })
	slices.SortStableFunc(past, func(a, b plan.Change) int { return cmp.Compare(a.Step, b.Step) })
	var filed []plan.Change // those of the past that stand in a file, from ch on
	for i, ch := range slices.Backward(past) {
		origin := p.origins[string(ch.Text)]
		if origin == "" && !ch.From {
			continue
		}
		filed = slices.Insert(filed, 0, ch)
		if have := state.Settings.Have(past[i:]) || state.Settings.Have(filed); !have && ch.From {
			return fault.Userf("%sthe job went on from step %d with other ranks (%s), and the resume token of step %d was saved by those before: "+
				"what they were given from step %d on is void; resume from the token of that step, or from one that was saved since", origin, ch.Step, ch.Text, state.Step, ch.Step)
		}
		if !state.Settings.Have(past[i:]) && !state.Settings.Have(filed) { // what was made live may be of another branch
			return fault.Userf("%sthe change %s is for step %d, and the job of the resume token of step %d did not have it there, or has another one since: "+
				"leave it out, give it step %d or a later one, or resume from a token of step %d or before", origin, ch.Text, ch.Step, state.Step, state.Step, ch.Step)
		}
	}
	return nil
}

// unpackSettings is the inverse of packSettings for a job of so many sources.
func (p *Planner) unpackSettings(in *pb.Settings, sources int) (s plan.Settings, err error) {
	if in == nil {
		return s, nil
	}
	if s.Shares, s.Weights, err = unpackMix(in, sources); err != nil {
		return s, err
	}
	if s.Out, s.Gone, err = unpackStates(in, sources); err != nil {
		return s, err
	}
	s.Batch = plan.Shape{SequenceLength: int32(min(in.SequenceLength, math.MaxInt32)), Rows: int(in.Sequences)}
	for x := range slices.Chunk(in.Skips, 2) {
		s.Skips = append(s.Skips, [2]int64{int64(x[0]), int64(x[len(x)-1])})
	}
	if in.Topology != "" {
		if s.Mesh, err = mesh.Parse(in.Topology); err != nil {
			return s, fmt.Errorf("the resume token has a topology that cannot be: %w", err)
		}
	}
	for _, b := range in.Bans {
		ban := p.banOf(int32(min(b.Source, uint32(sources-1))), b.File, b.Row)
		s.Bans = append(s.Bans, ban)
		p.ban(ban)
	}
	for n, a := range in.Added {
		i := p.base() + n
		if !bytes.Equal(p.indexed[i].Manifest, a.Manifest) {
			return s, fault.Userf("the data of source %q changed since it joined the job: put its files back as they were", p.sources[i].Name)
		}
		s.Added = append(s.Added, plan.Added{Source: p.coreSource(i), Share: a.Share, Spec: a.Yaml, Manifest: [32]byte(a.Manifest)})
	}
	p.joinedUpTo(len(in.Added))
	return s, nil
}

// What is drawn of a source, in the column of states.
const (
	drawn uint64 = iota
	paused
	dropped
)

// states are those of the sources up to the last one that nothing is drawn from.
func states(s plan.Settings) []uint64 {
	var of []uint64
	for _, i := range s.Out {
		of = append(of, make([]uint64, int(i)-len(of))...)
		of = append(of, paused)
	}
	for _, i := range s.Gone {
		of[i] = dropped
	}
	return of
}

// unpackStates reads which sources are paused or dropped, rising.
func unpackStates(in *pb.Settings, sources int) (out, gone []int32, err error) {
	if len(in.States) == 0 {
		return nil, nil, nil
	}
	r := columns{data: in.States}
	for i, state := range r.next(min(sources, valuesIn(in.States))) {
		if state >= paused {
			out = append(out, int32(i))
		}
		if state == dropped {
			gone = append(gone, int32(i))
		}
		r.short = r.short || state > dropped
	}
	if r.short {
		return nil, nil, fmt.Errorf("the resume token has states of sources that cannot be")
	}
	return out, gone, nil
}

// unpackMix reads the mix that was set; nil if none was.
func unpackMix(in *pb.Settings, sources int) (shares []uint64, weights []float64, err error) {
	switch {
	case len(in.Weights) > 0:
		r := columns{data: in.Weights}
		weights = r.decimals(sources)
		if r.short || len(r.data) > 0 || !slices.ContainsFunc(weights, func(w float64) bool { return w > 0 }) {
			return nil, nil, fmt.Errorf("the resume token has weights that cannot be read, or are all zero")
		}
		return mix.FromWeights(weights), weights, nil
	case len(in.Shares) > 0:
		r := columns{data: in.Shares}
		shares = r.next(min(sources, valuesIn(in.Shares)))
		var sum uint64
		for _, n := range shares {
			sum += n
		}
		if r.short || sum != 1<<mix.Bits {
			return nil, nil, fmt.Errorf("the resume token has weights that do not sum to 1")
		}
	}
	return shares, nil, nil
}

// valuesIn is the most values that a column that fills data has; those past the
// last one are zero.
func valuesIn(data []byte) int {
	if data[0] == 0 {
		return 0
	}
	return 8 * (len(data) - 1) / int(data[0])
}
