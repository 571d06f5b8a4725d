package sourceloader

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/spill"
)

// TestBatchSpill: rows come back from the disk as they were; a disk that is full, or has no folder, keeps none of them and
// gives its room back.
func TestBatchSpill(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	in := &rows{Batch: &format.Batch{}, file: 3, records: 70, good: 60, absent: []Absent{{"k", 2, "hint"}}, first: []int64{4}, lacks: []lacking{{5, 1, "x"}}}
	for i := range 50 {
		in.Add(&format.Record{Row: int64(i), Values: []format.Value{{Kind: format.Bytes, Bytes: make([]byte, rng.IntN(9000))}}})
	}
	in.Add(&format.Record{Row: 50, Err: fmt.Errorf("bad")})
	dir := t.TempDir()
	disk := spill.Open(spill.Options{Dir: dir, Limit: 1 << 20, Use: batchSpillUse})
	s := batchSpill{disk}
	if !s.Reserve(in) {
		t.Fatal("the disk has no room")
	}
	out, err := s.Write(in)
	if err != nil {
		t.Fatal(err)
	}
	if used, _, _ := disk.Usage(); used < in.Bytes()*9/10 || out.Bytes() > in.Bytes()/20 {
		t.Errorf("of %d bytes %d are on the disk, and %d in memory", in.Bytes(), used, out.Bytes())
	}
	got, err := out.Read()
	if err != nil {
		t.Fatal(err)
	}
	back := got.(*rows)
	if back.Digest() != in.Digest() || back.Bytes() != in.Bytes() || fmt.Sprint(back.file, back.records, back.good, back.absent, back.first, back.lacks) != fmt.Sprint(in.file, in.records, in.good, in.absent, in.first, in.lacks) {
		t.Error("other rows came back")
	}
	out.Close()
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) > 0 {
		t.Errorf("%q are left", files)
	}
	if s := (batchSpill{spill.Open(spill.Options{Dir: dir, Limit: in.Bytes() / 2})}); s.Reserve(in) {
		t.Error("a disk takes more than its limit")
	}
	gone := filepath.Join(dir, "gone")
	if err := os.Mkdir(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	broken := spill.Open(spill.Options{Dir: gone, Limit: 1 << 20})
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	s = batchSpill{broken}
	if !s.Reserve(in) {
		t.Error("a disk that was not tried is refused")
	}
	if _, err := s.Write(in); err == nil {
		t.Error("a disk without a folder takes rows")
	}
	if used, _, problem := broken.Usage(); used != 0 || problem == "" || s.Reserve(in) {
		t.Errorf("%d bytes are reserved of a broken disk (%q), or more can be", used, problem)
	}
}
