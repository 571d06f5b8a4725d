package decoders_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/formattest"
	"github.com/millrace-data/millrace/internal/sourceloader/format/megatron"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

func TestMegatronNames(t *testing.T) {
	idx, bin := pair([][][]int32{{{1, 2}}, {{3}}})
	files := map[string][]byte{"/d/a.idx": idx, "/d/a.bin": bin}
	for _, name := range []string{"/d/a.idx", "/d/a.bin", "/d/a"} {
		if got := printAll(t, megatron.Format{}, files, name, "tokens"); got != "0: tokens [1 2]\n1: tokens [3]" {
			t.Errorf("%s: %s", name, got)
		}
	}
	delete(files, "/d/a.bin")
	if got := printAll(t, megatron.Format{}, files, "/d/a.idx", "tokens"); !strings.Contains(got, "user") || !strings.Contains(got, "pair of .idx and .bin") {
		t.Errorf("without a .bin: %s", got)
	}
}

func TestMegatronTypes(t *testing.T) {
	for code, c := range map[byte]struct {
		size int
		put  uint64
		want string
	}{
		1: {1, 200, "200"}, 2: {1, 200, "-56"}, 3: {2, 65535, "-1"}, 4: {4, 1<<31 + 5, "-2147483643"}, 5: {8, 70000, "70000"}, 8: {2, 65535, "65535"},
	} {
		idx, _ := pair([][][]int32{{{0}}})
		idx[17] = code
		bin := binary.LittleEndian.AppendUint64(nil, c.put)[:c.size]
		got := printAll(t, megatron.Format{}, map[string][]byte{"/a.idx": idx, "/a.bin": bin}, "/a.idx", "tokens")
		if got != "0: tokens ["+c.want+"]" {
			t.Errorf("dtype %d: %s, want %s", code, got, c.want)
		}
	}
	idx, _ := pair([][][]int32{{{0}}, {{0}}})
	idx[17] = 5
	binary.LittleEndian.PutUint64(idx[34+4*2+8:], 8) // the second pointer
	bin := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 1<<31), 7)
	got := printAll(t, megatron.Format{}, map[string][]byte{"/a.idx": idx, "/a.bin": bin}, "/a.idx", "tokens")
	if got != "0: error: /a.idx: document 0: a token at byte 0 of /a.bin is beyond 32 bits\n1: tokens [7]" {
		t.Errorf("wide tokens: %s", got)
	}
}

// TestMegatronLimit: a document's limit counts its bytes in the .bin, however it is cut into sequences.
func TestMegatronLimit(t *testing.T) {
	for code, size := range map[byte]int64{8: 2, 4: 4} {
		idx, bin := pair([][][]int32{{make([]int32, 10), make([]int32, 10), make([]int32, 10)}})
		idx[17], bin = code, append(bin, make([]byte, 60)...)
		st, obj := stored(t, map[string][]byte{"/a.idx": idx, "/a.bin": bin}, "/a.idx")
		for limit, good := range map[int64]bool{30 * size: true, 30*size - 1: false} {
			got, err := formattest.ReadAll(t.Context(), megatron.Format{}, st, obj, format.Options{Columns: []string{"tokens"}, MaxRecord: limit})
			if err != nil || len(got) != 1 || (got[0].Err == nil) != good {
				t.Errorf("dtype %d, at most %d bytes: %v, %v", code, limit, got, err)
			}
		}
	}
}

