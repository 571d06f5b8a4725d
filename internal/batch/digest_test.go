package batch

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"testing"
)

// The constants below were computed apart from this package, in Python:
//
//	from hashlib import blake2b; from struct import pack
//	def h(b): return blake2b(b, digest_size=32)
//	def row(segs):
//	    head = pack('<I', len(segs)) + b''.join(pack('<I', len(s)) for s in segs)
//	    return h(head + b''.join(pack('<%di' % len(s), *s) for s in segs)).digest()
//	def step(k, rows):
//	    return h(b'millrace step' + pack('<QQ', k, len(rows)) + b''.join(rows)).digest()
//	root = h(b'millrace root' + bytes(range(32)) + bytes(range(32, 64))).digest()
//	chain = h(root + step(3, [row([[1, 2, 3], [4, 5]]), row([[7]])])).digest()

func count(n int, f func(i int32) int32) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = f(int32(i))
	}
	return tokens
}

func singles(n int) [][]int32 {
	segments := make([][]int32, n)
	for i := range segments {
		segments[i] = []int32{int32(i)}
	}
	return segments
}

func TestRowDigestGolden(t *testing.T) {
	identity := func(i int32) int32 { return i }
	for _, test := range []struct {
		name     string
		segments [][]int32
		want     string
	}{
		{"empty", nil, "11da6d1f761ddf9bdb4c9d6e5303ebd41f61858d0a5647a1a7bfe089bf921be9"},
		{"one token", [][]int32{{7}}, "79851cb6c2fc569d1ddc140f1089ac562900895d022d38d4a2f193436ade9800"},
		{"3 and 2", [][]int32{{1, 2, 3}, {4, 5}}, "3f637cdf02da0230324f5ee3ad9172b6b28bb36d8d07ed741718951567fef0b2"},
		{"2 and 3", [][]int32{{1, 2}, {3, 4, 5}}, "76fa82496ed5de64ee23e3ac0ee5e8191a931a2a4ebb603deaf4fa55f4272110"},
		{"extremes", [][]int32{{-1, -1 << 31, 1<<31 - 1, 50256}}, "5cd82b829e5b701c40f3cde665cca548b4ebccbe55ff2775c90e4334502346ce"},
		{"long", [][]int32{count(10000, identity), count(777, func(i int32) int32 { return i * i })},
			"c3100ee8d874f78b4717a3454ff226a5353174e6d7edc0a392b1bfdc4abf8ec3"},
		{"1000 segments", singles(1000), "20316e4ce8ae5244f1d1fb50bbdef0a6ce02423219dd282ab155955b519894ca"},
	} {
		row := Row{Segments: test.segments}
		if got := RowDigest(row); hex.EncodeToString(got[:]) != test.want {
			t.Errorf("%s: got %x, want %s", test.name, got, test.want)
		}
		if got := rowDigest(row, false); hex.EncodeToString(got[:]) != test.want {
			t.Errorf("%s: portable path: got %x, want %s", test.name, got, test.want)
		}
	}
}

func TestPathsAgree(t *testing.T) {
	if !littleEndian {
		t.Skip("only a little-endian machine has two paths")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var row Row
		for range rng.IntN(600) {
			row.Segments = append(row.Segments, count(rng.IntN(50), func(int32) int32 { return int32(rng.Uint32()) }))
		}
		if native, portable := rowDigest(row, true), rowDigest(row, false); native != portable {
			t.Fatalf("%d segments, %d tokens: native %x, portable %x", len(row.Segments), row.Tokens(), native, portable)
		}
	}
}

func TestRunDigestsGolden(t *testing.T) {
	row0 := RowDigest(Row{Segments: [][]int32{{1, 2, 3}, {4, 5}}})
	row1 := RowDigest(Row{Segments: [][]int32{{7}}})
	var identity, manifest [32]byte
	for i := range identity {
		identity[i], manifest[i] = byte(i), byte(32+i)
	}
	root := Root(identity, manifest)
	step := StepDigest(3, [][32]byte{row0, row1})
	for _, test := range []struct {
		name string
		got  [32]byte
		want string
	}{
		{"step without rows", StepDigest(0, nil), "02097c25d9216ba7718b0d9ff9215835ca9881e352a3461d2e32ec42ae386802"},
		{"step", step, "8b17c11d1fbfe3517623ec9860bef8ec11461c8a23b5566f7a3145689b0e9bc4"},
		{"rows in another order", StepDigest(1<<40+1, [][32]byte{row1, row0}), "334e7deaabd3e6a028b8b0cd5c3b79206da1ba1ab847553ed10fe87a0cf24c86"},
		{"root", root, "00ef88966b80fa3933f0e7e636419a582eef7a4aa8b2794e0c8e4a45c02861f0"},
		{"chain", Chain(root, step), "a08490dbe5a7cf6729e1020973e708b70688da650ca74796b014faa6ef3f51f4"},
	} {
		if got := hex.EncodeToString(test.got[:]); got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
}

// A digest must tell apart rows that differ in one token or one boundary only.
func TestRowDigestSeesEveryToken(t *testing.T) {
	base := Row{Segments: [][]int32{count(40, func(i int32) int32 { return i }), count(30, func(i int32) int32 { return -i })}}
	seen := map[[32]byte]string{RowDigest(base): "base"}
	for s, segment := range base.Segments {
		for i := range segment {
			segment[i] ^= 1 << (i % 32)
			name := fmt.Sprintf("segment %d token %d", s, i)
			if other, ok := seen[RowDigest(base)]; ok {
				t.Errorf("%s changed, but the digest is that of %s", name, other)
			}
			seen[RowDigest(base)] = name
			segment[i] ^= 1 << (i % 32)
		}
	}
	all := append(append([]int32{}, base.Segments[0]...), base.Segments[1]...)
	for cut := 1; cut < len(all); cut++ {
		if cut == len(base.Segments[0]) {
			continue
		}
		if other, ok := seen[RowDigest(Row{Segments: [][]int32{all[:cut], all[cut:]}})]; ok {
			t.Errorf("cut at %d has the digest of %s", cut, other)
		}
	}
}

func BenchmarkRowDigest(b *testing.B) {
	for _, size := range []int{100, 4096} {
		b.Run(fmt.Sprintf("row=8192/segment=%d", size), func(b *testing.B) {
			var row Row
			for left := 8192; left > 0; left -= size {
				row.Segments = append(row.Segments, count(min(size, left), func(i int32) int32 { return i }))
			}
			b.SetBytes(4 * 8192)
			b.ReportAllocs()
			for b.Loop() {
				RowDigest(row)
			}
		})
	}
}

func ExampleChain() {
	rows := [][32]byte{
		RowDigest(Row{Segments: [][]int32{{1, 2, 3}, {4, 5}}}),
		RowDigest(Row{Segments: [][]int32{{7}}}),
	}
	run := Root([32]byte{}, [32]byte{}) // digests of the job spec and the manifest
	for step := range int64(2) {
		run = Chain(run, StepDigest(step, rows))
	}
	fmt.Printf("%x…\n", run[:8])
	// Output: 841d9f7ee16b80e9…
}
