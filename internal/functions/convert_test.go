package functions_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/millrace-data/millrace/internal/functions"
	"github.com/millrace-data/millrace/internal/memory"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// converter is a convert step to frames with some children at a time, and records of videos, one of them damaged.
func converter(t *testing.T, children int) (*transform.Function, *format.Batch) {
	t.Helper()
	ffmpeg, err := exec.LookPath("ffmpeg")
	if err != nil {
		t.Skip("ffmpeg is not in PATH (apt-get install ffmpeg)")
	}
	set := &functions.Set{Workers: children}
	t.Cleanup(set.Close)
	src := jobspec.Source{Name: "v", Transforms: []jobspec.Transform{&jobspec.Convert{
		Column: "mkv", To: "frames", Every: 1, MaxFrames: 50, MaxBytes: 64 << 20, MaxDecodedPixels: 1 << 20, Timeout: 60, Memory: 1 << 30,
	}}}
	f, err := set.Open(1, &src, 0)
	if err != nil {
		t.Fatal(err)
	}
	in := &format.Batch{}
	for i := range 6 {
		file := filepath.Join(t.TempDir(), fmt.Sprint(i, ".mkv"))
		if out, err := exec.Command(ffmpeg, "-v", "error", "-f", "lavfi", "-i", fmt.Sprintf("testsrc=s=%dx240:r=25:d=2", 300+2*i), "-c:v", "mpeg4", file).CombinedOutput(); err != nil {
			t.Fatalf("%s", out)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			data = []byte("no video")
		}
		in.Add(&format.Record{Row: int64(i), Values: []format.Value{{Kind: format.Bytes, Bytes: data}}})
	}
	return f, in
}

// describe is what a batch holds.
func describe(b *format.Batch) string {
	var text bytes.Buffer
	var rec format.Record
	for i := range b.Len() {
		b.Record(i, &rec)
		fmt.Fprintf(&text, "%d %v", rec.Row, rec.Err)
		for _, v := range rec.Values {
			fmt.Fprintf(&text, " %d frames", len(v.List))
		}
	}
	return fmt.Sprintf("%s %x", text.String(), b.Digest())
}

// TestConvertWithin: under any room children give the same, what they and their outputs hold is counted, and a child
// that is in another one's way is tried again.
func TestConvertWithin(t *testing.T) {
	f, in := converter(t, 3)
	free, from, err := f.Caller.Call(t.Context(), in)
	if err != nil || len(from) != 6 {
		t.Fatal(from, err)
	}
	want := describe(free)
	for _, most := range []int64{1 << 30, 60 << 20, 1} {
		var mu sync.Mutex
		held, peak := int64(0), int64(0)
		room := memory.NewRoom(t.Context(), most, memory.Options{Count: func(bytes int64) {
			mu.Lock()
			defer mu.Unlock()
			held += bytes
			peak = max(peak, held)
		}})
		again, _ := converter(t, 3)
		out, _, err := again.Caller.Call(memory.With(t.Context(), room), in)
		if err != nil || describe(out) != want {
			t.Errorf("a room of %d bytes: %v\n%.200s, want\n%.200s", most, err, describe(out), want)
		}
		if held != 0 || peak < free.Bytes() {
			t.Errorf("a room of %d bytes: at most %d were counted for %d of frames, %d at the end", most, peak, free.Bytes(), held)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := f.Caller.Call(ctx, in); err == nil {
		t.Error("a call went on when its context had ended")
	}
}

// TestConvertEnds: a call ends when enough came out, and calls one after the other give what one gives.
func TestConvertEnds(t *testing.T) {
	f, in := converter(t, 1)
	want, _, err := f.Caller.Call(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	var parts []*format.Batch
	for first := 0; first < in.Len(); {
		out, from, end, err := f.Caller.(transform.Ending).CallSome(t.Context(), in, first, 1)
		if err != nil || out.Len() != end-first || len(from) != end-first || int(from[0]) != first {
			t.Fatal(first, end, from, err)
		}
		parts, first = append(parts, out), end
	}
	if got := format.Concat(parts); describe(got) != describe(want) {
		t.Errorf("%s, want %s", describe(got), describe(want))
	}
	if len(parts) < 4 {
		t.Errorf("%d calls for 6 records of 11 MB, though each was to end at the first byte", len(parts))
	}
}
