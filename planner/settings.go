package planner

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/planner/change"
	"github.com/millrace-data/millrace/planner/place"
	"github.com/millrace-data/millrace/planner/plan"
	pb "github.com/millrace-data/millrace/proto"
)

// packSettings is what a token says of the changes up to a position; nil if there
// were none.
func packSettings(s plan.Settings) *pb.Settings {
	out := &pb.Settings{SequenceLength: uint32(s.Batch.SequenceLength), Sequences: uint32(s.Batch.Rows)}
	if s.Shares != nil {
		out.Shares = appendColumn([]byte{}, s.Shares)
	}
	for _, i := range s.Out {
		out.Out = append(out.Out, uint32(i))
	}
	for _, i := range s.Gone {
		out.Gone = append(out.Gone, uint32(i))
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
	if s.Shares == nil && s.Batch == (plan.Shape{}) && s.Out == nil && s.Mesh == nil && s.Bans == nil && s.Added == nil {
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
		if !slices.ContainsFunc(p.journal, func(ch plan.Change) bool { return bytes.Equal(ch.Text, []byte(c.String())) }) {
			unknown = append(unknown, c)
		}
	}
	return state, p.resume(&state, unknown, byToken)
}

// unpackSettings is the inverse of packSettings for a job of so many sources.
func (p *Planner) unpackSettings(in *pb.Settings, sources int) (s plan.Settings, err error) {
	if in == nil {
		return s, nil
	}
	if len(in.Shares) > 0 {
		r := columns{data: in.Shares}
		s.Shares = r.next(min(sources, sharesIn(in.Shares)))
		var sum uint64
		for _, n := range s.Shares {
			sum += n
		}
		if r.short || sum != 1<<32 {
			return s, fmt.Errorf("the resume token has weights that do not sum to 1")
		}
	}
	for _, i := range in.Out {
		s.Out = append(s.Out, int32(min(i, uint32(sources-1))))
	}
	for _, i := range in.Gone {
		s.Gone = append(s.Gone, int32(min(i, uint32(sources-1))))
	}
	s.Batch = plan.Shape{SequenceLength: int32(min(in.SequenceLength, math.MaxInt32)), Rows: int(in.Sequences)}
	if in.Topology != "" {
		if s.Mesh, err = place.Parse(in.Topology); err != nil {
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

// sharesIn is the number of values in a column that fills data.
func sharesIn(data []byte) int {
	if data[0] == 0 {
		return 0
	}
	return 8 * (len(data) - 1) / int(data[0])
}
