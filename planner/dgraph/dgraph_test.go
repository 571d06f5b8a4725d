package dgraph_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/planner/dgraph"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// small is a step of six samples, one carried in, one that waits, two with images.
func small() (*dgraph.Buffer, dgraph.Placement) {
	return &dgraph.Buffer{
			Source: []int32{0, 0, 1, 1, 1, 0}, Seq: []int64{6, 7, 0, 0, 0, 7}, Index: []int32{9, 0, 2, 0, 1, 1},
			Tokens: []int32{40, 24, 64, 30, 20, 50}, Carried: 1,
			ImageOffsets: []int32{0, 0, 0, 2, 3, 3, 4}, Patches: []int32{196, 49, 256, 1},
		}, dgraph.Placement{
			RowOf: []int32{0, 0, 1, 2, 2, -1},
			Rank:  []int32{0, 1, 0, 1}, Microbatch: []int32{0, 0, 0, 0}, Position: []int32{1, 0, 0, 1},
			Encoder: []int32{3, 0, 0, -1},
		}
}

func placed(t *testing.T, kind dgraph.Kind) *dgraph.Graph {
	t.Helper()
	buf, to := small()
	g, err := dgraph.New(kind, buf)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Place(to); err != nil {
		t.Fatal(err)
	}
	return g
}

// TestGolden compares all forms of print with files under testdata.
func TestGolden(t *testing.T) {
	locate := func(r dgraph.Ref) (string, int64) {
		if r.Source == 0 {
			return fmt.Sprintf("code/%d.jsonl", r.Seq), int64(r.Index) + 100
		}
		return "", 0
	}
	buf, _ := small()
	bare, err := dgraph.New(dgraph.Text, buf)
	if err != nil {
		t.Fatal(err)
	}
	for name, g := range map[string]*dgraph.Graph{"text": placed(t, dgraph.Text), "image": placed(t, dgraph.Image), "bare": bare} {
		for options, o := range map[string]dgraph.Options{"": {}, "-named": {Sources: []string{"code", "web"}, Locate: locate}, "-cut": {Limit: 2}} {
			var text, dot bytes.Buffer
			if err := g.WriteText(&text, o); err != nil {
				t.Fatal(err)
			}
			if err := g.WriteDOT(&dot, o); err != nil {
				t.Fatal(err)
			}
			golden(t, name+options+".txt", text.Bytes())
			golden(t, name+options+".dot", dot.Bytes())
		}
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s (%v): got\n%s\nwant\n%s", name, err, got, want)
	}
}

func TestStates(t *testing.T) {
	for _, kind := range []dgraph.Kind{dgraph.Text, dgraph.Image} {
		buf, to := small()
		g, err := dgraph.New(kind, buf)
		if err != nil {
			t.Fatal(err)
		}
		n := g.Len()
		if got := g.Count(); got[dgraph.Buffered] != n {
			t.Fatalf("%v: new nodes are %v", kind, got)
		}
		g.Draw()
		if got := g.Count(); got[dgraph.Drawn] != n {
			t.Fatalf("%v: drawn nodes are %v", kind, got)
		}
		if err := g.Place(to); err != nil {
			t.Fatal(err)
		}
		if got := g.Count(); got[dgraph.Placed] != n-1 || got[dgraph.Drawn] != 1 {
			t.Fatalf("%v: placed nodes are %v", kind, got)
		}
		for _, step := range []dgraph.State{dgraph.Delivered, dgraph.Assembled} { // states never go back
			if err := g.Advance(2, step); err != nil {
				t.Fatal(err)
			}
		}
		for i := range n {
			want := dgraph.Placed
			switch g.Lineage(i).Row {
			case 2:
				want = dgraph.Delivered
			case -1:
				want = dgraph.Drawn
			}
			if g.State(i) != want {
				t.Errorf("%v: node %d is %v, want %v", kind, i, g.State(i), want)
			}
		}
	}
}

