package sourceloader

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/samples"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// heard is a loader that answers fetches, and what it says to the planner.
func heard(t *testing.T, l *Loader) *[]*pb.LoaderReport {
	said := &[]*pb.LoaderReport{}
	l.opts.Log = slog.New(slog.DiscardHandler)
	l.send = func(r *pb.LoaderReport) error { *said = append(*said, r); return nil }
	l.cache = newCache(t.Context(), 1<<20, diskOf(t, 1<<20), l.load)
	l.ready = make(chan struct{})
	close(l.ready)
	return said
}

// reportOf has a loader read a block as the planner orders it.
func reportOf(t *testing.T, l *Loader, said *[]*pb.LoaderReport, seq uint64) *pb.BlockRead {
	t.Helper()
	if err := l.readBlock(t.Context(), request{id: blockID{0, seq}}); err != nil {
		t.Fatal(err)
	}
	r := (*said)[len(*said)-1].GetBlock()
	if r == nil {
		t.Fatalf("block %d: %v", seq, *said)
	}
	return r
}

// TestSums: a chunk has the same checksum in every epoch, in memory, on the disk, and made
// of another block; a block has that of its chunks in their order.
func TestSums(t *testing.T) {
	for _, fields := range []string{"", "    chunk_bytes: 200", "    chunk_bytes: 200\n    shuffle: {block: 3}"} {
		l := loaderOf(t, fields, 60, 30)
		said := heard(t, l)
		src, err := l.source(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		chunks := map[uint64]uint64{}
		for seq := range uint64(3 * src.Order.Blocks()) {
			r := reportOf(t, l, said, seq)
			if r.Sum == 0 || len(r.Chunks) == 0 {
				t.Fatalf("block %d: checksum %x of %d chunks", seq, r.Sum, len(r.Chunks))
			}
			for _, c := range r.Chunks {
				if before, ok := chunks[c.Chunk]; ok && before != c.Sum {
					t.Errorf("block %d: chunk %d has checksum %x, and had %x", seq, c.Chunk, c.Sum, before)
				}
				if chunks[c.Chunk] = c.Sum; !strings.Contains(c.Place, "/d/") {
					t.Errorf("chunk %d is %q", c.Chunk, c.Place)
				}
			}
			var kept *spilled
			err := l.cache.use(t.Context(), request{id: blockID{0, seq}}, func(b content) (err error) {
				kept, err = b.(*Block).spillTo(l.cache.disk, blockID{0, seq}, 1<<19)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			again, err := kept.report(blockID{0, seq})
			if err != nil || !proto.Equal(again, r) || kept.checksum() != r.Sum {
				t.Errorf("block %d on the disk: %v, %v\nand in memory: %v", seq, again, err, r)
			}
			kept.file.Close()
		}
		if len(chunks) != int(src.Order.Layout.Chunks()) {
			t.Errorf("%d chunks have a checksum, the source has %d", len(chunks), src.Order.Layout.Chunks())
		}
	}
}

// TestFetchOfAnotherBlock: a loader gives no sample of a block that is not the one that
// was planned with, from wherever it has it, and tells the planner what it has.
func TestFetchOfAnotherBlock(t *testing.T) {
	l := loaderOf(t, "", 60)
	said := heard(t, l)
	r := reportOf(t, l, said, 2)
	fetch := func(sum uint64) error {
		sets := make([]samples.Set, 1)
		held, err := l.gather(t.Context(), &pb.FetchRequest{Blocks: []*pb.BlockSamples{{Seq: 2, Indices: []uint32{0}, Sum: sum}}}, sets, new(atomic.Int64), nil)
		held.end()
		return err
	}
	for _, where := range []string{"in memory", "on the disk"} {
		if where == "on the disk" {
			l.cache.budget = 1
			l.cache.shrink(blockID{})
			err := l.cache.use(t.Context(), request{id: blockID{0, 2}}, func(b content) error {
				if _, ok := b.(*spilled); !ok {
					t.Fatal("the block is still in memory")
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		n := len(*said)
		for _, sum := range []uint64{r.Sum, 0} { // 0: a planner that does not say
			if err := fetch(sum); err != nil || len(*said) != n {
				t.Errorf("%s, checksum %x: %v", where, sum, err)
			}
		}
		if err := fetch(r.Sum + 1); !errors.Is(err, errOther) || fault.ClassOf(err) != fault.Lost {
			t.Errorf("%s: %v; want it to be sought at another loader", where, err)
		}
		if len(*said) != n+1 || !proto.Equal((*said)[n].GetBlock(), r) {
			t.Errorf("%s: the planner heard %v", where, (*said)[n:])
		}
	}
}

// TestFrozen: of a source whose manifest is not the one that was frozen nothing is read;
// the planner learns once what it is.
func TestFrozen(t *testing.T) {
	l := loaderOf(t, "", 60, 3)
	said := heard(t, l)
	if err := l.index(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	x := (*said)[0].GetIndexed()
	l.freeze(&pb.FrozenSource{Source: 0, Manifest: x.Manifest})
	l.freeze(&pb.FrozenSource{Source: 7, Manifest: x.Manifest}) // not one of the job's
	reportOf(t, l, said, 0)

	other := slices.Clone(x.Manifest)
	other[0]++
	l.freeze(&pb.FrozenSource{Source: 0, Manifest: other})
	n := len(*said)
	for range 2 {
		if _, err := l.source(t.Context(), 0); !errors.Is(err, errOther) {
			t.Errorf("the source is opened: %v", err)
		}
		if err := l.readBlock(t.Context(), request{id: blockID{0, 5}}); err != nil {
			t.Error(err)
		}
	}
	if len(*said) != n+1 || !proto.Equal((*said)[n].GetIndexed(), x) {
		t.Errorf("the planner heard %v, and then %v", x, (*said)[n:])
	}
	listing := &pb.Listing{}
	if err := proto.Unmarshal(x.Listing, listing); err != nil || listing.Folder != "/d/" || len(listing.Files) != 2 || listing.Files[1].Name != "1.jsonl" {
		t.Errorf("the listing is %v: %v", listing, err)
	}
}

// TestListingLimit: of more files than a listing has room for the first ones are in it.
func TestListingLimit(t *testing.T) {
	l := loaderOf(t, "", 1)
	src, err := l.source(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	m := src.Manifest
	for len(m.Files) < 1<<19 {
		m.Files = append(m.Files, m.Files...)
	}
	m.Files[0].Object = store.Object{URI: "/e.jsonl"} // their folder is the root
	listing := listingOf(&m)
	if size, n := proto.Size(listing), len(listing.Files); size > listingLimit+1000 || n >= len(m.Files) || n < 50_000 {
		t.Errorf("%d of %d files are listed, in %d bytes", n, len(m.Files), size)
	}
}
