package transform

import (
	"slices"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/tokenize"
	"github.com/millrace-data/millrace/jobspec"
)

// TestSpecialNames: a job spec accepts exactly the encodings' special tokens.
func TestSpecialNames(t *testing.T) {
	for _, name := range []string{"bytes", "r50k_base", "cl100k_base"} {
		t.Run(name, func(t *testing.T) {
			enc := tokenize.Bytes()
			if name != "bytes" {
				var err error
				if enc, err = tokenize.Load(name, rankFile(t, name), ""); err != nil {
					t.Fatal(err)
				}
			}
			want := jobspec.SpecialTokens(name)
			slices.Sort(want)
			if got := enc.SpecialNames(); !slices.Equal(got, want) {
				t.Errorf("a spec may name %v, the encoding has %v", want, got)
			}
		})
	}
}
