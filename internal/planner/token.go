package planner

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// tokenVersion is the version of resume tokens written and read here.
const tokenVersion = 3

// A token goes into every checkpoint, so that it should be small. One that would
// have more than roomyToken bytes says how many tokens were drawn of each source
// in fewer bits, for no plan depends on it. More than mostToken bytes are not read.
const (
	roomyToken = 4096
	mostToken  = 16 << 20
)

// exact keeps all bits of a counter.
const exact = 64

// countBits are the bits of a counter that a token keeps, as many as it has room for.
var countBits = [...]int{exact, 24, 20, 16, 14, 12, 11, 10, 9, 8, 7}

// identity is what tokens and logs must agree on with the job: the part of the
// spec that decides the bytes, and the data.
type identity struct {
	name     string
	spec     [32]byte
	manifest [32]byte
	sources  []string // the names of the spec's
}

// names are those of the spec's sources and of those that joined.
func (id identity) names(added []plan.Added) []string {
	names := slices.Clip(id.sources)
	for _, a := range added {
		names = append(names, nameOf(a.Spec))
	}
	return names
}

// encodeToken writes a position as a resume token. limited says which sources
// have a limit.
func encodeToken(id identity, mesh *pb.Mesh, s plan.State, digest [32]byte, limited []bool) []byte {
	t := &pb.ResumeToken{
		Version:  tokenVersion,
		Job:      id.name,
		Identity: id.spec[:],
		Manifest: id.manifest[:],
		Step:     uint64(s.Step),
		Digest:   digest[:],
		Mesh:     mesh,
		Settings: packSettings(s.Settings),
		Pending:  packPending(s.Pending, id.names(s.Settings.Added)),
	}
	for _, bits := range countBits {
		t.Cursors = packState(s, limited, bits)
		if proto.Size(t)+sealBytes <= roomyToken {
			break
		}
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(t)
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
		m := p.tree.Sizes()
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
	if len(data) > mostToken {
		return nil, fault.Userf("the resume token has %d bytes, %d are the most: pass what state_dict() or --save-token gave", len(data), mostToken)
	}
	t := &pb.ResumeToken{}
	body, whole := unseal(data)
	if !whole || proto.Unmarshal(body, t) != nil || t.Version == 0 {
		return nil, fault.Userf("the resume token (%d bytes) is damaged or is not one; pass what state_dict() or --save-token gave", len(data))
	}
	if err := checkToken(id, t); err != nil {
		return nil, err
	}
	p := &position{settings: t.Settings, digest: [32]byte{}}
	names, limited := slices.Clip(id.sources), slices.Clip(limited)
	for _, a := range t.Settings.GetAdded() {
		names, limited = append(names, nameOf(a.Yaml)), append(limited, a.Limited)
	}
	pending, err := unpackPending(t.Pending, names)
	if p.pending = pending; err == nil {
		p.state, err = unpackState(t.Cursors, int64(min(t.Step, math.MaxInt64)), limited)
	}
	if err != nil || len(t.Digest) != 32 || t.Step > math.MaxInt64 {
		return nil, fmt.Errorf("the resume token of step %d is whole, but cannot be read: %w", t.Step, err)
	}
	p.digest = [32]byte(t.Digest)
	return p, nil
}

// checkToken refuses what is not of this version, job or data.
func checkToken(id identity, t *pb.ResumeToken) error {
	switch {
	case t.Version != tokenVersion:
		return fault.Userf("the resume token is of version %d, this Millrace reads version %d: continue with the Millrace that made it, or start the job anew", t.Version, tokenVersion)
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

// sealBytes is the size of that field.
const sealBytes = 5

// seal appends the field `check`: a flipped bit in a cursor would give other
// data than was saved, without a word.
func seal(data []byte) []byte {
	sum := crc32.Checksum(data, castagnoli)
	return binary.LittleEndian.AppendUint32(append(data, checkTag...), sum)
}

// unseal takes it off again and reports whether it holds.
func unseal(data []byte) (body []byte, whole bool) {
	n := len(data) - sealBytes
	if n < 0 || !bytes.Equal(data[n:n+len(checkTag)], checkTag) {
		return nil, false
	}
	return data[:n], binary.LittleEndian.Uint32(data[n+len(checkTag):]) == crc32.Checksum(data[:n], castagnoli)
}
