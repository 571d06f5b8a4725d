package planner

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/planner/change"
	"github.com/millrace-data/millrace/planner/plan"
	pb "github.com/millrace-data/millrace/proto"
)

// tokenVersion is the version of resume tokens written here; older ones are read.
const tokenVersion = 1

// identity is what tokens and logs must agree on with the job: the part of the
// spec that decides the bytes, and the data.
type identity struct {
	name     string
	spec     [32]byte
	manifest [32]byte
}

// encodeToken writes a position as a resume token. limited says which sources
// have a limit.
func encodeToken(id identity, mesh *pb.Mesh, s plan.State, digest [32]byte, limited []bool) []byte {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(&pb.ResumeToken{
		Version:  tokenVersion,
		Job:      id.name,
		Identity: id.spec[:],
		Manifest: id.manifest[:],
		Step:     uint64(s.Step),
		Digest:   digest[:],
		Mesh:     mesh,
		Cursors:  packState(s, limited),
		Settings: packSettings(s.Settings),
		Pending:  texts(s.Pending),
	})
	if err != nil {
		panic(fmt.Sprintf("planner: a resume token does not encode: %v", err)) // only invalid UTF-8 in the name could, and lint refuses that
	}
	return seal(data)
}

// savedToken is a resume token that some ranks were given, and others will be.
type savedToken struct {
	token []byte
	left  int // ranks that did not ask yet
}

// token is the resume token of a position. Ranks that save one after the other are
// given the same, even if a change for a step to come is made between them; who
// saves again is given another one, with the change.
func (p *Planner) token(state plan.State, digest [32]byte) []byte {
	s := p.saved[state.Step]
	if s == nil {
		m := p.tree.Mesh()
		s = &savedToken{encodeToken(p.id, meshProto(p.core.MeshAt(state)), state, digest, p.limited), m.DP * m.CP * m.PP * m.TP}
		if p.opts.Job.Output.BroadcastAt == "tp" {
			s.left /= m.TP
		}
		p.saved[state.Step] = s
	}
	if s.left--; s.left == 0 {
		delete(p.saved, state.Step)
	}
	return s.token
}

// position is what a resume token says. What it says of sources that joined can
// be understood when they are indexed.
type position struct {
	state    plan.State
	digest   [32]byte
	settings *pb.Settings
	pending  []change.Change
}

// entries are the sources that joined before the position, or will after it.
func (p *position) entries() (entries [][]byte) {
	for _, a := range p.settings.GetAdded() {
		entries = append(entries, a.Yaml)
	}
	for _, c := range p.pending {
		if c.Add != nil {
			entries = append(entries, c.Add.Source)
		}
	}
	return entries
}

// decodeToken reads a resume token and checks that it is whole and of this job.
// limited says which sources of the job spec have a limit.
func decodeToken(id identity, data []byte, limited []bool) (*position, error) {
	t := &pb.ResumeToken{}
	body, whole := unseal(data)
	if !whole || proto.Unmarshal(body, t) != nil || t.Version == 0 {
		return nil, fault.Userf("the resume token (%d bytes) is damaged or is not one; pass what state_dict() or --save-token gave", len(data))
	}
	if err := checkToken(id, t); err != nil {
		return nil, err
	}
	p := &position{settings: t.Settings, digest: [32]byte{}}
	pending, err := change.ParseAll(t.Pending)
	p.pending = pending
	if err == nil {
		for _, a := range t.Settings.GetAdded() {
			limited = append(limited[:len(limited):len(limited)], a.Limited)
		}
		p.state, err = unpackState(t.Cursors, limited)
	}
	if err != nil || len(t.Digest) != 32 || t.Step > math.MaxInt64 {
		return nil, fmt.Errorf("the resume token of step %d is whole, but cannot be read: %w", t.Step, err)
	}
	p.state.Step, p.digest = int64(t.Step), [32]byte(t.Digest)
	return p, nil
}

