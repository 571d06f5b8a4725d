package tokenize

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// rawRow is a text, which need not be UTF-8, and its ids.
type rawRow struct {
	text []byte
	ids  []int32
}

// UnmarshalJSON reads [text in base64, ids].
func (r *rawRow) UnmarshalJSON(raw []byte) error {
	return json.Unmarshal(raw, &[]any{&r.text, &r.ids})
}

// longRow is a text to repeat, and the number of ids and SHA-256 of what that gives.
type longRow struct {
	text         string
	times, count int
	digest       string
}

// UnmarshalJSON reads [text, times, count, digest].
func (r *longRow) UnmarshalJSON(raw []byte) error {
	return json.Unmarshal(raw, &[]any{&r.text, &r.times, &r.count, &r.digest})
}

func smallModels(t testing.TB) []smallFile {
	models := readSmall(t, "pieces-files.jsonl")[7:]
	if len(models) != 6 || models[0].Model == nil {
		t.Fatalf("%d models, want 6", len(models))
	}
	return models
}

// writeModel puts a model where LoadFile finds it.
func writeModel(t testing.TB, content []byte) string {
	path := filepath.Join(t.TempDir(), "x.model")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestModels compares small SentencePiece models with the library.
func TestModels(t *testing.T) {
	for _, m := range smallModels(t) {
		e, err := LoadFile(writeModel(t, m.Model), "", true)
		if err != nil {
			t.Fatal(m.Name, err)
		}
		for _, row := range m.Raw {
			got := e.Append(nil, row.text)
			if !slices.Equal(got, row.ids) {
				t.Errorf("%s %q:\n got %v\nwant %v", m.Name, row.text, got, row.ids)
			}
			if _, err := e.Decode(got); err != nil {
				t.Errorf("%s %q: %v", m.Name, row.text, err)
			}
		}
		for _, row := range m.Long { // whose sums round, and are reset
			got := e.Append(nil, []byte(strings.Repeat(row.text, row.times)))
			if digest := idsDigest(got); len(got) != row.count || digest != row.digest {
				t.Errorf("%s, %d times %.20q: %d ids, want %d; digest %s", m.Name, row.times, row.text, len(got), row.count, digest)
			}
		}
	}
}

func idsDigest(ids []int32) string {
	sum := sha256.New()
	_ = binary.Write(sum, binary.LittleEndian, ids)
	return hex.EncodeToString(sum.Sum(nil))
}

// TestModelDecode: spaces come back, and bytes.
func TestModelDecode(t *testing.T) {
	e, err := LoadFile(writeModel(t, smallModels(t)[1].Model), "", true) // bpe_symbols
	if err != nil {
		t.Fatal(err)
	}
	text := "the \U0001F600\n\n naïve<|x|> \x00end"
	if got, err := e.Decode(e.Append(nil, []byte(text))); err != nil || string(got) != text {
		t.Errorf("%q becomes %q, %v", text, got, err)
	}
}

// TestModelSpecials: control symbols in a text are text, or refused.
func TestModelSpecials(t *testing.T) {
	e, err := LoadFile(writeModel(t, smallModels(t)[4].Model), "", true) // uni_symbols
	if err != nil {
		t.Fatal(err)
	}
	if got, want := e.SpecialNames(), []string{"</s>", "<ctl>", "<s>"}; !slices.Equal(got, want) {
		t.Errorf("special tokens %v, want %v", got, want)
	}
	_, err = e.Specials([]string{"<ctl>"}, nil)
	checkUserError(t, "allow", err, "a SentencePiece model", "special: refuse")
	rules, err := e.Specials(nil, e.SpecialNames())
	if err != nil {
		t.Fatal(err)
	}
	_, err = rules.Append(nil, []byte("a <ctl>"))
	checkUserError(t, "refuse", err, "byte 2 of the text is the special token <ctl>")
}

// field appends a field of a message: data, or else a number or score by its wire type.
func field(dst []byte, number int, kind byte, value uint64, data []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(number)<<3|uint64(kind))
	switch kind {
	case 2:
		return append(binary.AppendUvarint(dst, uint64(len(data))), data...)
	case 5:
		return binary.LittleEndian.AppendUint32(dst, uint32(value))
	}
	return binary.AppendUvarint(dst, value)
}

