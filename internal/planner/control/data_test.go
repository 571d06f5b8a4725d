package control

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/plan"
)

// readOf is a block of one chunk.
func readOf(seq int64, chunk, sum uint64) *BlockRead {
	return &BlockRead{Block: plan.BlockRead{Seq: seq}, Sum: sum, Chunks: []Chunk{{Chunk: chunk, Sum: sum, Place: fmt.Sprintf("a.jsonl, chunk %d of 9", chunk)}}}
}

// TestReadings compares readings with those before them: of the same block, of the same
// chunk in another epoch, by the same loader or another, and as far as they are kept.
func TestReadings(t *testing.T) {
	d := data{room: 3}
	d.add()
	a, b := d.reader("loader A"), d.reader("loader B")
	take := func(b *BlockRead, reader uint32, want ...string) {
		t.Helper()
		err := d.compareBlock(b, reader)
		if err == nil {
			d.keep(b, reader, nil)
		}
		if len(want) == 0 && err != nil || len(want) > 0 && fault.ClassOf(err) != fault.User {
			t.Errorf("%v: %v", b, err)
		}
		for _, part := range want {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%v does not say %q", err, part)
			}
		}
	}
	take(readOf(0, 1, 0xa), a)
	take(readOf(0, 1, 0xa), b)
	take(readOf(0, 1, 0xb), b, "loader B reads a.jsonl, chunk 1 of 9 with checksum 000000000000000b, loader A read it with 000000000000000a", "make the files the same")
	take(readOf(9, 1, 0xa), b)
	take(readOf(9, 1, 0xb), a, "loader A reads a.jsonl, chunk 1", "the same process read it")
	take(readOf(1, 2, 0xc), b)
	take(readOf(2, 3, 0xd), b)
	take(readOf(3, 4, 0xe), b) // there is no room for its chunk
	take(readOf(3, 4, 0xf), a, "loader A reads block 3 (a.jsonl, chunk 4 of 9) with checksum 000000000000000f, it was read with 000000000000000e")
	take(&BlockRead{Block: plan.BlockRead{Seq: 3}}, b)

	d.release([]plan.Release{{Source: 0, Before: 4}})
	if n := len(d.sources[0].blocks); n != 1 {
		t.Errorf("%d blocks are kept after their release", n)
	}
	take(readOf(2, 3, 0xe), a, "chunk 3 of 9")
	take(readOf(3, 4, 0xf), a)

	if !d.list(0, "loader A", listingsLimit) || d.list(0, "loader A", 1) {
		t.Error("a listing is kept, or is not, whatever room there is")
	}
	if d.forget(0); d.room != 3 || len(d.sources) != 0 || d.listed != 0 {
		t.Errorf("room for %d chunks, %d sources, %d bytes of listings", d.room, len(d.sources), d.listed)
	}
}

// TestOtherFiles: of two manifests that differ the error names the first file that does,
// and what each side has.
func TestOtherFiles(t *testing.T) {
	file := func(name string, size, fingerprint uint64) ListedFile {
		return ListedFile{Name: name, Size: size, Chunks: 1, Fingerprint: fingerprint}
	}
	a, b, c := file("a", 1, 0x1), file("b", 2, 0x2), file("c", 3, 0x3)
	listing := func(folder string, files ...ListedFile) Listing {
		return Listing{Folder: folder, Files: files}
	}
	base := listing("/d/", a, b, c)
	for name, test := range map[string]struct {
		now       Listing
		more, all uint64 // files beyond those that are listed, of the one and of both
		want      string
	}{
		"other bytes":        {listing("/d/", a, file("b", 2, 0x9), c), 0, 0, "/d/b has size 2, chunks 1, fingerprint 0000000000000009 for B, and size 2, chunks 1, fingerprint 0000000000000002 for A"},
		"two others":         {listing("/d/", a, file("b", 2, 0x9), file("c", 4, 0x3)), 0, 0, "/d/b has size 2, chunks 1, fingerprint 0000000000000009 for B, and size 2, chunks 1, fingerprint 0000000000000002 for A; 2 files differ"},
		"one is gone":        {listing("/d/", a, b), 0, 0, "/d/c (size 3, chunks 1, fingerprint 0000000000000003) is missing for B and there for A"},
		"one more":           {listing("/d/", a, b, file("bb", 5, 0x5), c), 0, 0, "/d/bb (size 5, chunks 1, fingerprint 0000000000000005) is there for B and missing for A"},
		"one more at last":   {listing("/d/", a, b, c, file("z", 5, 0x5)), 0, 0, "/d/z (size 5, chunks 1, fingerprint 0000000000000005) is there for B and missing for A"},
		"in another folder":  {listing("/e/", a, b, file("c", 3, 0x4)), 0, 0, "/e/c has size 3, chunks 1, fingerprint 0000000000000004 for B, and size 3, chunks 1, fingerprint 0000000000000003 for A"},
		"not all are listed": {listing("/d/", a, b), 1, 0, "3 files of 7 bytes (manifest 020202020202) for B, 3 files of 6 bytes (manifest 010101010101) for A; the lists are too long"},
		"none is listed":     {listing("/d/"), 4, 1, "4 files of 7 bytes (manifest 020202020202) for B, 4 files of 6 bytes (manifest 010101010101) for A; the lists are too long"},
		"another tokenizer":  {Listing{Folder: "/d/", Files: base.Files, Encoding: []byte("123456789")}, 0, 0, "the tokenizer's rank file, or the image decoder, differs: 313233343536 for B,  for A"},
	} {
		t.Run(name, func(t *testing.T) {
			var d data
			d.add()
			d.sources[0].indexer = "A"
			listings := map[string]Listing{}
			read := func(data []byte) (Listing, error) { return listings[string(data)], nil }
			of := func(l Listing, more, bytes uint64, digest byte) *Indexed {
				name := fmt.Sprint("listing ", len(listings))
				listings[name] = l
				return &Indexed{Files: uint64(len(l.Files)) + more, Bytes: bytes, Listing: []byte(name), Manifest: []byte(strings.Repeat(string(digest), 32))}
			}
			err := d.compareFiles(of(base, test.all, 6, 1), of(test.now, test.more, 7, 2), "B", read)
			if fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "B has other files than A: "+test.want) {
				t.Errorf("%v\nwant %s", err, test.want)
			}
			if err := d.compareFiles(of(base, 0, 6, 1), of(base, 0, 6, 1), "B", read); err != nil {
				t.Error(err)
			}
		})
	}
}
