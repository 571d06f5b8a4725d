package prepare

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
)

// TestWholeDocuments: documents that are written whole give the bytes of those that are written value by value, and sources
// with masks or kept columns have none that are.
func TestWholeDocuments(t *testing.T) {
	write := func(whole bool) string {
		l := &layout{dir: t.TempDir(), target: 1 << 30, origin: "a test", digits: 1}
		if err := l.arrange(); err != nil || !l.whole {
			t.Fatal(l.whole, err)
		}
		l.whole = whole
		s := &shards{layout: l, name: func(file int32) string { return []string{"a.jsonl", "b.jsonl"}[file] }}
		for n := range 3000 { // three row groups
			doc := &transform.Sample{Tokens: make([]int32, 1+n%1700)} // empty ones are left out before
			for i := range doc.Tokens {
				doc.Tokens[i] = int32(i * n % 50_000)
			}
			if err := s.add(order.Place{File: int32(n / 2000), Row: int64(n % 2000), Piece: int32(n % 2)}, doc); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.finish(); err != nil || len(s.done) != 1 || s.done[0].Rows != 3000 {
			t.Fatal(s.done, err)
		}
		data, err := os.ReadFile(filepath.Join(l.dir, s.done[0].Name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if whole, one := write(true), write(false); whole != one {
		t.Errorf("documents written whole give %d bytes, others than the %d of value by value", len(whole), len(one))
	}
	for _, l := range []*layout{{masks: true}, {keep: []string{"lang"}}} {
		if err := l.arrange(); err != nil || l.whole {
			t.Errorf("masks %t, kept %q: whole documents, %v", l.masks, l.keep, err)
		}
	}
}
