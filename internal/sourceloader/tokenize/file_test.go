package tokenize

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// smallFile is a line of testdata/files.jsonl or pieces-files.jsonl, made by the tokenizers library 0.23.3 and
// SentencePiece 0.2.3: a tokenizer.json with rows, or a model with raw ones.
type smallFile struct {
	Name  string
	File  json.RawMessage
	Rows  []smallRow
	Model []byte
	Raw   []rawRow
	Long  []longRow
}

type smallRow struct {
	text        string
	plain, post []int32
}

// UnmarshalJSON reads [text, ids, ids].
func (r *smallRow) UnmarshalJSON(raw []byte) error {
	return json.Unmarshal(raw, &[]any{&r.text, &r.plain, &r.post})
}

func smallFiles(t testing.TB) (files []smallFile) {
	files = append(readSmall(t, "files.jsonl"), readSmall(t, "pieces-files.jsonl")[:7]...)
	if len(files) != 17 {
		t.Fatalf("%d files, want 17", len(files))
	}
	return files
}

func readSmall(t testing.TB, name string) (files []smallFile) {
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var f smallFile
		if err := json.Unmarshal(line, &f); err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// write puts a file where LoadFile finds it.
func write(t testing.TB, content []byte) string {
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestFiles compares small files of all kinds with the library.
func TestFiles(t *testing.T) {
	for _, f := range smallFiles(t) {
		path := write(t, f.File)
		plain, err := LoadFile(path, "", false)
		if err != nil {
			t.Fatal(f.Name, err)
		}
		post, err := LoadFile(path, "", true)
		if err != nil {
			t.Fatal(f.Name, err)
		}
		rules, err := post.Specials(post.SpecialNames(), nil)
		if err != nil {
			t.Fatal(f.Name, err)
		}
		for _, row := range f.Rows {
			if got := plain.Append(nil, []byte(row.text)); !slices.Equal(got, row.plain) {
				t.Errorf("%s %q:\n got %v\nwant %v", f.Name, row.text, got, row.plain)
			}
			got, err := rules.Append(nil, []byte(row.text))
			if err != nil || !slices.Equal(got, row.post) && len(got) > 0 { // a text without tokens stays empty
				t.Errorf("%s with special tokens %q:\n got %v, %v\nwant %v", f.Name, row.text, got, err, row.post)
			}
		}
	}
}

// TestFileRefused: what a file has that is not supported is named with its place.
func TestFileRefused(t *testing.T) {
	byName := map[string]string{}
	for _, f := range smallFiles(t) {
		byName[f.Name] = string(f.File)
	}
	for _, tc := range []struct{ file, old, new, want string }{
		{"llama3", `"version":"1.0"`, `"version":"2.0"`, `version is "2.0"`},
		{"llama3", `"type":"BPE"`, `"type":"Bpee"`, `model is of type "Bpee", which is not supported; did you mean BPE?`},
		{"llama3", `"dropout":null`, `"dropout":0.1`, "model.dropout is 0.1"},
		{"llama3", `"end_of_word_suffix":null`, `"end_of_word_suffix":"</w>"`, `model.end_of_word_suffix is "</w>"`},
		{"llama3", `"ignore_merges":true`, `"ignore_merges":true,"newer":1`, `unknown field "newer"`},
		{"llama3", `\\p{N}{1,3}`, `(?<=a)\\p{N}`, "pre_tokenizer.pretokenizers[0].pattern.Regex has what is not supported here: a group"},
		{"llama3", `\\p{N}{1,3}`, `(?:ab)+`, "a group that is repeated"},
		{"llama3", `"type":"TemplateProcessing"`, `"type":"Other"`, `post_processor.processors[1] is of type "Other"`},
		{"llama3", `"content":"<|x|>"`, `"content":"<|y|><|eot_id|>"`, ""},
		{"llama3", `"merges":[[`, `"merges":[["zz","qq"],[`, `model.merges[0]: "zz" is not in the vocabulary`},
		{"llama3", `"id":280,`, `"id":999,`, "has id 999, but the tokenizers library gives it id 280"},
		{"qwen2", `"type":"NFC"`, `"type":"Precompiled"`, "normalizer.precompiled_charsmap has 0 bytes"},
		{"mistral", `"<0x41>":`, `"<0xXX>":`, "has no token <0x41>"},
		{"mistral", `"unk_token":"<unk>"`, `"unk_token":"?!"`, `model.unk_token is "?!"`},
		{"mistral", `"prepend_scheme":"first"`, `"prepend_scheme":"last"`, `pre_tokenizer.prepend_scheme is "last"`},
	} {
		old := byName[tc.file]
		changed := strings.Replace(old, tc.old, tc.new, 1)
		if changed == old {
			t.Fatalf("%s has no %s", tc.file, tc.old)
		}
		_, err := LoadFile(write(t, []byte(changed)), "", true)
		if tc.want == "" {
			if err != nil {
				t.Errorf("%s: %v", tc.new, err)
			}
			continue
		}
		checkUserError(t, tc.new, err, "tokenizer.json", tc.want)
	}
	if _, err := LoadFile(write(t, []byte(byName["llama3"])), strings.Repeat("0", 64), true); err == nil || !strings.Contains(err.Error(), "not the file that is declared") {
		t.Errorf("another SHA-256: %v", err)
	}
	checkUserError(t, "no file", func() error { _, err := LoadFile("/nowhere/tokenizer.json", "", true); return err }(), "/nowhere/tokenizer.json")
}

// FuzzFileText: any bytes have an encoding, with any cache, and byte-level ones without a
// normalizer come back.
func FuzzFileText(f *testing.F) {
	for _, s := range []string{"", "the thing's  on\n\n", "中é aab\xff", "\xe4\xb8 \xf0\x9f", "<|x|>  ▁word\u0301\u0334", strings.Repeat("\u0301", 40)} {
		f.Add([]byte(s))
	}
	files := map[string]*Encoding{}
	for _, s := range smallFiles(f) {
		e, err := LoadFile(write(f, s.File), "", false)
		if err != nil {
			f.Fatal(err)
		}
		files[s.Name] = e
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for name, e := range files {
			ids := e.NewEncoder().Append(nil, text)
			back, err := e.Decode(ids)
			if err != nil {
				t.Fatalf("%s %q: %v", name, text, err)
			}
			if (name == "llama3" || name == "deepseek3") && !bytes.Equal(back, text) {
				t.Fatalf("%s: %q decodes to %q", name, text, back)
			}
			tiny := e.newEncoder(1)
			tiny.Append(nil, text)
			if got := tiny.Append(nil, text); !slices.Equal(got, ids) {
				t.Fatalf("%s %q: %v with another cache, %v", name, text, got, ids)
			}
		}
	})
}

// FuzzFile: no file crashes the reader, and an accepted one works.
func FuzzFile(f *testing.F) {
	for _, s := range smallFiles(f) {
		f.Add([]byte(s.File))
	}
	f.Add([]byte(`{"version":"1.0","model":{"type":"BPE","vocab":{"a":0},"merges":[]},"normalizer":{"type":"Replace","pattern":{"Regex":"a+?b|(?i:k)[^\\S\\d&&x]{2}(?!c)$"},"content":""}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &fileReader{tokens: map[string]int32{}}
		e, err := r.encoding(data, true)
		if err != nil {
			return
		}
		if e.vocab != nil {
			_, _ = e.Decode(e.NewEncoder().Append(nil, []byte("the thing's on\u0301 <s>中")))
		}
	})
}

// TestPatterns compares the patterns that have a splitter of their own with the general engine.
func TestPatterns(t *testing.T) {
	needClasses()
	texts := []string{}
	for _, f := range smallFiles(t) {
		for _, row := range f.Rows {
			texts = append(texts, row.text)
		}
	}
	for r := rune(0); r < 0x32000; r++ {
		if utf8.ValidRune(r) {
			texts = append(texts, "a"+string(r)+" '"+string(r)+"s1"+string(r)+"\n"+string(r)+"  x")
		}
	}
	rng := rand.New(rand.NewPCG(11, 12))
	parts := []string{"'s", "'LL", "'ſ", "'", " ", "  ", "\n", "\r\n", "\t", "a", "Zebra", "wonderful", "UPPER", "é", "Ünder", "ǅ", "ʰ", "漢字", "e\u0301", "1", "2024", "½", "٣", "/", "...", "\u00a0", "\u2028", "\x00", "_", "\xff", "\xe6\xbc"}
	for range 20_000 {
		text := ""
		for range rng.IntN(12) {
			text += parts[rng.IntN(len(parts))]
		}
		texts = append(texts, text)
	}
	for src, split := range splitters {
		p, err := parsePattern(src)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			for i := 0; i < len(text); {
				start, end := p.find([]byte(text), i)
				if want := split([]byte(text), i); start != i || end != want {
					t.Fatalf("%.20s %q from %d: %d to %d, the splitter goes to %d", src, text, i, start, end, want)
				}
				i = end
			}
		}
	}
}