// piece is a message of a piece.
func piece(text string, kind uint64) []byte {
	p := field(nil, 1, 2, 0, []byte(text))
	return field(nil, 1, 2, 0, field(p, 3, 0, kind, nil))
}

// TestModelRefused: what is wrong or not supported in a model is named.
func TestModelRefused(t *testing.T) {
	basic := slices.Concat(piece("<unk>", spUnknown), piece("a", spNormal), piece("<s>", spControl))
	trainer := func(number int, value uint64) []byte { return field(nil, 2, 2, 0, field(nil, number, 0, value, nil)) }
	rules := func(blob []byte) []byte { return field(nil, 3, 2, 0, field(nil, 2, 2, 0, blob)) }
	for _, tc := range []struct {
		model []byte
		want  string
	}{
		{nil, "has no pieces"},
		{basic[:len(basic)-1], "is damaged: field 1 ends behind it"},
		{append(slices.Clone(basic), 0), "is damaged: it has no field where one begins"},
		{slices.Concat(basic, field(nil, 9, 0, 1, nil)), "has a field 9"},
		{slices.Concat(basic, piece("a", spUser)), `pieces[3] "a" is there twice`},
		{slices.Concat(basic, piece("b", spUnknown)), "is a second unknown piece"},
		{slices.Concat(basic, piece("b", 9)), "is of kind 9"},
		{slices.Concat(basic, piece("", spNormal)), `pieces[3] is ""`},
		{slices.Concat(basic, piece("x\x00", spNormal)), "zero byte"},
		{slices.Concat(basic, piece("<0x00>", spByte)), "byte_fallback is not set"},
		{slices.Concat(basic, trainer(35, 1)), "there are 0 byte pieces"},
		{piece("a", spNormal), "no piece of 1 is the unknown one"},
		{piece("<unk>", spUnknown), "no piece of 1 is of text"},
		{slices.Concat(basic, trainer(3, 4)), "trainer_spec.model_type is 4 (char)"},
		{slices.Concat(basic, trainer(3, 2), piece("ab", spUnused)), `pieces[3] "ab" is unused`},
		{slices.Concat(basic, rules([]byte{1, 2, 3})), "precompiled_charsmap has 3 bytes"},
		{slices.Concat(basic, rules([]byte{0, 1, 0, 0, 9, 9, 9, 9})), "says that its trie has 256 bytes"},
		{slices.Concat(basic, field(nil, 1, 2, 0, field(field(nil, 1, 2, 0, []byte("b")), 2, 5, 0x7fc00000, nil))), "has the score NaN"},
		{basic, ""},
	} {
		_, err := LoadFile(writeModel(t, tc.model), "", true)
		if tc.want == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		checkUserError(t, tc.want, err, "x.model", tc.want)
	}
}

