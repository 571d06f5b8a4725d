package transform

import (
	"errors"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/jobspec"
)

func normalized(form string) jobspec.Transform { return jobspec.Normalize(form) }
func replaced(pattern, with string) jobspec.Transform {
	return &jobspec.Replace{Pattern: pattern, With: with}
}

// TestRewrite: the expected texts are Unicode's own examples (UAX #15) and RE2's rules.
func TestRewrite(t *testing.T) {
	type steps = []jobspec.Transform
	for name, test := range map[string]struct {
		steps    steps
		in, want string
	}{
		"nfc":     {steps{normalized("nfc")}, "A\u030a\u212b\ufb01", "\u00c5\u00c5\ufb01"},
		"nfkc":    {steps{normalized("nfkc")}, "\u212b\ufb012\u2075", "\u00c5fi25"},
		"nfd":     {steps{normalized("nfd")}, "\u00c5", "A\u030a"},
		"nfkd":    {steps{normalized("nfkd")}, "\u1e9b\u0323", "s\u0323\u0307"},
		"replace": {steps{replaced(`(\w+)@\w+`, "${1}@x")}, "ann@a, bob@b", "ann@x, bob@x"},
		"remove":  {steps{replaced(`\s+$`, "")}, "text \n", "text"},
		"in turn": {steps{text("{text}-{text}"), replaced("a", "bb"), normalized("nfd"), text("<{text}>"), replaced("b+", "c")}, "a\u00e9", "<ce\u0301-ce\u0301>"},
	} {
		c, err := Compile(jobspec.Source{Transforms: append(test.steps, tokenizeBytes)}, 100, nil)
		if err != nil {
			t.Fatal(name, err)
		}
		samples, _, err := collect(c.Worker(), recordFor(c, 0, columns{"text": stringOf(test.in)}))
		if err != nil || len(samples) != 1 || letters(samples[0].Tokens) != test.want {
			t.Errorf("%s: %+v, %v; want %q", name, samples, err, test.want)
		}
	}
	for name, wrong := range map[string]steps{"form": {normalized("nfx"), tokenizeBytes}, "pattern": {replaced("(", ""), tokenizeBytes}, "late": {tokenizeBytes, replaced("a", "b")}} {
		if _, err := Compile(jobspec.Source{Transforms: wrong}, 100, nil); err == nil || fault.ClassOf(err) != fault.User {
			t.Errorf("%s: %v", name, err)
		}
	}
	plain, _ := Compile(jobspec.Source{Transforms: steps{tokenizeBytes}}, 100, nil)
	c, err := Compile(jobspec.Source{Transforms: steps{replaced("a", "bbbb"), tokenizeBytes}, MaxRecord: 6}, 100, nil)
	if err != nil || c.EncodingDigest() == plain.EncodingDigest() {
		t.Errorf("%v; the version of Unicode is not part of the chain", err)
	}
	if _, _, err := collect(c.Worker(), recordFor(c, 0, columns{"text": stringOf("aa")})); !errors.Is(err, format.ErrTooLong) {
		t.Errorf("a text that grew too long: %v", err)
	}
}
