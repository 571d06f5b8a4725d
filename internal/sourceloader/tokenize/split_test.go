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
	"unicode"
	"unicode/utf8"
)

// pieces splits all of text.
func pieces(split splitter, text []byte) []string {
	needClasses()
	var all []string
	for i := 0; i < len(text); {
		j := split(text, i)
		all = append(all, string(text[i:j]))
		i = j
	}
	return all
}

// TestPieces checks the splitters against a regular-expression engine that ran
// the published patterns; the rows need no rank file.
func TestPieces(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "pieces.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range bytes.Lines(data) {
		var row struct {
			Encoding string
			Pieces   []string
		}
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		spec, err := specOf(row.Encoding)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(row.Pieces, "")
		if got := pieces(spec.split, []byte(text)); !slices.Equal(got, row.Pieces) {
			t.Errorf("%s %q:\n got %q\nwant %q", row.Encoding, text, got, row.Pieces)
		}
		rows++
	}
	if rows < 250 {
		t.Errorf("only %d rows", rows)
	}
}

// TestInvalidUTF8Splits checks the splitters against Append's contract: a stray
// byte is a symbol, and no byte is lost.
func TestInvalidUTF8Splits(t *testing.T) {
	for _, tt := range []struct {
		split splitter
		text  string
		want  []string
	}{
		{splitR50K, "ab\xffcd \xfe1", []string{"ab", "\xff", "cd", " \xfe", "1"}},
		{splitCL100K, "ab\xffcd \xfe\n1", []string{"ab", "\xffcd", " \xfe\n", "1"}},
		{splitO200K, "ab\xffcd \xfe/\n1", []string{"ab", "\xffcd", " \xfe/\n", "1"}},
		{splitCL100K, "\xe4\xb8", []string{"\xe4\xb8"}},         // a character cut off
		{splitO200K, "'\xc5", []string{"'\xc5"}},                // half a long s
		{splitCL100K, "\xed\xa0\x80", []string{"\xed\xa0\x80"}}, // a surrogate
	} {
		if got := pieces(tt.split, []byte(tt.text)); !slices.Equal(got, tt.want) {
			t.Errorf("%q: got %q, want %q", tt.text, got, tt.want)
		}
	}
}

// classOf is the class of a rune by package unicode.
func classOf(r rune) class {
	var c class
	switch {
	case r == '\r' || r == '\n':
		c = space | newline
	case unicode.Is(unicode.White_Space, r):
		c = space
	case unicode.In(r, unicode.Lu, unicode.Lt):
		c = letter | upper
	case unicode.Is(unicode.Ll, r):
		c = letter | lower
	case unicode.In(r, unicode.Lm, unicode.Lo):
		c = letter | upper | lower
	case unicode.Is(unicode.M, r):
		c = symbol | upper | lower
	case unicode.Is(unicode.N, r):
		c = number
	default:
		c = symbol
	}
	return c
}

// assigned are the categories of assigned characters. Control, format and
// private-use ones stand for unicode.C, which holds unassigned ones too.
var assigned = []*unicode.RangeTable{unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z,
	unicode.Cc, unicode.Cf, unicode.Co}

// TestClassesAgreeWithGo checks every character that the toolchain knows. A character
// of another class must be newer than Unicode 15.0: 5,055 letters, marks
// and numbers were added up to 16.0, nearly all of them ideographs.
func TestClassesAgreeWithGo(t *testing.T) {
	needClasses()
	differ := 0
	var buf [utf8.UTFMax]byte
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		n := utf8.EncodeRune(buf[:], r)
		got, w := classAt(buf[:n], 0)
		if w != n {
			t.Fatalf("%U has width %d, want %d", r, w, n)
		}
		if got == classOf(r) {
			continue
		}
		if differ++; unicode.Version == "15.0.0" && unicode.In(r, assigned...) {
			t.Errorf("%U has class %b, want %b", r, got, classOf(r))
		}
	}
	t.Logf("Unicode %s of the toolchain lacks %d characters", unicode.Version, differ)
	if unicode.Version == "15.0.0" && differ != 5055 {
		t.Errorf("%d characters differ, want 5055: the table is not the pinned one", differ)
	}
}

// TestSplittersAreLinear would run for hours if one of them were quadratic.
func TestSplittersAreLinear(t *testing.T) {
	const n = 1 << 18
	for _, unit := range []string{" ", "\n", " \n", "a", "A", "ªA", "\u0301", "\u0301A", "!", "'s", "1", " a", "中", "\t1", "'"} {
		text := []byte(strings.Repeat(unit, n/len(unit)))
		for _, s := range encodingSpecs {
			if got := len(strings.Join(pieces(s.split, text), "")); got != len(text) {
				t.Errorf("%s %q: %d bytes, want %d", s.name, unit, got, len(text))
			}
		}
	}
}

// TestASCIIRun finds the ends of runs eight bytes at a time where one at a time has them.
func TestASCIIRun(t *testing.T) {
	needClasses()
	rng := rand.New(rand.NewPCG(7, 8))
	near := []byte("@AZ[`az{\x00\x7f\x80\xff 9'\xc3\xa9\xc3\x89")
	for range 20_000 {
		text := make([]byte, rng.IntN(40))
		for i := range text {
			text[i] = byte('a' + rng.IntN(26)&^rng.IntN(2))
			switch rng.IntN(12) {
			case 0:
				text[i] = near[rng.IntN(len(near))]
			case 1:
				text[i] ^= 0x20
			}
		}
		for i := range len(text) + 1 {
			if got, want := letters(text, i), run(text, i, letter); got != want {
				t.Fatalf("letters of %q from %d end at %d, want %d", text, i, got, want)
			}
			if got, want := lowerCase(text, i), run(text, i, lower); got != want {
				t.Fatalf("lower case of %q from %d ends at %d, want %d", text, i, got, want)
			}
		}
	}
}