// TestPiecesRefused: what of the models is not supported is named with its place.
func TestPiecesRefused(t *testing.T) {
	byName := map[string]string{}
	for _, f := range smallFiles(t) {
		byName[f.Name] = string(f.File)
	}
	for _, tc := range []struct{ file, old, new, want string }{
		{"bert_uncased", `"model":{"type":"WordPiece"`, `"model":{"type":"Wordpiec"`, "did you mean WordPiece?"},
		{"bert_uncased", `"unk_token":"[UNK]"`, `"unk_token":"[XXX]"`, `model.unk_token is "[XXX]"`},
		{"bert_uncased", `"max_input_chars_per_word":100,`, "", "has no continuing_subword_prefix or no max_input_chars_per_word"},
		{"bert_uncased", `"pre_tokenizer":{"type":"BertPreTokenizer"}`, `"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}`, "ByteLevel, which is supported for BPE only"},
		{"wordlevel", `"unk_token":"[UNK]"`, `"unk_token":null`, "model has no unk_token"},
		{"wordlevel", `"delimiter":","`, `"delimiter":",,"`, `delimiter is ",,", want one character`},
		{"scripts", `"length":7`, `"length":0`, "length is 0, want 1 or more"},
		{"t5", `"unk_id":0`, `"unk_id":null`, "model.unk_id is missing"},
		{"t5", `"unk_id":0`, `"unk_id":99999`, "model.unk_id is 99999"},
		{"t5", `"vocab":[["<unk>",0.0]`, `"vocab":[["<unk>",0.0],["<unk>",0.0]`, "has a token twice"},
		{"t5", `"vocab":[["<unk>",0.0]`, `"vocab":[["<unk>"]`, "want a token and its score"},
		{"t5", `"precompiled_charsmap":"`, `"precompiled_charsmap":"AAAA`, "precompiled_charsmap says that its trie has 0 bytes"},
	} {
		old := byName[tc.file]
		changed := strings.Replace(old, tc.old, tc.new, 1)
		if changed == old {
			t.Errorf("%s has no %s", tc.file, tc.old)
			continue
		}
		_, err := LoadFile(write(t, []byte(changed)), "", true)
		checkUserError(t, tc.new, err, "tokenizer.json", tc.want)
	}
}

// TestOtherFiles: files that are taken for a tokenizer are named.
func TestOtherFiles(t *testing.T) {
	for name, want := range map[string]string{
		"tokenizer_config.json": "a part of the model's settings", "vocab.json": "a part of a tokenizer", "merges.txt": "a part of a tokenizer",
		"cl100k_base.tiktoken": "write encoding: and ranks: instead", "weights.model": "is damaged", "other": "is damaged",
	} {
		content := `{"a":1}`
		if filepath.Ext(name) != ".json" {
			content = "#version: 0.2"
		}
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := LoadFile(path, "", true)
		checkUserError(t, name, err, name, want)
	}
}

// TestUnigramPlain compares the search for the best sum with one that looks at all divisions.
func TestUnigramPlain(t *testing.T) {
	texts := [][]byte{[]byte("?"), []byte("a"), []byte("b"), []byte("ab"), []byte("ba"), []byte("aab"), []byte("é"), []byte("éa")}
	scores := []float64{0, -1, -2, -2.5, -2.75, -4.25, -3, -4.5}
	u := &unigram{unk: 0, poor: -20, scores: scores, trie: newTrie(texts[1:], []int32{1, 2, 3, 4, 5, 6, 7})}
	var best func(t []byte) (float64, bool)
	best = func(t []byte) (sum float64, ok bool) {
		if len(t) == 0 {
			return 0, true
		}
		_, w := utf8.DecodeRune(t)
		single := false
		try := func(n int, score float64) {
			if rest, can := best(t[n:]); can && (!ok || rest+score > sum) {
				sum, ok = rest+score, true
			}
		}
		for id, text := range texts[1:] {
			if bytes.HasPrefix(t, text) {
				single = single || len(text) == w
				try(len(text), scores[id+1])
			}
		}
		if !single {
			try(w, u.poor)
		}
		return sum, ok
	}
	for n := range 3000 {
		var text []byte
		for x := n; x > 0; x /= 4 {
			text = append(text, []string{"a", "b", "é", "x"}[x%4]...)
		}
		var s pieceScratch
		got, last := 0.0, int32(-1)
		for _, id := range u.appendPiece(nil, text, &s) {
			if id != 0 {
				got += scores[id]
			}
			if id == 0 && last == 0 {
				t.Fatalf("%q has two unknown tokens side by side", text)
			}
			last = id
		}
		got += u.poor * float64(bytes.Count(text, []byte("x")))
		if want, _ := best(text); got != want {
			t.Fatalf("%q has the sum %g, the best is %g", text, got, want)
		}
	}
}