// TestEdges goes from samples to their images and back, and from rows to samples.
func TestEdges(t *testing.T) {
	g := placed(t, dgraph.Image)
	owner := []int{2, 2, 3, 5}
	for image, want := range owner {
		if got := g.Sample(image); got != want {
			t.Errorf("image %d is of sample %d, want %d", image, got, want)
		}
	}
	for sample := range g.Buffer().Len() {
		first, end := g.Nodes(sample)
		for image := first; image < end; image++ {
			if owner[image] != sample {
				t.Errorf("sample %d has image %d", sample, image)
			}
		}
	}
	for row, want := range [][]int32{{0, 1}, {2}, {3, 4}, {}} {
		if got := g.Samples(row); !slices.Equal(got, want) {
			t.Errorf("row %d has samples %v, want %v", row, got, want)
		}
	}
	if got := g.Microbatch(0, 0); !slices.Equal(got, []int32{2, 0}) {
		t.Errorf("microbatch 0 of rank 0 has rows %v", got)
	}
	ref := dgraph.Ref{Source: 1, Seq: 0, Index: 0}
	if sample, ok := g.Find(ref); !ok || sample != 3 || g.Lineage(2).Ref != ref {
		t.Errorf("%v is sample %d, %v; image 2 is of %v", ref, sample, ok, g.Lineage(2).Ref)
	}
	if _, ok := g.Find(dgraph.Ref{Source: 9}); ok {
		t.Error("a sample was found that is not there")
	}
	if got, want := g.Lineage(0).String(), "1:0:2, image 0, placed: row 1, rank 1, microbatch 0, position 0, encoder 3"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestBadBuffers(t *testing.T) {
	for _, row := range []struct {
		break_ func(*dgraph.Buffer)
		want   string
	}{
		{func(b *dgraph.Buffer) { b.Seq = b.Seq[1:] }, "6 sources, 5 blocks, 6 places and 6 lengths"},
		{func(b *dgraph.Buffer) { b.Carried = 7 }, "7 samples of a buffer are carried, and it has 6"},
		{func(b *dgraph.Buffer) { b.Tokens[2] = 0 }, "sample 2 (1:0:2) has 0 tokens"},
		{func(b *dgraph.Buffer) { b.ImageOffsets = nil }, "0 offsets of images; it needs 7"},
		{func(b *dgraph.Buffer) { b.ImageOffsets[6] = 3 }, "go from 0 to 3; they go from 0 to 4"},
		{func(b *dgraph.Buffer) { b.ImageOffsets[1] = 3 }, "the images of sample 1 go from 3 to 0"},
		{func(b *dgraph.Buffer) { b.Patches[1] = -1 }, "image 1 has -1 patches"},
	} {
		buf, _ := small()
		row.break_(buf)
		if _, err := dgraph.New(dgraph.Text, buf); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("got %v, want %s", err, row.want)
		}
	}
	buf, _ := small()
	if _, err := dgraph.New(dgraph.Kind(7), buf); err == nil {
		t.Error("a graph of kind 7 was made")
	}
}

func TestBadPlacements(t *testing.T) {
	for _, row := range []struct {
		break_ func(*dgraph.Placement)
		want   string
	}{
		{func(p *dgraph.Placement) { p.RowOf = p.RowOf[1:] }, "gives 5 of 6 samples a row"},
		{func(p *dgraph.Placement) { p.Position = p.Position[1:] }, "4 rows a rank, 4 a microbatch and 3 a position"},
		{func(p *dgraph.Placement) { p.Encoder = p.Encoder[1:] }, "3 of 4 images an encoder"},
		{func(p *dgraph.Placement) { p.RowOf[3] = 4 }, "sample 3 goes to row 4; rows are 0 to 3"},
		{func(p *dgraph.Placement) { p.RowOf[3] = -2 }, "sample 3 goes to row -2"},
	} {
		buf, to := small()
		row.break_(&to)
		g, err := dgraph.New(dgraph.Text, buf)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Place(to); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("got %v, want %s", err, row.want)
		}
	}
	g := placed(t, dgraph.Text)
	if g.Advance(4, dgraph.Assembled) == nil || g.Advance(-1, dgraph.Assembled) == nil || g.Advance(0, dgraph.State(9)) == nil {
		t.Error("a state was set that cannot be")
	}
}

// large makes a buffer of n samples of two images each in rows of eight.
func large(n int) (*dgraph.Buffer, dgraph.Placement) {
	b := &dgraph.Buffer{Source: make([]int32, n), Seq: make([]int64, n), Index: make([]int32, n), Tokens: make([]int32, n),
		ImageOffsets: make([]int32, n+1), Patches: make([]int32, 2*n)}
	rows := (n + 7) / 8
	p := dgraph.Placement{RowOf: make([]int32, n), Rank: make([]int32, rows), Microbatch: make([]int32, rows), Position: make([]int32, rows), Encoder: make([]int32, 2*n)}
	for i := range n {
		b.Tokens[i], b.ImageOffsets[i+1], p.RowOf[i] = 1, int32(2*i+2), int32(i/8)
	}
	for i := range rows {
		p.Rank[i], p.Microbatch[i] = int32(i%4096), int32(i/4096)
	}
	return b, p
}

// TestLargeIsCut checks that printing a big graph writes little.
func TestLargeIsCut(t *testing.T) {
	buf, to := large(300_000)
	for _, kind := range []dgraph.Kind{dgraph.Text, dgraph.Image} {
		g, err := dgraph.New(kind, buf)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Place(to); err != nil {
			t.Fatal(err)
		}
		var text, dot bytes.Buffer
		if err := g.WriteText(&text, dgraph.Options{}); err != nil {
			t.Fatal(err)
		}
		if err := g.WriteDOT(&dot, dgraph.Options{}); err != nil {
			t.Fatal(err)
		}
		if text.Len() > 10_000 || dot.Len() > 20_000 || !strings.Contains(text.String(), "... ") {
			t.Errorf("%v: %d bytes of text, %d of DOT", kind, text.Len(), dot.Len())
		}
	}
}

func BenchmarkGraph(b *testing.B) {
	buf, to := large(300_000)
	for _, kind := range []dgraph.Kind{dgraph.Text, dgraph.Image} {
		b.Run(kind.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				g, err := dgraph.New(kind, buf)
				if err != nil {
					b.Fatal(err)
				}
				if err := g.Place(to); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
