package preview

import (
	"slices"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/tokenize"
)

func TestLossOf(t *testing.T) {
	encoding := tokenize.Bytes()
	ids := encoding.Append(nil, []byte("abcdefgh"))
	for _, test := range []struct {
		masked []int32
		want   []string
	}{
		{nil, nil},
		{[]int32{1, 8}, nil},
		{[]int32{1, 3}, []string{"defgh"}},
		{[]int32{2, 3, 5, 8}, []string{"b", "de"}},
		{[]int32{4, 5}, []string{"bcd", "fgh"}},
	} {
		d := Document{Sample: Sample{Tokens: int32(len(ids)), Masked: test.masked}, IDs: ids}
		if got := d.lossTexts(encoding); !slices.Equal(got, test.want) {
			t.Errorf("without loss %v: %q, want %q", test.masked, got, test.want)
		}
	}
}
