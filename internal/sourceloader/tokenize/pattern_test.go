package tokenize

import (
	"strings"
	"testing"
)

// marked is text with # in the place of each match.
func marked(t *testing.T, pattern, text string) string {
	t.Helper()
	p, err := parsePattern(pattern)
	if err != nil {
		t.Fatalf("%s: %v", pattern, err)
	}
	return string(replace(p.find, "#")(nil, []byte(text)))
}

// TestClasses: \w is not the same in brackets and alone, and neither is Rust's, which Whitespace has; without regard to case
// a class alone stays what it is. What is wanted is normalizers.Replace(Regex(pattern), "#").normalize_str(text) of the
// tokenizers library 0.23.3.
func TestClasses(t *testing.T) {
	const words = "a\u200cb\u200d²³¹¼½¾é_-9 "
	for _, c := range []struct{ pattern, text, want string }{
		{`\w`, words, "#\u200c#\u200d########-# "},
		{`\w+`, words, "#\u200c#\u200d#-# "},
		{`\W`, words, "a#b#²³¹¼½¾é_#9#"},
		{`[\w]`, words, "#\u200c#\u200d²³¹¼½¾##-# "},
		{`[\w-]`, words, "#\u200c#\u200d²³¹¼½¾#### "},
		{`[^\w]`, words, "a#b#######é_#9#"},
		{`[\W]`, words, "a#b#######é_#9#"},
		{`(?i:\w)`, words, "#\u200c#\u200d########-# "},
		{`(?i:[\p{N}A])`, words, "#\u200cb\u200d######é_-# "},
		{`(?i:\p{Lu}|\P{L})`, "Aa9bB", "#a#b#"},
	} {
		if got := marked(t, c.pattern, c.text); got != c.want {
			t.Errorf("%s: %q, want %q", c.pattern, got, c.want)
		}
	}
	r := &fileReader{tokens: map[string]int32{}}
	if err := r.preTokenizer("p", []byte(`{"type": "Whitespace"}`)); err != nil {
		t.Fatal(err)
	}
	var pieces []string
	for _, p := range r.file.stages[0].divide(nil, []byte(words), 0) {
		pieces = append(pieces, words[p.from:p.to])
	}
	if got, want := strings.Join(pieces, "|"), "a\u200cb\u200d|²³¹¼½¾|é_|-|9"; got != want || r.revision != 0 {
		t.Errorf("Whitespace: %q, want %q; revision %d", got, want, r.revision)
	}
}

// TestFold: without regard to case literals and sets of them are exact, and where Oniguruma makes one character of several,
// or several of one, the pattern is refused. What is wanted is made as for TestClasses.
func TestFold(t *testing.T) {
	for _, c := range []struct{ pattern, text, want string }{
		{`(?i:'s|'t|'re|'ve|'m|'ll|'d)`, "'S 'ſ 'Re 'RE 'lL's'x", "# # # # ##'x"},
		{`'(?i:[sdmt]|ll|ve|re)`, "'ſ 'D 'LL 'x", "# # # 'x"},
		{`(?i:k)`, "kK\u212a", "###"},
		{`(?i:[а-яσ])x`, "Жx ςx Σx", "# # #"},
		{`(?i:ss?)`, "ß S Ss", "ß # #"},
		{`(?i:s[s])`, "ß SS", "ß #"},
		{`(?i:s)(?i:s)`, "ß sS", "ß #"},
		{`(?i:s|t)`, "ﬆ st", "ﬆ ##"},
		{`s(?i:s)`, "ß sS SS", "ß # SS"},
		{`[^ß]`, "aß", "#ß"},
	} {
		if got := marked(t, c.pattern, c.text); got != c.want {
			t.Errorf("%s: %q, want %q", c.pattern, got, c.want)
		}
	}
	for _, pattern := range []string{
		`(?i:[^a])`, `(?i:[^\p{L}])`, `(?i:[\p{L}])`, `(?i:[\p{Lu}])`, `(?i:[\w])`, `(?i:[\S])`, `(?i:ß)`, `(?i:[ß])`, `(?i:ẞ)`, `(?i:ŉ)`, `(?i:İ)`, `(?i:և)`, `(?i:ᾳ)`, `(?i:[ﬀ-ﬆ])`,
		`(?i:ss)`, `(?i:\x73s)`, `(?i:s(?:s))`, `(?i:ſT)`, `(?i:xFi)`, `(?i:ʼN)`, "(?i:I\u0307)", `(?i:ΑΙ)`, `(?i:եւ)`,
	} {
		if _, err := parsePattern(pattern); err == nil || !strings.Contains(err.Error(), "without regard to case") {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

// TestMisses: what is noted of loops that failed changes no match, and spares looking at a run once for each of
// its characters.
func TestMisses(t *testing.T) {
	const letters = "ab "
	for _, pattern := range []string{`\s*b`, `a+\s`, `a*a*b`, `a*?\sb`, `a*+b`, `(?:a+|\s+)b\s`, `[ab]*\s(?=a)`, `a{2,}b|\s+a`, ` ?a+\sb*a|b+$`} {
		p, err := parsePattern(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 3 * 3 * 3 * 3 * 3 * 3 * 3 {
			text := make([]byte, 7)
			for k := range text {
				text[k] = letters[n%3]
				n /= 3
			}
			for from := range text {
				start, end := p.find(text, from)
				want, wantEnd := -1, -1
				for i := from; i < len(text) && want < 0; i++ {
					if to := p.match(p.start, text, i, nil); to > i {
						want, wantEnd = i, to
					}
				}
				if start != want || end != wantEnd {
					t.Fatalf("%s %q from %d: %d to %d, want %d to %d", pattern, text, from, start, end, want, wantEnd)
				}
			}
		}
	}
	for _, pattern := range []string{`\s*X`, `X|\s*Y`, ` ?\s+X`} {
		if text := strings.Repeat(" ", 200_000); marked(t, pattern, text) != text {
			t.Errorf("%s changes spaces", pattern)
		}
	}
}