func TestMegatronDamage(t *testing.T) {
	sound, bin := pair([][][]int32{{{1, 2}}, {{3}, {4}}, {{5}}})
	const sizes, pointers, indices = 34, 34 + 4*4, 34 + 4*4 + 8*4
	put := func(at int, bytes ...byte) []byte {
		idx := slices.Clone(sound)
		copy(idx[at:], bytes)
		return idx
	}
	for _, c := range []struct {
		name string
		idx  []byte
		bin  []byte
		want string
	}{
		{"magic", put(0, []byte("TNTIDX")...), bin, "magic at byte 0"},
		{"version", put(9, 2), bin, "version at byte 9: 2"},
		{"dtype", put(17, 9), bin, "dtype at byte 17: code 9"},
		{"float", put(17, 7), bin, "dtype at byte 17: float32"},
		{"sequence count", put(25, 0x7f), bin, "sequence count at byte 18"},
		{"document count", put(33, 0xff), bin, "document count at byte 26"},
		{"no document index", put(26, 0), bin, "document count at byte 26"},
		{"too few", put(18, 3), bin, "take"},
		{"negative size", put(sizes+4+3, 0xff), bin, "sizes at byte 38: sequence 1 has -"},
		{"negative pointer", put(pointers+8+7, 0xff), bin, "pointers at byte 58: sequence 1 takes"},
		{"pointer beyond", put(pointers+8+2, 1), bin, "pointers at byte 58: sequence 1 takes 2 bytes from 65540"},
		{"pointers fall", put(pointers+16, 0), bin, "pointers at byte 66: sequence 2 begins at 0"},
		{"index falls", put(indices+8, 4), bin, "document_indices at byte 98: document 1 ends at sequence 3 but begins at 4"},
		{"index beyond", put(indices+8, 9), bin, "document_indices at byte 90: document 1 begins at sequence 9 of 4"},
		{"first index", put(indices, 1), bin, "the first document begins at sequence 1"},
		{"last index", put(indices+24, 3), bin, "the last document ends at sequence 3"},
		{"short bin", sound, bin[:len(bin)-1], "pointers at byte 74: sequence 3 takes 2 bytes from 8 on, but /a.bin has 9"},
		{"short index", sound[:len(sound)-8], bin, "take 114 bytes"},
		{"trailing bytes", append(slices.Clone(sound), 0), bin, "take 114 bytes (or 118 with modes), and it has 115"},
	} {
		got := printAll(t, megatron.Format{}, map[string][]byte{"/a.idx": c.idx, "/a.bin": c.bin}, "/a.idx", "tokens")
		if !strings.Contains(got, "user: ") || !strings.Contains(got, "/a.idx: ") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
		}
	}
	modes := append(slices.Clone(sound), 0, 1, 0, 1)
	if got := printAll(t, megatron.Format{}, map[string][]byte{"/a.idx": modes, "/a.bin": bin}, "/a.idx", "tokens"); strings.Contains(got, "user") {
		t.Errorf("with modes: %s", got)
	}
}

// TestMegatronReadsLittle: one chunk of a big set takes a part of the index.
func TestMegatronReadsLittle(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	docs := make([][][]int32, 200_000)
	for i := range docs {
		docs[i] = [][]int32{make([]int32, rng.IntN(20))}
	}
	idx, bin := pair(docs)
	memory, obj := stored(t, map[string][]byte{"/a.idx": idx, "/a.bin": bin}, "/a.idx")
	st := store.NewMetered(memory)
	opt := format.Options{Columns: []string{"tokens"}, ChunkBytes: 32 << 10}
	records := 0
	err := format.Read(t.Context(), megatron.Format{}, st, obj, 50, opt, func(*format.Record) error { records++; return nil })
	if m := st.Meter(); err != nil || records < 1000 || m.Bytes > 600<<10 || m.Reads > 150 {
		t.Errorf("%d records, %v: %+v of %d bytes", records, err, m, len(idx)+len(bin))
	}
}

// maskOf has a value for each token: 1 for even ones. Its sequences may be others.
func maskOf(documents [][][]int32) (mask [][][]int32) {
	for _, doc := range documents {
		var values []int32
		for _, token := range slices.Concat(doc...) {
			values = append(values, 1-token%2)
		}
		mask = append(mask, [][]int32{values})
	}
	return mask
}

// bytesOf makes a pair of uint16 one of uint8.
func bytesOf(idx, bin []byte) (narrow, values []byte) {
	narrow = slices.Clone(idx)
	narrow[17] = 1
	pointers := 34 + 4*int(binary.LittleEndian.Uint64(idx[18:]))
	for at := pointers; at < pointers+2*(pointers-34); at += 8 {
		binary.LittleEndian.PutUint64(narrow[at:], binary.LittleEndian.Uint64(idx[at:])/2)
	}
	for i := 0; i < len(bin); i += 2 {
		values = append(values, bin[i])
	}
	return narrow, values
}

func maskedFiles() map[string][]byte {
	idx, bin := pair(documents)
	maskIdx, maskBin := bytesOf(pair(maskOf(documents)))
	return map[string][]byte{
		"/a_text_document.idx": idx, "/a_text_document.bin": bin, "/a_loss_mask_document.idx": maskIdx, "/a_loss_mask_document.bin": maskBin,
	}
}

