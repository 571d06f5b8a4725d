package tokenize

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/testdata"
)

// toyTokens are the merges of the toy encoding: what follows the 256 bytes.
var toyTokens = []string{"aa", "ab", "aab", "aaaa", "th", "he", "the", " t", " the", "in", "ing", "er", "中"[:2], "中",
	"  ", "    ", "é", "on", "tion", "io", "ti", "ba", "bab", "abab", "\n\n", "'s"}

// toySpec is an encoding small enough to write down. Its bytes have the ranks
// 255..0, so that no id equals its byte by chance, and rank 256 is special.
func toySpec(split splitter) encodingSpec {
	ranks := 256 + len(toyTokens)
	return encodingSpec{"toy", split, ranks, map[string]int32{endOfText: 256}, ranks + 1, ""}
}

// toyLines returns the rank file of the toy encoding, line by line.
func toyLines() []string {
	var lines []string
	line := func(token string, rank int) {
		lines = append(lines, fmt.Sprintf("%s %d\n", base64.StdEncoding.EncodeToString([]byte(token)), rank))
	}
	for b := range 256 {
		line(string([]byte{byte(b)}), 255-b)
	}
	for i, t := range toyTokens {
		line(t, 257+i)
	}
	return lines
}

func toy(t testing.TB, split splitter) *Encoding {
	t.Helper()
	e, err := newEncoding(toySpec(split), "toy.tiktoken", []byte(strings.Join(toyLines(), "")))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// slowMerge is the rule of byte-pair encoding, word for word.
func slowMerge(ranks map[string]int32, piece string) []int32 {
	parts := strings.Split(piece, "")
	parts = parts[:0]
	for i := range len(piece) {
		parts = append(parts, piece[i:i+1])
	}
	for {
		best, at := none, -1
		for i := range len(parts) - 1 {
			if r, ok := ranks[parts[i]+parts[i+1]]; ok && r < best {
				best, at = r, i
			}
		}
		if at < 0 {
			break
		}
		parts[at] += parts[at+1]
		parts = slices.Delete(parts, at+1, at+2)
	}
	var ids []int32
	for _, p := range parts {
		ids = append(ids, ranks[p])
	}
	return ids
}

// slowAppend is Append by slowMerge.
func slowAppend(e *Encoding, text []byte) []int32 {
	ranks := make(map[string]int32)
	for id := range int32(e.size) {
		if token := e.bytesOf(id); len(token) > 0 && e.special[id] == "" {
			ranks[string(token)] = id
		}
	}
	var ids []int32
	for _, piece := range pieces(e.split, text) {
		if id, ok := ranks[piece]; ok {
			ids = append(ids, id)
			continue
		}
		ids = append(ids, slowMerge(ranks, piece)...)
	}
	return ids
}

// toyText draws a text of the units that the toy tokens are made of.
func toyText(rng *rand.Rand, units int) []byte {
	alphabet := []string{"a", "b", "a", "t", "h", "e", "i", "o", "n", " ", " ", "\n", "中", "é", "1", ".", "'s", "the", "\xff", "A"}
	var text []byte
	stretch := alphabet
	for i := range units {
		if i%150 == 0 { // stretches of few letters give long pieces
			stretch = alphabet[:2+rng.IntN(len(alphabet)-1)]
		}
		text = append(text, stretch[rng.IntN(len(stretch))]...)
	}
	return text
}

// TestMergesByTheRule compares with the plain rule, across the switch from the
// short to the long implementation.
func TestMergesByTheRule(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, split := range []splitter{splitR50K, splitCL100K, splitO200K} {
		e := toy(t, split)
		enc := e.NewEncoder()
		longPieces := 0
		for range 300 {
			text := toyText(rng, 1+rng.IntN(600))
			for _, p := range pieces(split, text) {
				if len(p) > shortPiece {
					longPieces++
				}
			}
			if got, want := enc.Append(nil, text), slowAppend(e, text); !slices.Equal(got, want) {
				t.Fatalf("%q:\n got %v\nwant %v", text, got, want)
			}
		}
		if longPieces < 20 {
			t.Errorf("only %d long pieces", longPieces)
		}
	}
}

// TestShortAndLongAgree runs both implementations on the same pieces, one with
// text behind the piece and the other without.
func TestShortAndLongAgree(t *testing.T) {
	e := toy(t, splitCL100K)
	m := merger{v: e.vocab}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		text := toyText(rng, 2+rng.IntN(60))
		piece := slices.Clip(text[:min(2+rng.IntN(30), len(text))])
		short := m.appendShort(nil, text, len(piece))
		if long := m.long.appendLong(nil, e.vocab, piece, len(piece), nil); !slices.Equal(short, long) {
			t.Fatalf("%q: short %v, long %v", piece, short, long)
		}
	}
}

