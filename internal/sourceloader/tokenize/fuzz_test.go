package tokenize

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// FuzzRoundTrip checks that decoding restores every text, valid UTF-8 or not,
// that the plain rule gives the same ids, and that the cache changes nothing.
func FuzzRoundTrip(f *testing.F) {
	for _, s := range []string{"", "the thing's  on\n\n", "中é aab\xff", "\u0301A'S ªA", "  \r\n 12345/\n", "ſ'ſ \u2028x"} {
		f.Add([]byte(s))
	}
	encodings := []*Encoding{toy(f, splitR50K), toy(f, splitCL100K), toy(f, splitO200K)}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 2000 { // the plain rule is quadratic
			return
		}
		for _, e := range append(encodings, Bytes()) {
			ids := e.NewEncoder().Append(nil, text)
			if back, err := e.Decode(ids); err != nil || !bytes.Equal(back, text) {
				t.Fatalf("%s: %q decodes to %q, %v", e.Name(), text, back, err)
			}
			if e.vocab == nil {
				continue
			}
			if want := slowAppend(e, text); !slices.Equal(ids, want) {
				t.Fatalf("%q: got %v, want %v", text, ids, want)
			}
			tiny := e.newEncoder(1)
			tiny.Append(nil, text)
			if got := tiny.Append(nil, text); !slices.Equal(got, ids) {
				t.Fatalf("%q: %v with another cache, %v", text, got, ids)
			}
		}
	})
}

// FuzzRankFile checks that no file crashes the reader, and that an accepted one
// works.
func FuzzRankFile(f *testing.F) {
	all := strings.Join(toyLines(), "")
	for _, s := range []string{"", all, "IQ== 0\n", strings.Replace(all, " 257", " 256", 1), all[:500]} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := newEncoding(toySpec(splitCL100K), "fuzz.tiktoken", data)
		if err != nil {
			checkUserError(t, "rank file", err, "fuzz.tiktoken")
			return
		}
		text := []byte("the thing's on")
		if back, err := e.Decode(e.NewEncoder().Append(nil, text)); err != nil || !bytes.Equal(back, text) {
			t.Fatalf("got %q, %v", back, err)
		}
	})
}
