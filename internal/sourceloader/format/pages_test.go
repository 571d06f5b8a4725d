package format

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestPages: a batch that left memory comes back as it was, whatever its values are and however it was made; pages are small,
// and others than those that were written are an error.
func TestPages(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 1))
	for range 60 {
		b, long := &Batch{}, rng.IntN(4) == 0
		for row := range rng.IntN(200) {
			if rng.IntN(20) == 0 {
				b.Add(&Record{Row: int64(row), Err: fmt.Errorf("bad %d", row)})
				continue
			}
			b.Add(randomRecord(rng, int64(row), long))
		}
		if some, _ := b.Good([]int{1, 0, 2}, nil); rng.IntN(2) == 0 && some.Len() > 0 {
			b = some // which shares memory
		}
		var pages [][]byte
		for page := range b.Pages() {
			if len(page) == 0 || len(page) > mostPage+8 {
				t.Errorf("a page of %d bytes", len(page))
			}
			pages = append(pages, slices.Clone(page))
		}
		got, err := b.Outline().Fill(slices.Values(pages))
		if err != nil {
			t.Fatal(err)
		}
		if got.Digest() != b.Digest() || got.Bytes() != b.Bytes() || fmt.Sprint(got.parts, got.lacks, got.types) != fmt.Sprint(b.parts, b.lacks, b.types) {
			t.Fatalf("%d records of %d bytes came back as %d of %d, or others", b.Len(), b.Bytes(), got.Len(), got.Bytes())
		}
		if _, err := b.Outline().Fill(slices.Values(pages[:len(pages)-1])); err == nil {
			t.Error("pages without the last one are a batch")
		}
		if _, err := b.Outline().Fill(slices.Values(append(pages, []byte{1}))); err == nil {
			t.Error("pages with another one are a batch")
		}
	}
}

func randomRecord(rng *rand.Rand, row int64, long bool) *Record {
	text := Value{Kind: String, Bytes: []byte(strings.Repeat("ab", rng.IntN(100)))}
	if long {
		text = Value{Kind: Bytes, Bytes: make([]byte, rng.IntN(3*mostPage))}
	}
	number := []Value{{Kind: Int, Int: rng.Int64()}, {Kind: Float, Float: rng.NormFloat64()}, {Kind: Bool, Int: 1}, {Absent: true}}[rng.IntN(4)]
	list := Value{Kind: List, List: []Value{{Kind: Tokens, Tokens: []int32{int32(row), -1}}, {Kind: List, List: []Value{text}}, {}}}
	return &Record{Row: row, Part: rng.Int32N(2), Values: []Value{text, number, list}, Types: []Type{{Name: "x"}, {}, {}}, Lacks: func(int) (string, []string) { return "a.b", []string{"c"} }}
}
