package token

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
	statepb "github.com/millrace-data/millrace/internal/proto/state"
	"github.com/millrace-data/millrace/planner/mesh"
)

// packSettings is what a token says of the changes up to a position; nil if there
// were none.
func packSettings(s plan.Settings) *statepb.Settings {
	out := &statepb.Settings{SequenceLength: uint32(s.Batch.SequenceLength), Sequences: uint32(s.Batch.Rows)}
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
	for _, b := range s.Bans { // without its number, which is this service's own
		out.Bans = append(out.Bans, &statepb.BannedRecord{Source: uint32(b.Source), File: b.File, Row: b.Row})
	}
	for _, a := range s.Added {
		out.Added = append(out.Added, &statepb.AddedSource{Yaml: a.Spec, Share: a.Share, Limited: a.Limit > 0, Manifest: a.Manifest[:]})
	}
	if proto.Size(out) == 0 {
		return nil
	}
	return out
}

// unpackSettings is the inverse of packSettings for a job of n sources, of which
// these joined.
func unpackSettings(in *statepb.Settings, added []plan.Added, sources int) (s plan.Settings, err error) {
	if in == nil {
		return s, nil
	}
	if s.Shares, s.Weights, err = unpackMix(in, sources); err != nil {
		return s, err
	}
	if n := len(s.Shares); n > 0 && n < sources-len(added) {
		return s, fmt.Errorf("it has weights of %d sources, and the job spec has %d", n, sources-len(added))
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
			return s, fmt.Errorf("it has a topology that cannot be: %w", err)
		}
	}
	for _, b := range in.Bans {
		if int(b.Source) >= sources {
			return s, fmt.Errorf("it bans a record of source %d of %d", b.Source, sources)
		}
		s.Bans = append(s.Bans, plan.Ban{Source: int32(b.Source), File: b.File, Row: b.Row})
	}
	s.Added = added
	return s, nil
}

// unpackAdded reads the sources that joined, as far as the token has them.
func unpackAdded(in *statepb.Settings) (added []plan.Added, err error) {
	for _, a := range in.GetAdded() {
		if len(a.Manifest) != 32 || a.Share >= 1<<mix.Bits || !json.Valid(a.Yaml) {
			return nil, fmt.Errorf("it has a source that cannot have joined: its manifest has %d bytes, its share is %d of 2^%d, its entry %.100q", len(a.Manifest), a.Share, mix.Bits, a.Yaml)
		}
		source := plan.Source{Name: nameOf(a.Yaml)}
		if a.Limited {
			source.Limit = 1
		}
		added = append(added, plan.Added{Source: source, Share: a.Share, Spec: a.Yaml, Manifest: [32]byte(a.Manifest)})
	}
	return added, nil
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
func unpackStates(in *statepb.Settings, sources int) (out, gone []int32, err error) {
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
		return nil, nil, fmt.Errorf("it has states of sources that cannot be")
	}
	return out, gone, nil
}

// unpackMix reads the mix that was set; nil if none was.
func unpackMix(in *statepb.Settings, sources int) (shares []uint64, weights []float64, err error) {
	switch {
	case len(in.Weights) > 0:
		r := columns{data: in.Weights}
		weights = r.decimals(sources)
		if r.short || len(r.data) > 0 || !slices.ContainsFunc(weights, func(w float64) bool { return w > 0 }) {
			return nil, nil, fmt.Errorf("it has weights that cannot be read, or are all zero")
		}
		return mix.FromWeights(weights), weights, nil
	case len(in.Shares) > 0:
		r := columns{data: in.Shares}
		shares = r.next(min(sources, valuesIn(in.Shares)))
		var sum uint64
		for _, n := range shares {
			sum += min(n, 2<<mix.Bits) // no sum of these wraps around
		}
		if r.short || sum != 1<<mix.Bits {
			return nil, nil, fmt.Errorf("it has weights that do not sum to 1")
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
