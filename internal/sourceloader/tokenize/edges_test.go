package tokenize

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// fileOf is a tokenizer.json of single characters, whose ids are their places, with more parts, such as
// `"normalizer": {..}`.
func fileOf(chars string, parts ...string) string {
	var vocab []string
	for i, c := range []rune(chars) {
		vocab = append(vocab, fmt.Sprintf("%q: %d", string(c), i))
	}
	return fmt.Sprintf(`{"version": "1.0", "model": {"type": "BPE", "vocab": {%s}, "merges": []}%s}`, strings.Join(vocab, ", "), strings.Join(append([]string{""}, parts...), ", "))
}

// addedOf is the added tokens of a file; flags has l for lstrip, r for rstrip, n for normalized.
func addedOf(tokens ...addedToken) string {
	var list []string
	for _, t := range tokens {
		list = append(list, fmt.Sprintf(`{"id": %d, "content": %q, "lstrip": %v, "rstrip": %v, "normalized": %v, "special": %v, "single_word": false}`, t.ID, t.Content, t.LStrip, t.RStrip, t.Normalized, t.Special))
	}
	return `"added_tokens": [` + strings.Join(list, ", ") + "]"
}

func mustFile(t *testing.T, content string) *Encoding {
	t.Helper()
	e, err := LoadFile(write(t, []byte(content)), "", false)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestNoTokens: the parts of a text without tokens have none.
func TestNoTokens(t *testing.T) {
	e := mustFile(t, fileOf("ab"))
	text := []byte("?!")
	ids := e.Append(nil, text)
	parts, err := e.TokensOf(text, ids, []Part{{0, 1}, {1, 2}})
	if err != nil || len(ids) > 0 || !slices.Equal(parts, []Part{{}, {}}) {
		t.Errorf("%v of %v: %v", parts, ids, err)
	}
}

// TestManyMarks: combining marks are put in order in less than quadratic time.
func TestManyMarks(t *testing.T) {
	const n = 300_000
	e := mustFile(t, fileOf("x\u0301\u0327", `"normalizer": {"type": "NFD"}`))
	begin := time.Now()
	got := e.Append(nil, []byte("x"+strings.Repeat("\u0301\u0327", n)))
	want := slices.Concat([]int32{0}, slices.Repeat([]int32{2}, n), slices.Repeat([]int32{1}, n))
	if !slices.Equal(got, want) {
		t.Errorf("%d ids, want %d", len(got), len(want))
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestAddedSpace: white space that is an added token and that the one before takes is no token. Ids are those of the tokenizers library
// 0.23.3, encode(text, add_special_tokens=False), but where it panics ("AddedVocabulary bad split").
func TestAddedSpace(t *testing.T) {
	x := addedToken{ID: 10, Content: "<x>", RStrip: true}
	tab := addedToken{ID: 3, Content: "\t", LStrip: true}
	both, neither, spaces := tab, tab, addedToken{ID: 11, Content: "  ", LStrip: true}
	both.RStrip, neither.LStrip = true, false
	for _, c := range []struct {
		added  []addedToken
		text   string
		want   []int32
		panics bool
	}{
		{[]addedToken{x, tab}, "a<x>\tb", []int32{0, 10, 1}, false},
		{[]addedToken{x, tab}, "<x>\t", []int32{10}, false},
		{[]addedToken{x, tab}, "a\t\tb", []int32{0, 3, 3, 1}, false},
		{[]addedToken{x, tab}, "a<x> \t b", []int32{0, 10, 1}, true},
		{[]addedToken{x, tab}, "<x>\t\tb", []int32{10, 1}, true},
		{[]addedToken{x, both}, "a<x> \t b", []int32{0, 10, 1}, false},
		{[]addedToken{both}, "a\t\tb", []int32{0, 3, 1}, false},
		{[]addedToken{x, neither}, "a<x> \t b", []int32{0, 10, 3, 2, 1}, false},
		{[]addedToken{x, neither}, "<x>\t\tb", []int32{10, 3, 3, 1}, false},
		{[]addedToken{x, spaces}, "<x>\t\tb", []int32{10, 1}, false},
		{[]addedToken{x, spaces}, "a <x>   b", []int32{0, 2, 10, 1}, true},
	} {
		if got := mustFile(t, fileOf("ab \t\n<>|xy", addedOf(c.added...))).Append(nil, []byte(c.text)); !slices.Equal(got, c.want) {
			t.Errorf("%v %q: %v, want %v (the library panics: %v)", c.added, c.text, got, c.want, c.panics)
		}
	}
}

// TestAddedSpaceParts: a token that is only the space added before a text belongs to what follows it. Parts are of the tokens that
// have a character of them by the offsets of the tokenizers library 0.23.3.
func TestAddedSpaceParts(t *testing.T) {
	s := addedOf(addedToken{ID: 3, Content: "<s>", Special: true})
	unk := `"model": {"type": "BPE", "unk_token": "b", "vocab": {"▁": 0, "a": 1, "b": 2}, "merges": []}`
	for name, e := range map[string]*Encoding{
		"Metaspace": mustFile(t, fileOf("▁ab", s, `"pre_tokenizer": {"type": "Metaspace", "replacement": "▁"}`)),
		"unsplit":   mustFile(t, fileOf("▁ab", s, unk, `"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "split": false}`)),
		"Prepend": mustFile(t, fileOf("▁ab", s, unk, `"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
			{"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}`)),
		"ByteLevel": mustFile(t, fileOf("Ġab", s, `"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true, "use_regex": false}`)),
	} {
		rules, err := e.Specials([]string{"<s>"}, nil)
		if err != nil || !e.Spaced() {
			t.Fatal(name, err, e.Spaced())
		}
		for _, c := range []struct {
			text string
			part Part
			want Part
		}{
			{"<s>ab", Part{3, 5}, Part{1, 4}}, // of <s> ▁ a b
			{"<s>ab", Part{0, 3}, Part{0, 1}},
			{"<s>ab", Part{4, 5}, Part{3, 4}},
			{"ab", Part{0, 2}, Part{0, 3}}, // of ▁ a b
			{"ab", Part{1, 2}, Part{2, 3}},
			{"a<s>b", Part{0, 1}, Part{0, 2}}, // of ▁ a <s> ▁ b
			{"a<s>b", Part{1, 4}, Part{2, 3}},
			{"a<s>b", Part{4, 5}, Part{3, 5}},
		} {
			ids, err := rules.Append(nil, []byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := e.TokensOf([]byte(c.text), ids, []Part{c.part}); err != nil || got[0] != c.want {
				t.Errorf("%s %q %v of %v: %v, %v, want %v", name, c.text, c.part, ids, got, err, c.want)
			}
		}
	}
	if e := mustFile(t, fileOf("▁ab", `"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"}`)); e.Spaced() {
		t.Error("never adds a space")
	}
}

// TestFirstPiece: a Metaspace puts a space before the first piece, and what the library takes for another first one is refused.
// Ids are those of the tokenizers library 0.23.3.
func TestFirstPiece(t *testing.T) {
	const (
		first  = `{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}`
		other  = `{"type": "Metaspace", "replacement": "x"}`
		digits = `{"type": "Digits", "individual_digits": true}`
	)
	replaced := func(kind, from, to string) string {
		return fmt.Sprintf(`{"type": "Replace", "pattern": {%q: %q}, "content": %q}`, kind, from, to)
	}
	list := func(name string, parts ...string) string {
		return fmt.Sprintf(`{"type": "Sequence", %q: [%s]}`, name, strings.Join(parts, ", "))
	}
	word := addedOf(addedToken{ID: 10, Content: "ab", Normalized: true})
	one := addedOf(addedToken{ID: 4, Content: "1", Normalized: true})
	for _, c := range []struct {
		normalizer, pre, added, text string
		want                         []int32
		refused                      string
	}{
		{replaced("Regex", " {2,}", "▁"), first, "", "  ab", []int32{0, 1, 2}, ""},
		{replaced("Regex", " {2,}", " "), first, "", "a  b", []int32{0, 1, 0, 2}, ""},
		{list("normalizers", `{"type": "Strip", "strip_left": false, "strip_right": true}`, replaced("Regex", " {2,}", "▁")), first, "", "  ab  ", []int32{0, 1, 2}, ""},
		{replaced("String", "a", "bc"), first, "", "ab", []int32{0, 2, 3, 2}, ""},
		{`{"type": "NFKC"}`, first, "", "½a", []int32{0, 4, 6, 5, 1}, ""},
		{`{"type": "Prepend", "prepend": "x"}`, first, "", "ab", []int32{0, 7, 1, 2}, ""},
		{"null", list("pretokenizers", digits, first), "", "1a", []int32{0, 4, 1}, ""},
		{`{"type": "NFKC"}`, first, word, "½ab", []int32{0, 4, 6, 5, 10}, ""},
		{`{"type": "NFKC"}`, first, word, "ab½", []int32{10, 4, 6, 5}, ""},

		{replaced("String", "ab", "c"), first, "", "abc", []int32{3, 3}, "behind a Replace that takes several characters and does not put ▁ in their place"},
		{list("normalizers", replaced("String", "ab", "▁c"), replaced("String", "▁", "x")), first, "", "abc", []int32{7, 3, 3}, "behind a Replace"},
		{list("normalizers", replaced("String", "ab", "▁c"), `{"type": "NFC"}`), first, "", "", nil, "behind a Replace"},
		{`{"type": "NFKC"}`, list("pretokenizers", digits, first), "", "½a", []int32{0, 4, 0, 6, 0, 5, 1}, "behind a normalizer and another pre-tokenizer"},
		{`{"type": "Prepend", "prepend": "1"}`, list("pretokenizers", digits, first), "", "ab", []int32{0, 4, 0, 1, 2}, "behind a normalizer and another"},
		{"null", list("pretokenizers", other, digits, first), "", "1a", []int32{0, 7, 0, 4, 1}, "behind another Metaspace"},
		{`{"type": "NFKC"}`, first, one, "½a", []int32{4, 0, 6, 5, 1}, `"1" is a part of what the normalizer makes of`},
	} {
		parts := []string{`"normalizer": ` + c.normalizer, `"pre_tokenizer": ` + c.pre}
		if c.added != "" {
			parts = append(parts, c.added)
		}
		e, err := LoadFile(write(t, []byte(fileOf("▁abc12⁄xi?", parts...))), "", false)
		if c.refused != "" {
			checkUserError(t, c.normalizer, err, c.refused, "prepend_scheme: first")
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.normalizer, err)
		} else if got := e.Append(nil, []byte(c.text)); !slices.Equal(got, c.want) {
			t.Errorf("%s %s %q: %v, want %v", c.normalizer, c.pre, c.text, got, c.want)
		}
	}
}

// TestFileText: what the library refuses is refused, and what only looks like it is not.
func TestFileText(t *testing.T) {
	good := fileOf("ab")
	for _, c := range []struct{ content, want string }{
		{good + " xx", "something follows its JSON value"},
		{good + good, "something follows its JSON value"},
		{good + " \n", ""},
		{strings.Replace(good, `"a"`, `"\ud800"`, 1), `half a surrogate pair at byte`},
		{strings.Replace(good, `"a"`, `"\udc00\ud800"`, 1), `half a surrogate pair`},
		{strings.Replace(good, `"a"`, `"\ud83d\u0041"`, 1), `half a surrogate pair`},
		{strings.Replace(good, `"a"`, `"\ud83d\ude00"`, 1), ""},
		{strings.Replace(good, `"a"`, `"\\ud83d"`, 1), ""},
		{strings.Replace(good, `"a"`, "\"\xff\"", 1), "the file is not UTF-8"},
		{fileOf("ab", `"normalizer": {"type": "Prepend", "prepend": ""}`), "normalizer.prepend is empty"},
	} {
		_, err := LoadFile(write(t, []byte(c.content)), "", false)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.content, err)
			}
			continue
		}
		checkUserError(t, c.content, err, c.want)
	}
}