// TestKeysTellPiecesApart changes bytes of pieces whose bytes are not compared
// when they are looked up: key and tail have to decide.
func TestKeysTellPiecesApart(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	identity := func(p []byte) (key, end uint64) {
		if len(p) > 8 {
			end = tail(p)
		}
		return wordKey(p, 0, len(p)), end
	}
	for n := 1; n <= 16; n++ {
		for range 200 {
			p := make([]byte, n)
			for i := range p {
				p[i] = byte(rng.IntN(256))
			}
			key, end := identity(p)
			for bit := range 8 * n {
				q := slices.Clone(p)
				q[bit/8] ^= 1 << (bit % 8)
				q[rng.IntN(bit/8+1)] ^= byte(rng.IntN(256)) &^ (1 << (bit % 8))
				if k, e := identity(q); k == key && e == end {
					t.Fatalf("%x and %x have the same key and tail", p, q)
				}
			}
		}
	}
}

// TestCacheHolds puts pieces of all lengths and numbers of tokens that a slot holds into a set, which keeps the last ones.
func TestCacheHolds(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	c := newCache(cacheWays)
	type kept struct {
		key, tail uint64
		n         int
		ids       []int32
	}
	var all []kept
	for n := 1; n <= slotBytes; n++ {
		for count := 1; count <= slotIDs; count++ {
			k := kept{key: rng.Uint64(), tail: rng.Uint64(), n: n}
			for range count {
				k.ids = append(k.ids, rng.Int32N(none))
			}
			k.ids[rng.IntN(count)] = none - 1
			set := c.set(rng.Uint64(), n)
			set.put(k.key, k.tail, n, k.ids)
			all = append(all, k)
			for i, k := range all {
				slot := set.find(k.key, k.tail, k.n)
				if inside := len(all)-i <= cacheWays; (slot != nil) != inside {
					t.Fatalf("piece %d of %d: found %t, want %t", i, len(all), slot != nil, inside)
				}
				if slot == nil {
					continue
				}
				if got := slot.append([]int32{1, 2}); !slices.Equal(got[2:], k.ids) {
					t.Fatalf("a piece of %d bytes has %v, want %v", k.n, got[2:], k.ids)
				}
				if set.find(k.key+1, k.tail, k.n) != nil || set.find(k.key, k.tail+1, k.n) != nil || set.find(k.key, k.tail, k.n%slotBytes+1) != nil {
					t.Fatal("another piece is found in its place")
				}
			}
		}
	}
	set := c.set(0, 1)
	if set.put(1, 2, 3, make([]int32, slotIDs+1)); set.find(1, 2, 3) != nil || c.set(0, slotBytes+1) != nil || newCache(0).set(0, 1) != nil {
		t.Error("what does not fit is kept")
	}
}

// TestCacheNeverChangesTheResult encodes with caches of all sizes, the smallest
// of which evict all the time, in different states.
func TestCacheNeverChangesTheResult(t *testing.T) {
	e := toy(t, splitO200K)
	rng := rand.New(rand.NewPCG(5, 6))
	var warm []*Encoder
	for _, slots := range []int{0, 1, cacheWays, 16, cacheSlots} {
		warm = append(warm, e.newEncoder(slots))
	}
	for range 500 {
		text := toyText(rng, 1+rng.IntN(300))
		want := e.newEncoder(0).Append(nil, text)
		for _, enc := range warm {
			for range 2 { // the second time from the cache, where it holds
				if got := enc.Append(nil, text); !slices.Equal(got, want) {
					t.Fatalf("%d slots, %q:\n got %v\nwant %v", cacheWays*len(enc.cache), text, got, want)
				}
			}
		}
	}
	hits := 0
	for _, set := range warm[len(warm)-1].cache {
		for _, s := range set {
			if s.length() > 0 {
				hits++
			}
		}
	}
	if hits < 100 {
		t.Errorf("the cache holds only %d pieces: the test shows nothing", hits)
	}
}

func TestAppendKeepsWhatIsThere(t *testing.T) {
	for _, e := range []*Encoding{Bytes(), toy(t, splitCL100K)} {
		got := e.NewEncoder().Append([]int32{-7}, []byte("abc"))
		if got[0] != -7 || !slices.Equal(got[1:], e.NewEncoder().Append(nil, []byte("abc"))) {
			t.Errorf("%s: %v", e.Name(), got)
		}
	}
}

func TestEncodersShareAnEncoding(t *testing.T) {
	e := toy(t, splitCL100K)
	text := toyText(rand.New(rand.NewPCG(7, 8)), 5000)
	want := e.NewEncoder().Append(nil, text)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if got := e.NewEncoder().Append(nil, text); !slices.Equal(got, want) {
				t.Error("another goroutine gave other tokens")
			}
		})
	}
	wg.Wait()
}

