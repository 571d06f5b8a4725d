package checkpoint

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
)

// formatVersion is the version of the keys and values below, and of what the planner
// puts into them. It rises when a reader of the version before would misread them. A log
// of version 4, which has neither epochs nor generations, branches nor sums of steps, is read
// as it is and becomes one of this version with the first write. Records of version 3 leave a planner that goes on
// from them with other deficits.
const (
	formatVersion uint32 = 5
	oldestVersion uint32 = 4
)

// The keys. They are documented in docs/bytes.md.
var (
	formatKey   = []byte("mformat")   // uint32, big-endian
	identityKey = []byte("midentity") // 32 bytes
	markKey     = []byte("mmark")     // the mark of the last write
	trimmedKey  = []byte("mtrimmed")  // the step before which steps were let go of, uint64, big-endian
	placeKey    = []byte("mplace")    // place in the mirror: its chain, then the slot, uint64, big-endian
)

// kind is the first byte of the keys that have a step, an epoch, or the number of a branch,
// change or generation.
type kind byte

const (
	branchKind     kind = 'b'
	changeKind     kind = 'c'
	digestKind     kind = 'd'
	epochKind      kind = 'e'
	frameKind      kind = 'f'
	generationKind kind = 'g'
	recordKind     kind = 'r'
	sumKind        kind = 's'
)

// stepKinds are those of what belongs to a step.
var stepKinds = []kind{digestKind, frameKind, recordKind}

// key returns the key of a step, which is not negative: the order of keys is
// the order of steps.
func (k kind) key(step int64) []byte {
	return binary.BigEndian.AppendUint64([]byte{byte(k)}, uint64(step))
}

// of returns the key of a step that is a branch's own. Those of branch 0 have the keys of
// version 4.
func (k kind) of(branch uint64, step int64) []byte {
	if branch == 0 {
		return k.key(step)
	}
	b := binary.BigEndian.AppendUint64([]byte{byte(k) - 'a' + 'A'}, branch)
	return binary.BigEndian.AppendUint64(b, uint64(step))
}

// within bounds an iterator to the steps from <= step < to of a branch.
func (k kind) within(branch uint64, from, to int64) *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: k.of(branch, from), UpperBound: k.of(branch, to)}
}

// ofBranches bounds an iterator to every step of every branch but the first.
func (k kind) ofBranches() *pebble.IterOptions {
	upper := byte(k) - 'a' + 'A'
	return &pebble.IterOptions{LowerBound: []byte{upper}, UpperBound: []byte{upper + 1}}
}

// end returns the key after every step's key.
func (k kind) end() []byte { return []byte{byte(k) + 1} }

// all bounds an iterator to every step.
func (k kind) all() *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: k.key(0), UpperBound: k.end()}
}

// stepOf is the step of a key.
func stepOf(key []byte) int64 { return int64(binary.BigEndian.Uint64(key[len(key)-8:])) }

func encodeFormat(version uint32) []byte { return binary.BigEndian.AppendUint32(nil, version) }