// TestMegatronColumns reads loss masks that lie beside, by both names, and says of those that
// do not fit what is wrong and with which files.
func TestMegatronColumns(t *testing.T) {
	docs := [][][]int32{{{1, 2}, {3}}, {}, {{4}}}
	idx, bin := pair(docs)
	maskIdx, maskBin := pair(maskOf(docs))
	longIdx, longBin := pair([][][]int32{{{0, 1}}, {}, {{1, 1}}})
	fewIdx, fewBin := pair(docs[:2])
	wrong := bytes.Clone(maskIdx)
	wrong[17] = 5
	for _, c := range []struct {
		name, file, beside string
		idx, bin           []byte
		want               string
	}{
		{"by prefix", "/d/a", "/d/a_loss", maskIdx, maskBin, "0: tokens [0 1 0] tokens [1 2 3]\n1: tokens [] tokens []\n2: tokens [1] tokens [4]"},
		{"by key", "/d/a_text_document", "/d/a_loss_document", maskIdx, maskBin, "0: tokens [0 1 0] tokens [1 2 3]\n1: tokens [] tokens []\n2: tokens [1] tokens [4]"},
		{"lengths", "/d/a", "/d/a_loss", longIdx, longBin, "0: error: /d/a.idx: document 0 has 3 tokens, and /d/a_loss.idx 2 values: it has one for each token\n" +
			"1: tokens [] tokens []\n2: error: /d/a.idx: document 2 has 1 tokens, and /d/a_loss.idx 2 values: it has one for each token"},
		{"documents", "/d/a", "/d/a_loss", fewIdx, fewBin, `user: counting chunks: /d/a.idx has 3 documents and /d/a_loss.idx, its column "loss", 2: write both from the same records, in the same order`},
		{"elsewhere", "/d/a", "/d/a_mask", maskIdx, maskBin, `user: counting chunks: /d/a.idx: the file itself has the column "tokens" only; column "loss" is read from /d/a_loss.idx and .bin beside it: no such file; name one of these, or write that pair, with a value for each token`},
		{"damaged", "/d/a", "/d/a_loss", wrong, maskBin, `user: counting chunks: /d/a.idx: opening its column "loss": /d/a_loss.idx: pointers at byte `},
	} {
		files := map[string][]byte{c.file + ".idx": idx, c.file + ".bin": bin, c.beside + ".idx": c.idx, c.beside + ".bin": c.bin}
		if got := printAll(t, megatron.Format{}, files, c.file+".idx", "loss", "tokens"); got != c.want && (c.name != "damaged" || !strings.HasPrefix(got, c.want)) {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
	one, oneBin := pair([][][]int32{{{7}}})
	wide := bytes.Clone(one)
	wide[17] = 5
	files := map[string][]byte{"/a.idx": one, "/a.bin": oneBin, "/a_loss.idx": wide, "/a_loss.bin": binary.LittleEndian.AppendUint64(nil, 1<<40)}
	if got := printAll(t, megatron.Format{}, files, "/a.idx", "loss"); got != "0: error: /a.idx: document 0: /a_loss.idx: document 0: a token at byte 0 of /a_loss.bin is beyond 32 bits" {
		t.Errorf("a value beyond 32 bits: %s", got)
	}
	files = map[string][]byte{"/a.idx": idx, "/a.bin": bin, "/a_loss.idx": maskIdx}
	if got := printAll(t, megatron.Format{}, files, "/a.idx", "loss"); !strings.Contains(got, "user: ") || !strings.Contains(got, "pair of .idx and .bin") {
		t.Errorf("a column without its .bin: %s", got)
	}
}

func FuzzMegatron(f *testing.F) {
	idx, bin := pair(documents)
	f.Add(idx, bin)
	f.Add(idx[:60], bin)
	f.Fuzz(func(t *testing.T, idx, bin []byte) {
		st, obj := stored(t, map[string][]byte{"/a.idx": idx, "/a.bin": bin}, "/a.idx")
		_, _, err := count(t.Context(), megatron.Format{}, st, obj, format.Options{Columns: []string{"tokens"}, ChunkBytes: 8})
		if err != nil && class(err).String() != "user" {
			t.Errorf("not a user error: %v", err)
		}
	})
}