// TestRevisions: a file of which earlier builds gave other ids has another digest, and no other one has.
func TestRevisions(t *testing.T) {
	x, tab := addedToken{ID: 2, Content: "<x>", RStrip: true}, addedToken{ID: 3, Content: "\t", LStrip: true}
	split := func(pattern string) string {
		return fmt.Sprintf(`"pre_tokenizer": {"type": "Split", "pattern": {"Regex": %q}, "behavior": "Isolated", "invert": false}`, pattern)
	}
	for _, c := range []struct {
		parts    []string
		revision int
	}{
		{nil, 0},
		{[]string{split(patternCL)}, 0},
		{[]string{split(`(?i:'s|[A-Z])\s`)}, 0},
		{[]string{split(`\w+`)}, 3},
		{[]string{split(`[^\W]`)}, 3},
		{[]string{split(`(?i:\p{Lu})`)}, 3},
		{[]string{`"pre_tokenizer": {"type": "Whitespace"}`}, 0},
		{[]string{`"pre_tokenizer": {"type": "Metaspace", "replacement": "▁"}`}, 0},
		{[]string{addedOf(x)}, 0},
		{[]string{addedOf(x, tab)}, 3},
		{[]string{`"model": {"type": "Unigram", "unk_id": 0, "vocab": [["?", 0.0], ["a", -1.0]]}`}, 2},
		{[]string{`"model": {"type": "Unigram", "unk_id": 0, "vocab": [["?", 0.0], ["a", -1.0]]}`, split(`\w`)}, 3},
	} {
		content := fileOf("ab", c.parts...)
		want := sha256.Sum256([]byte(content))
		if c.revision > 0 {
			want = sha256.Sum256(fmt.Appendf(want[:], "revision %d", c.revision))
		}
		if got := mustFile(t, content).Digest(); got != want {
			t.Errorf("%s: not of revision %d", c.parts, c.revision)
		}
	}
}
