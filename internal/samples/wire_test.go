package samples_test

import (
	"bytes"
	"io"
	"runtime"
	"testing"

	"github.com/millrace-data/millrace/internal/samples"
)

// setOf has a sample for each of some images.
func setOf(data [][]byte) samples.Set {
	s := samples.Set{Offsets: []int32{0}, Images: make([][]samples.Image, len(data))}
	for i, v := range data {
		s.Tokens, s.Offsets = append(s.Tokens, int32(i)), append(s.Offsets, int32(i+1))
		s.Images[i] = []samples.Image{{H: 2, W: 2, Data: v, Decoded: true}}
	}
	return s
}

// TestWire: images that lie in one piece and images that do not are the same bytes, as many as Size says, each
// time they are written; and of those in one piece nothing is copied.
func TestWire(t *testing.T) {
	const images, size = 32, 1 << 20
	whole := make([]byte, images*size)
	for i := range whole {
		whole[i] = byte(i>>20 + i)
	}
	var joined, apart [][]byte
	for i := range images {
		joined = append(joined, whole[i*size:(i+1)*size])
		apart = append(apart, bytes.Clone(joined[i]))
	}
	apart[3], joined[3] = joined[3], joined[3][:size:size]
	var before, after runtime.MemStats
	set := setOf(joined)
	runtime.ReadMemStats(&before)
	w, err := samples.NewWire([]samples.Set{set})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Release()
	if _, err := w.WriteTo(io.Discard); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > size {
		t.Errorf("%d bytes of pixels took %d more to be written", len(whole), took)
	}
	want, err := samples.Encode([]samples.Set{setOf(apart)})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var got bytes.Buffer
		if n, err := w.WriteTo(&got); err != nil || n != w.Size || !bytes.Equal(got.Bytes(), want) {
			t.Fatalf("%d bytes, said were %d, the same as of images apart: %v; %v", n, w.Size, bytes.Equal(got.Bytes(), want), err)
		}
	}
	sets, err := samples.Decode(want)
	if err != nil {
		t.Fatal(err)
	}
	for i := range joined {
		if !bytes.Equal(sets[0].Images[i][0].Data, joined[i]) {
			t.Errorf("image %d is another one", i)
		}
	}
}

// TestWireOfNeighbours: images that lie in one piece of memory in another order, with room between them, or twice,
// are what they are.
func TestWireOfNeighbours(t *testing.T) {
	whole := []byte("abcdefgh")
	for name, data := range map[string][][]byte{
		"backwards":  {whole[4:8], whole[0:4]},
		"with room":  {whole[0:2], whole[4:6]},
		"twice":      {whole[0:4], whole[0:4], whole[4:8]},
		"none first": {nil, whole[0:4], {}, whole[4:8]},
		"no image":   {},
		"only none":  {nil, {}},
		"not at 0":   {whole[2:4], whole[4:8]},
	} {
		wire, err := samples.Encode([]samples.Set{setOf(data)})
		if err != nil {
			t.Fatal(err)
		}
		sets, err := samples.Decode(wire)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range data {
			if got := sets[0].Images[i][0].Data; !bytes.Equal(got, want) || (got == nil) != (want == nil) {
				t.Errorf("%s: image %d is %q, want %q", name, i, got, want)
			}
		}
	}
}
