package token

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/plan"
	statepb "github.com/millrace-data/millrace/internal/proto/state"
	"github.com/millrace-data/millrace/planner/mesh"
)

// Version is the version of resume tokens written and read here.
const Version = 3

// A token goes into every checkpoint, so that it should be small. One that would
// have more than roomyToken bytes says how many tokens were drawn of each source
// in fewer bits, for no plan depends on it. More than mostToken bytes are not read.
const (
	roomyToken = 4096
	mostToken  = 16 << 20
)

// mostCount is what a number of steps or blocks can be: more than any job comes to, and what is added to it fits.
const mostCount = 1 << 60

// exact keeps all bits of a counter.
const exact = 64

// countBits are the bits of a counter that a token keeps, as many as it has room for.
var countBits = [...]int{exact, 24, 20, 16, 14, 12, 11, 10, 9, 8, 7}

// Job is what positions and a job must agree on: the part of the spec that decides
// the bytes, and the data.
type Job struct {
	Name     string   // for messages only
	Identity [32]byte // digest of that part of the spec
	Manifest [32]byte // digest of the data
	Sources  []Source // of the spec
}

// Source is what the codec knows of a source.
type Source struct {
	Name    string
	Limited bool // an epoch of it has a limit, so that its cursor has a place in the epoch
}

// limited says which of the job's sources, then of those that joined, have a limit.
func (j Job) limited(added []plan.Added) (limited []bool) {
	for _, s := range j.Sources {
		limited = append(limited, s.Limited)
	}
	for _, a := range added {
		limited = append(limited, a.Limit > 0)
	}
	return limited
}

// names are those of the job's sources, then of those that joined.
func (j Job) names(added []plan.Added) (names []string) {
	for _, s := range j.Sources {
		names = append(names, s.Name)
	}
	for _, a := range added {
		names = append(names, nameOf(a.Spec))
	}
	return names
}

// Position is what a token or a key frame says.
type Position struct {
	// State is the position without pending changes. Bans in its settings have no
	// number yet; of a source that joined it has the name, whether there is a limit
	// (1), the share, the entry and the manifest. Resolve completes it.
	State   plan.State
	Digest  [32]byte        // the chain value there; in a key frame zeros, but for the first of a log
	Pending []change.Change // made, but for steps to come
}

// Entries are the sources that joined before the position or will after it, as in
// the job spec.
func (p *Position) Entries() (entries [][]byte) {
	for _, a := range p.State.Settings.Added {
		entries = append(entries, a.Spec)
	}
	for _, c := range p.Pending {
		if c.Add != nil {
			entries = append(entries, c.Add.Source)
		}
	}
	return entries
}

// Resolve returns the state with what only a running service knows. ban numbers a
// banned record; joined looks up the n-th source that joined, and is an error if its
// data is not what it was. The position stays as it is. Errors are joined's.
func (p *Position) Resolve(ban func(plan.Ban) plan.Ban, joined func(n int, a plan.Added) (plan.Source, error)) (plan.State, error) {
	state := p.State.Clone()
	s := &state.Settings
	s.Bans, s.Added = slices.Clone(s.Bans), slices.Clone(s.Added)
	for i, b := range s.Bans {
		s.Bans[i] = ban(b)
	}
	for n, a := range s.Added {
		source, err := joined(n, a)
		if err != nil {
			return state, err
		}
		s.Added[n].Source = source
	}
	return state, nil
}

// Encode writes a position as a resume token, with the mesh of the step after it. Equal
// positions give equal tokens.
func Encode(job Job, tree *mesh.Tree, s plan.State, digest [32]byte) []byte {
	return encode(job, tree, s, digest, countBits[:])
}

// EncodeFrame writes a position as a key frame of the log: a token without job name
// and mesh, since a log may go on under another name, without pending changes, which the
// log has apart, and with all bits of counters. The chain value is that of the position if
// nothing else in the log has it, which is so for the first step of one, and zeros else.
func EncodeFrame(job Job, s plan.State, digest [32]byte) []byte {
	job.Name, s.Pending = "", nil
	return encode(job, nil, s, digest, countBits[:1])
}

