package tokenize

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestLibraryNumber: digits beyond 53 bits are rounded before the power of ten, as serde_json 1.0 does.
func TestLibraryNumber(t *testing.T) {
	times := func(digits uint64, by float64) float64 { return float64(digits) * by }
	over := func(digits uint64, by float64) float64 { return float64(digits) / by }
	for text, want := range map[string]float64{
		"-3.7447825126206826":        -over(37447825126206826, 1e16),
		"-6.475233511124255":         -over(6475233511124255, 1e15),
		"123456789012345678901234":   times(12345678901234567890, 1e4),
		"0.123456789012345678901234": over(12345678901234567890, 1e20), // as many digits as 64 bits have
		"0":                          0, "-13.0": -13, "1e3": 1000, "2.5E-2": 0.025, "1e-320": over(1, 1e308) / 1e12,
	} {
		if got, err := libraryNumber(text); err != nil || got != want {
			t.Errorf("%s is %v, want %v: %v", text, got, want, err)
		}
	}
	other := 0
	for n := range uint64(100) {
		text := fmt.Sprintf("-3.74478251262%05d", 6826+n)
		nearest, _ := strconv.ParseFloat(text, 64)
		if got, _ := libraryNumber(text); got != nearest {
			other++
		}
	}
	if other == 0 {
		t.Error("all numbers are the nearest ones")
	}
	for _, text := range []string{"", "null", `"1"`, "1e400", "[]"} {
		if got, err := libraryNumber(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// TestLibraryTies: ids as the tokenizers library 0.23.3 gives them, where they hang on its reading of scores, or on what
// a character that it leaves out stood between.
func TestLibraryTies(t *testing.T) {
	const unigram = `{"version": "1.0", "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], [".", -3.7447825126206826], ["..", -6.475233511124255], ["...", -7.275021060880713], ["a", -3.692859964723326]]}}`
	const dropping = `{"version": "1.0", "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": false},
		"model": {"type": "BPE", "vocab": {"a": 0, "▁": 1, "▁▁": 2, "▁a": 3, "x": 4, "y": 5}, "merges": ["▁ ▁", "▁ a"]}}`
	for _, c := range []struct {
		file, text string
		want       []int32
	}{
		{unigram, ".......", []int32{3, 3, 1}},
		{dropping, " é ", []int32{2}},
		{dropping, "a é a", []int32{0, 2, 0}},
	} {
		e, err := LoadFile(write(t, []byte(c.file)), "", false)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Append(nil, []byte(c.text)); !slices.Equal(got, c.want) {
			t.Errorf("%q: %v, want %v", c.text, got, c.want)
		}
	}
}

// TestFewTokens: a vocabulary may be as small as a test's.
func TestFewTokens(t *testing.T) {
	for n := 1; n < 6; n++ {
		var pairs, scores []string
		for i, token := range []string{"<unk>", "a", "b", "c", "d"}[:n] {
			pairs, scores = append(pairs, fmt.Sprintf("%q: %d", token, i)), append(scores, fmt.Sprintf("[%q, %d]", token, -i))
		}
		vocab := "{" + strings.Join(pairs, ", ") + "}"
		for _, model := range []string{
			`{"type": "WordLevel", "unk_token": "<unk>", "vocab": ` + vocab + `}`,
			`{"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9, "vocab": ` + vocab + `}`,
			`{"type": "BPE", "unk_token": "<unk>", "merges": [], "vocab": ` + vocab + `}`,
			`{"type": "Unigram", "unk_id": 0, "vocab": [` + strings.Join(scores, ", ") + `]}`,
		} {
			e, err := LoadFile(write(t, []byte(`{"version": "1.0", "model": `+model+`}`)), "", false)
			if err != nil {
				t.Fatalf("%d tokens: %v", n, err)
			}
			if got := e.Append(nil, []byte("a")); !slices.Equal(got, []int32{min(1, int32(n-1))}) {
				t.Errorf("%d tokens: %s: %v", n, model, got)
			}
		}
	}
}
