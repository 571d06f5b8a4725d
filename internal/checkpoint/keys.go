package checkpoint

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
)

// formatVersion is the version of the keys and values below, and of what the planner
// puts into them. It rises when a reader of the version before would misread them. A log
// of version 4, which has neither epochs nor generations, is read as it is and becomes one
// of this version with the first write. Records of version 3 leave a planner that goes on
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
	placeKey    = []byte("mplace")    // place in the mirror: its chain, then the slot, uint64, big-endian
)

// kind is the first byte of the keys that have a step, an epoch, or the number of a change
// or generation.
type kind byte

const (
	changeKind     kind = 'c'
	digestKind     kind = 'd'
	epochKind      kind = 'e'
	frameKind      kind = 'f'
	generationKind kind = 'g'
	recordKind     kind = 'r'
)

// key returns the key of a step, which is not negative: the order of keys is
// the order of steps.
func (k kind) key(step int64) []byte {
	return binary.BigEndian.AppendUint64([]byte{byte(k)}, uint64(step))
}

// end returns the key after every step's key.
func (k kind) end() []byte { return []byte{byte(k) + 1} }

// between bounds an iterator to the steps from <= step < to.
func (k kind) between(from, to int64) *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: k.key(from), UpperBound: k.key(to)}
}

// all bounds an iterator to every step.
func (k kind) all() *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: k.key(0), UpperBound: k.end()}
}

// stepOf is the inverse of key.
func stepOf(key []byte) int64 { return int64(binary.BigEndian.Uint64(key[1:])) }

func encodeFormat(version uint32) []byte { return binary.BigEndian.AppendUint32(nil, version) }