func TestAppendDoesNotAllocate(t *testing.T) {
	e := toy(t, splitCL100K)
	enc := e.NewEncoder()
	text := toyText(rand.New(rand.NewPCG(9, 10)), 5000)
	dst := enc.Append(nil, text)
	if n := testing.AllocsPerRun(20, func() { dst = enc.Append(dst[:0], text) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestLongPiece would take hours by the plain rule. Its scratch memory is released.
func TestLongPiece(t *testing.T) {
	enc := toy(t, splitCL100K).NewEncoder()
	got := enc.Append(nil, bytes.Repeat([]byte("a"), 1<<20))
	if want := slices.Repeat([]int32{260}, 1<<18); !slices.Equal(got, want) {
		t.Errorf("%d tokens from %v, want %d times 260", len(got), got[:4], len(want))
	}
	if cap(enc.merger.long.links) > 0 {
		t.Error("the scratch memory of a long piece is kept")
	}
}

func TestEncodingFacts(t *testing.T) {
	for _, tt := range []struct {
		name string
		eot  int32
		size int
	}{
		{"r50k_base", 50256, 50257},
		{"p50k_base", 50256, 50281},
		{"cl100k_base", 100257, 100277},
		{"o200k_base", 199999, 200019},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := load(t, tt.name)
			if e.Name() != tt.name || e.EOT() != tt.eot || e.VocabSize() != tt.size {
				t.Errorf("got %s, %d, %d; want %v", e.Name(), e.EOT(), e.VocabSize(), tt)
			}
			if e.Digest() == [32]byte{} {
				t.Error("no digest")
			}
		})
	}
	if e := Bytes(); e.Name() != "bytes" || e.EOT() != 256 || e.VocabSize() != 257 || e.Digest() != [32]byte{} {
		t.Errorf("bytes: %s, %d, %d", e.Name(), e.EOT(), e.VocabSize())
	}
	for _, s := range encodingSpecs {
		if s.vocab > int(none) {
			t.Errorf("%s has more than %d ids", s.name, none)
		}
	}
}

func TestDecode(t *testing.T) {
	e := toy(t, splitR50K)
	got, err := e.Decode([]int32{255 - 'x', 256, 257})
	if err != nil || string(got) != "x<|endoftext|>aa" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, tt := range []struct {
		e    *Encoding
		id   int32
		want string
	}{
		{e, -1, "token 1 of 2 has id -1, which encoding toy does not use; its ids are 0..282"},
		{e, 283, "has id 283"},
		{Bytes(), 257, "its ids are 0..256"},
	} {
		_, err := tt.e.Decode([]int32{0, tt.id})
		checkUserError(t, tt.e.Name(), err, tt.want)
	}
}

func TestDecodeSpecialTokens(t *testing.T) {
	e := load(t, "cl100k_base")
	got, err := e.Decode([]int32{100260, 15339, 100257})
	if err != nil || string(got) != "<|fim_suffix|>hello<|endoftext|>" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, unused := range []int32{100256, 100261, 100277} {
		_, err := e.Decode([]int32{unused})
		checkUserError(t, "cl100k_base", err, fmt.Sprintf("has id %d", unused))
	}
}

func TestLoadErrors(t *testing.T) {
	dir := t.TempDir()
	small := filepath.Join(dir, "small.tiktoken")
	if err := os.WriteFile(small, []byte("IQ== 0\nIg== 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	huge := filepath.Join(dir, "huge.tiktoken")
	if err := os.WriteFile(huge, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, maxRankFile+1); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(dir, "missing.tiktoken")
	for _, tt := range []struct {
		name, path string
		want       []string
	}{
		{"cl100k_base", missing, []string{missing + " does not exist", "cl100k_base.tiktoken", "not shipped", "tiktoken distribution"}},
		{"r50k_base", "", []string{"r50k_base.tiktoken, and none is given"}},
		{"cl100k", "", []string{`unknown encoding "cl100k"; did you mean cl100k_base?`, "bytes, r50k_base, p50k_base, cl100k_base, o200k_base"}},
		{"o200_base", "", []string{"did you mean o200k_base?"}},
		{"Bytes", "", []string{"did you mean bytes?"}},
		{"wordpiece", "", []string{`unknown encoding "wordpiece"; valid are`}},
		{"", "", []string{`unknown encoding ""; valid are`}},
		{"bytes", small, []string{"bytes takes no rank file", "remove ranks"}},
		{"r50k_base", small, []string{small + " has 2 ranks, but r50k_base has 50256"}},
		{"r50k_base", huge, []string{"larger than 32 MiB"}},
		{"r50k_base", dir, []string{"reading the rank file of encoding r50k_base"}},
	} {
		_, err := Load(tt.name, tt.path, "")
		checkUserError(t, tt.name+" "+tt.path, err, tt.want...)
	}
}

// TestRankFileDigest loads rank files that are readable but not the published ones.
func TestRankFileDigest(t *testing.T) {
	published, err := os.ReadFile(filepath.Join(testdata.Dir(t), "tokenizers", "tiktoken", "r50k_base.tiktoken"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(published), "\n")
	swapped := slices.Clone(lines)
	a, b := strings.Fields(lines[1000]), strings.Fields(lines[2000])
	swapped[1000], swapped[2000] = a[0]+" "+b[1]+"\n", b[0]+" "+a[1]+"\n"
	flipped := slices.Clone(lines)
	c := strings.Fields(lines[50_000])
	token, err := base64.StdEncoding.DecodeString(c[0])
	if err != nil {
		t.Fatal(err)
	}
	token[len(token)-1] ^= 1
	flipped[50_000] = base64.StdEncoding.EncodeToString(token) + " " + c[1] + "\n"
	for what, text := range map[string]string{
		"swapped ranks":      strings.Join(swapped, ""),
		"another order":      strings.Join(slices.Concat(lines[1:], lines[:1]), ""),
		"a bit":              strings.Join(flipped, ""),
		"line ends":          strings.ReplaceAll(string(published), "\n", "\r\n"),
		"an empty last line": string(published) + "\n",
	} {
		path := filepath.Join(t.TempDir(), "r50k_base.tiktoken")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		digest := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
		_, err := Load("r50k_base", path, "")
		checkUserError(t, what, err, path, digest, "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930", "get r50k_base.tiktoken again", "sha256: "+digest)
		other := strings.Repeat("0", 64)
		_, err = Load("r50k_base", path, other)
		checkUserError(t, what, err, path, digest, "declared is sha256: "+other)
		if e, err := Load("r50k_base", path, digest); err != nil || fmt.Sprintf("%x", e.Digest()) != digest {
			t.Errorf("%s, declared: %v", what, err)
		}
	}
}

func checkUserError(t *testing.T, what string, err error, want ...string) {
	t.Helper()
	if err == nil || fault.ClassOf(err) != fault.User {
		t.Errorf("%s: got %v of class %v, want a user error", what, err, fault.ClassOf(err))
		return
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: got %q, want it to say %q", what, err, w)
		}
	}
}

func TestRankFileErrors(t *testing.T) {
	edit := func(at int, line string) string {
		lines := toyLines()
		lines[at] = line
		return strings.Join(lines, "")
	}
	all := strings.Join(toyLines(), "")
	for _, tt := range []struct{ what, data, want string }{
		{"no rank", edit(4, "IQ==\n"), `toy.tiktoken:5: want a token in base64, one space and its rank, such as "IQ== 0", not "IQ=="`},
		{"not base64", edit(4, "I*== 4\n"), `toy.tiktoken:5: "I*==" is not a token in base64`},
		{"empty token", edit(4, " 4\n"), `toy.tiktoken:5: "" is not a token in base64`},
		{"word for a rank", edit(4, "IQ== four\n"), `toy.tiktoken:5: "four" is not a rank`},
		{"negative rank", edit(4, "IQ== -4\n"), `toy.tiktoken:5: "-4" is not a rank`},
		{"two spaces", edit(4, "IQ==  4\n"), `toy.tiktoken:5: " 4" is not a rank`},
		{"rank too large", edit(4, "IQ== 283\n"), `toy.tiktoken:5: rank 283 is not a token of toy, which has 282 ranks`},
		{"special rank", edit(4, "IQ== 256\n"), `toy.tiktoken:5: rank 256 is not a token of toy`},
		{"rank twice", all + "eHl6 257\n", `toy.tiktoken:283: rank 257 is given twice, first in line 257`},
		{"token twice", edit(260, "AA== 261\n"), `toy.tiktoken:261: token "\x00" is given twice, first in line 1 with rank 255`},
		{"line missing", edit(281, ""), "toy.tiktoken has 281 ranks, but toy has 282"},
		{"byte missing", edit(0, "eHl6 255\n"), "toy.tiktoken has no rank for the single byte 0x00"},
		{"empty", "", "toy.tiktoken has 0 ranks"},
	} {
		_, err := newEncoding(toySpec(splitR50K), "toy.tiktoken", []byte(tt.data))
		checkUserError(t, tt.what, err, tt.want)
	}
	// Line ends of Windows, empty lines and any order are fine.
	lines := toyLines()
	slices.Reverse(lines)
	if _, err := newEncoding(toySpec(splitR50K), "", []byte(strings.ReplaceAll(strings.Join(lines, "\n"), "\n", "\r\n"))); err != nil {
		t.Error(err)
	}
}