// checkToken refuses what is not of this version, job or data.
func checkToken(id identity, t *pb.ResumeToken) error {
	switch {
	case t.Version > tokenVersion:
		return fault.Userf("the resume token is of version %d, this Millrace reads up to %d; use a newer Millrace", t.Version, tokenVersion)
	case !bytes.Equal(t.Identity, id.spec[:]):
		return fault.Userf("the resume token is of job %q with spec %x, this is job %q with spec %x: "+
			"sources, mix, batch and seed must be the same; start the service with the spec the token was made with", t.Job, head(t.Identity), id.name, id.spec[:6])
	case !bytes.Equal(t.Manifest, id.manifest[:]):
		return fault.Userf("the data of job %q changed since the resume token was made (manifest %x then, %x now): "+
			"put the files back as they were, or start again without a token", t.Job, head(t.Manifest), id.manifest[:6])
	}
	return nil
}

func head(b []byte) []byte { return b[:min(len(b), 6)] }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checkTag is the tag of the field `check`.
var checkTag = protowire.AppendTag(nil, 15, protowire.Fixed32Type)

// seal appends the field `check`: a flipped bit in a cursor would give other
// data than was saved, without a word.
func seal(data []byte) []byte {
	sum := crc32.Checksum(data, castagnoli)
	return binary.LittleEndian.AppendUint32(append(data, checkTag...), sum)
}

// unseal takes it off again and reports whether it holds.
func unseal(data []byte) (body []byte, whole bool) {
	n := len(data) - len(checkTag) - 4
	if n < 0 || !bytes.Equal(data[n:n+len(checkTag)], checkTag) {
		return nil, false
	}
	return data[:n], binary.LittleEndian.Uint32(data[n+len(checkTag):]) == crc32.Checksum(data[:n], castagnoli)
}

// packState writes cursors and carried samples column by column, each number in
// as many bits as the largest of its column needs: about 12 bytes a source late
// in a long job, where varints would take 15.
//
// The columns by source, in the spec's order: next block, next sample in it,
// deficit (zigzag), tokens; for sources with a limit: samples of this epoch. By
// carried sample, after their number: source, how many blocks behind the
// source's cursor, place in the block, length.
func packState(s plan.State, limited []bool) []byte {
	var seq, index, deficit, tokens, inEpoch []uint64
	for i, c := range s.Cursors {
		seq = append(seq, uint64(c.Seq))
		index = append(index, uint64(c.Index))
		deficit = append(deficit, protowire.EncodeZigZag(c.Deficit))
		tokens = append(tokens, uint64(c.Tokens))
		if limited[i] {
			inEpoch = append(inEpoch, uint64(c.InEpoch))
		}
	}
	var source, back, place, length []uint64
	for _, r := range s.Carry {
		source = append(source, uint64(r.Source))
		back = append(back, uint64(s.Cursors[r.Source].Seq-r.Seq))
		place = append(place, uint64(r.Index))
		length = append(length, uint64(r.Length))
	}
	var data []byte
	for _, column := range [][]uint64{seq, index, deficit, tokens, inEpoch, {uint64(len(s.Carry))}, source, back, place, length} {
		data = appendColumn(data, column)
	}
	return data
}

func unpackState(data []byte, limited []bool) (plan.State, error) {
	sources := len(limited)
	r := columns{data: data}
	seq, index, deficit, tokens := r.next(sources), r.next(sources), r.next(sources), r.next(sources)
	limits := 0
	for _, l := range limited {
		if l {
			limits++
		}
	}
	inEpoch := r.next(limits)
	n := int(min(r.next(1)[0], math.MaxUint16))
	source, back, place, length := r.next(n), r.next(n), r.next(n), r.next(n)
	if r.short || len(r.data) > 0 {
		return plan.State{}, fmt.Errorf("its %d bytes of cursors are not those of %d sources", len(data), sources)
	}
	s := plan.Start(sources)
	for i := range s.Cursors {
		s.Cursors[i] = plan.Cursor{
			Seq: int64(seq[i]), Index: int32(index[i]), Deficit: protowire.DecodeZigZag(deficit[i]), Tokens: int64(tokens[i]),
		}
		if limited[i] {
			s.Cursors[i].InEpoch, inEpoch = int64(inEpoch[0]), inEpoch[1:]
		}
	}
	for k, src := range source {
		if src >= uint64(sources) {
			return plan.State{}, fmt.Errorf("it carries a sample of source %d of %d", src, sources)
		}
		s.Carry = append(s.Carry, plan.Ref{
			Source: int32(src), Seq: s.Cursors[src].Seq - int64(back[k]), Index: int32(place[k]), Length: int32(length[k]),
		})
	}
	return s, nil
}
