package batch

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"testing"
)

// The constants below were computed independently, in Python:
//
//	from hashlib import sha256 as h; from struct import pack
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
		{"empty", nil, "df3f619804a92fdb4057192dc43dd748ea778adc52bc498ce80524c014b81119"},
		{"one token", [][]int32{{7}}, "973d58417a187a2dd2af17179ced3e510cdab5798c6fb2dba4784b5dfa336d81"},
		{"3 and 2", [][]int32{{1, 2, 3}, {4, 5}}, "707e91cced0917b144cb418c4cadb8ad6c537743ce67f2b44d45314393a8eea8"},
		{"2 and 3", [][]int32{{1, 2}, {3, 4, 5}}, "79f4a117b5349e0f6f9455b2a3f947a2f8d9b2f89b858b9cbd11e4fcabfac102"},
		{"extremes", [][]int32{{-1, -1 << 31, 1<<31 - 1, 50256}}, "f2417933cb3a254982b9b17613a826849aeb3a55e9dd7e677dfb7346375e2e68"},
		{"long", [][]int32{count(10000, identity), count(777, func(i int32) int32 { return i * i })},
			"91c227fc5d10723b1e649152518f97437bd31232cd24eafbc40290d9e777490d"},
		{"1000 segments", singles(1000), "8b7acc4b5d908535e5cb4701ed98369499deb67c1494f50e8b6835363d291653"},
	} {
		row := Row{Segments: test.segments}
		if got := RowDigest(row); hex.EncodeToString(got[:]) != test.want {
			t.Errorf("%s: got %x, want %s", test.name, got, test.want)
		}
		if got := sumOf(rowMessage(row, false)); hex.EncodeToString(got[:]) != test.want {
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
		if native, portable := sumOf(rowMessage(row, true)), sumOf(rowMessage(row, false)); native != portable {
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
		{"step without rows", StepDigest(0, nil), "c54c713c306bd1514bbba51636399fb7ed498376bf4f0d109039cc1c50939571"},
		{"step", step, "7f253ebdc6f6e5d3fffb91a6ba9984dde9a20c858a1e95d97141e8e6b5c6b483"},
		{"rows in another order", StepDigest(1<<40+1, [][32]byte{row1, row0}), "4669660e8de139f64bcb417ebc8109308d1202c71246eafb1cce6c8749ae04d7"},
		{"root", root, "12392a5320d2af6ce8a8677afd132e7b00d8418bc1cd1b34486d7f66fc0e3662"},
		{"chain", Chain(root, step), "6e9a0fb9d2bd4a6d57a8abede640d90f1e192da36f8439bb77101b5577517769"},
	} {
		if got := hex.EncodeToString(test.got[:]); got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
}

// Rows that differ in one token or one boundary have different digests.
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
	// Output: a3b81073cf916036…
}