// TestTrie compares a trie with the texts.
func TestTrie(t *testing.T) {
	var texts [][]byte
	var ids []int32
	for i := range 5000 {
		texts = append(texts, []byte(base64.StdEncoding.EncodeToString(binary.LittleEndian.AppendUint32(nil, uint32(i*i*2654435761)))[:1+i%7]))
		ids = append(ids, int32(i))
	}
	r := newTrie(texts, ids)
	last := map[string]int32{}
	for i, text := range texts {
		last[string(text)] = int32(i)
	}
	for text := range last {
		for _, s := range []string{text, text + "=", text[:len(text)-1]} {
			want := 0
			for n := range len(s) + 1 {
				if _, ok := last[s[:n]]; ok {
					want = n
				}
			}
			if got := r.longest([]byte(s), false); got != want {
				t.Fatalf("%q begins with %d bytes of a text, want %d", s, got, want)
			}
		}
	}
}

// TestClusters: where grapheme clusters end, by the examples of UAX 29 and its rules.
func TestClusters(t *testing.T) {
	for _, s := range []string{
		"a|b", "\r\n|\n", "a|\r", "\u0001|\u0301", "e\u0301\u0323|x", "각|가\u11a8|\u1100\u1161", "🇩🇪|🇫🇷|🇮", "👩\u200d👩\u200d👦|x", "a\u200d|👦",
		"©\u0301\u200d®|®", "\u0600a|b", "क\u094dत|क|त", "क\u200c\u094d|त", "क\u094d\u200dत", "का|x", "\u0e33|\u0e01\u0e33",
	} {
		want := strings.Split(s, "|")
		text := []byte(strings.Join(want, ""))
		var got []string
		for i := 0; i < len(text); {
			end := clusterEnd(clusterClasses(), text, i)
			got = append(got, string(text[i:end]))
			i = end
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// FuzzModel: no model crashes the reader, and an accepted one works.
func FuzzModel(f *testing.F) {
	for _, m := range smallModels(f) {
		f.Add(m.Model)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &fileReader{tokens: map[string]int32{}}
		e, err := r.sentencePiece(data)
		if err != nil {
			return
		}
		_, _ = e.Decode(e.NewEncoder().Append(nil, []byte("the thing's on\u0301 \xff<s>中  Aé\r\n▁▁")))
	})
}

// FuzzModelText: any bytes have an encoding that decodes, with any cache.
func FuzzModelText(f *testing.F) {
	for _, s := range []string{"", "the thing's  on\n\n", "中é aab\xff", "\xe4\xb8 \xf0\x9f", "[NEW]▁▁▁the", strings.Repeat("é", 40)} {
		f.Add([]byte(s))
	}
	models := map[string]*Encoding{}
	for _, m := range smallModels(f) {
		e, err := LoadFile(writeModel(f, m.Model), "", false)
		if err != nil {
			f.Fatal(err)
		}
		models[m.Name] = e
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for name, e := range models {
			ids := e.NewEncoder().Append(nil, text)
			if _, err := e.Decode(ids); err != nil {
				t.Fatalf("%s %q: %v", name, text, err)
			}
			tiny := e.newEncoder(1)
			tiny.Append(nil, text)
			if got := tiny.Append(nil, text); !slices.Equal(got, ids) {
				t.Fatalf("%s %q: %v with another cache, %v", name, text, got, ids)
			}
		}
	})
}

// FuzzCharsmap: no table crashes the reader, and an accepted one can be used.
func FuzzCharsmap(f *testing.F) {
	m, err := readSPModel(smallModels(f)[0].Model)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(m.rules, []byte("Aé e\u0301\ufb01\r\n\u0001"))
	f.Fuzz(func(t *testing.T, table, text []byte) {
		m, err := newCharsmap(table)
		if err != nil {
			return
		}
		precompiled(m)(nil, text)
		for len(text) > 0 {
			_, n := m.longest(text)
			text = text[max(n, 1):]
		}
	})
}