// encode keeps the first of these numbers of bits of counters that the token has room for,
// or the last.
func encode(job Job, tree *mesh.Tree, s plan.State, digest [32]byte, keep []int) []byte {
	t := &statepb.ResumeToken{
		Version:  Version,
		Job:      job.Name,
		Identity: job.Identity[:],
		Manifest: job.Manifest[:],
		Step:     uint64(s.Step),
		Digest:   digest[:],
		Mesh:     packMesh(tree),
		Settings: packSettings(s.Settings),
		Pending:  packPending(s.Pending, job.names(s.Settings.Added)),
	}
	limited := job.limited(s.Settings.Added)
	for _, bits := range keep {
		t.Cursors = packState(s, limited, bits)
		if proto.Size(t)+sealBytes <= roomyToken {
			break
		}
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("token: a resume token does not encode: %v", err)) // only invalid UTF-8 in the name could, and lint refuses that
	}
	return seal(data)
}

func packMesh(tree *mesh.Tree) *statepb.Mesh {
	if tree == nil {
		return nil
	}
	m := tree.Sizes()
	return &statepb.Mesh{Dp: uint32(m.DP), Cp: uint32(m.CP), Pp: uint32(m.PP), Tp: uint32(m.TP), Vpp: uint32(m.VPP)}
}

// Decode reads a resume token or a key frame, and checks that it is whole and of this
// job. Errors of class fault.User say what to do.
func Decode(job Job, data []byte) (*Position, error) {
	if len(data) > mostToken {
		return nil, fault.Userf("the resume token has %d bytes, %d are the most: pass what state_dict() or --save-token gave", len(data), mostToken)
	}
	t := &statepb.ResumeToken{}
	body, whole := unseal(data)
	if !whole || proto.Unmarshal(body, t) != nil || t.Version == 0 {
		return nil, fault.Userf("the resume token (%d bytes) is damaged or is not one; pass what state_dict() or --save-token gave", len(data))
	}
	if err := job.check(t); err != nil {
		return nil, err
	}
	p, err := job.unpack(t)
	if err != nil {
		return nil, fault.As(fault.ClassOf(err), fmt.Errorf("the resume token of step %d is whole, but cannot be read: %w", t.Step, err))
	}
	return p, nil
}

// unpack reads what a token of this job says.
func (j Job) unpack(t *statepb.ResumeToken) (*Position, error) {
	if len(t.Digest) != 32 || t.Step > mostCount {
		return nil, fmt.Errorf("it has a digest of %d bytes at step %d, which cannot be", len(t.Digest), t.Step)
	}
	added, err := unpackAdded(t.Settings)
	if err != nil {
		return nil, err
	}
	p := &Position{Digest: [32]byte(t.Digest)}
	limited := j.limited(added)
	if p.Pending, err = unpackPending(t.Pending, int64(t.Step), j.names(added)); err != nil {
		return nil, err
	}
	if p.State, err = unpackState(t.Cursors, int64(t.Step), limited); err != nil {
		return nil, err
	}
	p.State.Settings, err = unpackSettings(t.Settings, added, len(limited))
	return p, err
}

// check refuses what is not of this version, job or data.
func (j Job) check(t *statepb.ResumeToken) error {
	switch {
	case t.Version != Version:
		return fault.Userf("the resume token is of version %d, this Millrace reads version %d: continue with the Millrace that made it, or start the job from its first step", t.Version, Version)
	case !bytes.Equal(t.Identity, j.Identity[:]):
		return fault.Userf("the resume token is of job %q with spec %x, this is job %q with spec %x: "+
			"sources, mix, batch and seed must be the same; start the service with the spec the token was made with", t.Job, head(t.Identity), j.Name, j.Identity[:6])
	case !bytes.Equal(t.Manifest, j.Manifest[:]):
		return fault.Userf("the data of job %q changed since the resume token was made (manifest %x then, %x now): "+
			"put the files back as they were, or start again without a token", t.Job, head(t.Manifest), j.Manifest[:6])
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

// Whole says whether data is a whole resume token, of any job and version.
func Whole(data []byte) bool {
	_, whole := unseal(data)
	return whole && len(data) > sealBytes
}

// Spec is the identity of the job spec that a whole resume token or key frame belongs to, of any job and version; ok is false
// for what is neither.
func Spec(data []byte) (identity [32]byte, ok bool) {
	t := &statepb.ResumeToken{}
	body, whole := unseal(data)
	if !whole || proto.Unmarshal(body, t) != nil || len(t.Identity) != len(identity) {
		return identity, false
	}
	return [32]byte(t.Identity), true
}

// unseal takes it off again and reports whether it holds.
func unseal(data []byte) (body []byte, whole bool) {
	n := len(data) - sealBytes
	if n < 0 || !bytes.Equal(data[n:n+len(checkTag)], checkTag) {
		return nil, false
	}
	return data[:n], binary.LittleEndian.Uint32(data[n+len(checkTag):]) == crc32.Checksum(data[:n], castagnoli)
}
