package transform

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/jobspec"
)

func pixels(p jobspec.Pixels) jobspec.Transform {
	p.Column = "jpg"
	return &p
}

func waveform(w jobspec.Waveform) jobspec.Transform {
	w.Column = "wav"
	return &w
}

// gradient is a picture of which no two pixels are equal.
func gradient(t testing.TB, width, height int) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			m.SetRGBA(x, y, color.RGBA{byte(x), byte(y), 0, 255})
		}
	}
	var buf bytes.Buffer
	if err := png.Encode(&buf, m); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// ramp is a WAV file of n samples that rise.
func ramp(rate, n int) []byte {
	b := []byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00")
	b = binary.LittleEndian.AppendUint32(b, uint32(rate))
	b = binary.LittleEndian.AppendUint32(b, uint32(2*rate))
	b = append(b, 2, 0, 16, 0)
	b = binary.LittleEndian.AppendUint32(append(b, "data"...), uint32(2*n))
	for i := range n {
		b = binary.LittleEndian.AppendUint16(b, uint16(i))
	}
	return b
}

// npyOf splits an array into its header's text and its values.
func npyOf(t testing.TB, file []byte) (header string, values []byte) {
	t.Helper()
	if len(file) < 64 || string(file[:8]) != "\x93NUMPY\x01\x00" {
		t.Fatalf("no array: %q", file[:min(len(file), 80)])
	}
	n := 10 + int(binary.LittleEndian.Uint16(file[8:]))
	header, _, _ = strings.Cut(string(file[10:n]), ", }")
	return strings.Replace(header, "'fortran_order': False, ", "", 1), file[n:]
}

func one(t testing.TB, w *Worker, rec *format.Record) Sample {
	t.Helper()
	samples, outcome, err := collect(w, rec)
	if err != nil || outcome != Kept {
		t.Fatal(outcome, err)
	}
	return samples[0]
}

// TestPixels: the array stands in the column's place, for later steps and keep.
func TestPixels(t *testing.T) {
	src := jobspec.Source{Name: "a", Keep: []string{"jpg", "raw"}, Transforms: []jobspec.Transform{
		pixels(jobspec.Pixels{Resize: "exact", Size: []int{2, 3}}), tokenizeBytes,
	}}
	c := mustCompile(t, src, 100)
	rec := recordFor(c, 1, columns{"text": stringOf("A"), "jpg": picture(gradient(t, 3, 2)), "raw": bytesOf("x")})
	given := rec.Values[0]
	w := c.Worker()
	s := one(t, w, rec)
	header, values := npyOf(t, s.Extras[0])
	if header != "{'descr': '|u1', 'shape': (2, 3, 3)" || !slices.Equal(values, []byte{0, 0, 0, 1, 0, 0, 2, 0, 0, 0, 1, 0, 1, 1, 0, 2, 1, 0}) || string(s.Extras[1]) != "x" {
		t.Errorf("%s %v %q", header, values, s.Extras[1])
	}
	if fmt.Sprint(rec.Values[0]) != fmt.Sprint(given) || one(t, w, rec).Extras[0] == nil {
		t.Error("the reader's record was changed")
	}
	if s := one(t, w, recordFor(c, 1, columns{"text": stringOf("A")})); s.Extras[0] != nil {
		t.Errorf("null became %q", s.Extras[0])
	}
	list := one(t, w, recordFor(c, 1, columns{"text": stringOf("A"), "jpg": listOf(picture(gradient(t, 9, 9)), format.Value{}, picture(gradient(t, 3, 2)))}))
	if header, stacked := npyOf(t, list.Extras[0]); header != "{'descr': '|u1', 'shape': (2, 2, 3, 3)" || !slices.Equal(stacked[18:], values) {
		t.Errorf("%s %v", header, stacked)
	}
	for want, v := range map[string]format.Value{
		`transforms[0].pixels: column "jpg": its bytes are a text`: stringOf("x"),
		"column \"jpg\": element 1: it is an integer":              listOf(picture(gradient(t, 3, 2)), intOf(4)),
		"column \"jpg\": element 0: not a known picture":           listOf(bytesOf("x")),
		"column \"jpg\": not a known picture format":               bytesOf("x"),
		"column \"jpg\": a png picture of 600 x 600 pixels ":       picture(gradient(t, 600, 600)),
	} {
		limited := src
		limited.Transforms = []jobspec.Transform{pixels(jobspec.Pixels{MaxDecodedPixels: 9999}), tokenizeBytes}
		c := mustCompile(t, limited, 100)
		if _, _, err := collect(c.Worker(), recordFor(c, 1, columns{"text": stringOf("A"), "jpg": v})); fault.ClassOf(err) != fault.User || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	uneven := mustCompile(t, jobspec.Source{Transforms: []jobspec.Transform{pixels(jobspec.Pixels{}), tokenizeBytes}}, 100)
	_, _, err := collect(uneven.Worker(), recordFor(uneven, 1, columns{"text": stringOf("A"), "jpg": listOf(picture(gradient(t, 3, 2)), picture(gradient(t, 2, 2)))}))
	if err == nil || !strings.Contains(err.Error(), "element 1: an image of 2 x 2 pixels beside one of 3 x 2") {
		t.Error(err)
	}
}

// TestPixelsChance: what is drawn follows from seed, source, step and the image, not from
// what was read before.
func TestPixelsChance(t *testing.T) {
	crop := pixels(jobspec.Pixels{Crop: []int{4}, CropAt: "random", Flip: 50})
	cropOf := func(seed uint64, source string, steps []jobspec.Transform, data []byte) string {
		c, err := Compile(jobspec.Source{Name: source, Keep: []string{"jpg"}, Transforms: steps}, 100, NewShared(seed, nil))
		if err != nil {
			t.Fatal(err)
		}
		w := c.Worker()
		one(t, w, recordFor(c, 0, columns{"text": stringOf("A"), "jpg": picture(gradient(t, 50, 60))}))
		return string(one(t, w, recordFor(c, 1, columns{"text": stringOf("A"), "jpg": picture(data)})).Extras[0])
	}
	data, steps := gradient(t, 100, 100), []jobspec.Transform{crop, tokenizeBytes}
	first := cropOf(1, "a", steps, data)
	if cropOf(1, "a", steps, data) != first {
		t.Error("the same image gave two crops")
	}
	for what, other := range map[string]string{
		"seed": cropOf(2, "a", steps, data), "source": cropOf(1, "b", steps, data), "step": cropOf(1, "a", []jobspec.Transform{tokenizeBytes, crop}, data),
	} {
		if other == first {
			t.Errorf("another %s gave the same crop", what)
		}
	}
}

// TestWaveform: the array, and the placeholders that stand for it.
func TestWaveform(t *testing.T) {
	src := jobspec.Source{Keep: []string{"wav"}, Transforms: []jobspec.Transform{
		tokenizeBytes, waveform(jobspec.Waveform{Rate: 8000, DType: "int16", Token: 900, Begin: 901, End: 902, SamplesPerToken: 4}), eod(7),
	}}
	c := mustCompile(t, src, 100)
	s := one(t, c.Worker(), recordFor(c, 1, columns{"text": stringOf("AB"), "wav": bytesOf(string(ramp(8000, 9)))}))
	header, values := npyOf(t, s.Extras[0])
	if header != "{'descr': '<i2', 'shape': (9,)" || len(values) != 18 || values[16] != 8 {
		t.Errorf("%s %v", header, values)
	}
	if !slices.Equal(s.Tokens, []int32{901, 900, 900, 900, 902, 65, 66, 7}) || !slices.Equal(s.Masked, []int32{1, 4}) {
		t.Errorf("tokens %v, masked %v", s.Tokens, s.Masked)
	}
	if s := one(t, c.Worker(), recordFor(c, 1, columns{"text": stringOf("AB")})); s.Extras[0] != nil || !slices.Equal(s.Tokens, []int32{65, 66, 7}) || s.Masked != nil {
		t.Errorf("null: %+v", s)
	}
	if _, outcome, err := collect(c.Worker(), recordFor(c, 1, columns{"text": stringOf("A"), "wav": bytesOf(string(ramp(8000, 400)))})); outcome != TooLong || err != nil {
		t.Errorf("longer than a row: %v %v", outcome, err)
	}
	src.Transforms[1] = waveform(jobspec.Waveform{Rate: 16000, Channels: "all"})
	c = mustCompile(t, src, 100)
	s = one(t, c.Worker(), recordFor(c, 1, columns{"text": stringOf("AB"), "wav": bytesOf(string(ramp(8000, 9)))}))
	if header, values := npyOf(t, s.Extras[0]); header != "{'descr': '<f4', 'shape': (18, 1)" || len(values) != 72 || len(s.Tokens) != 3 {
		t.Errorf("%s %v %v", header, values, s.Tokens)
	}
	if _, _, err := collect(c.Worker(), recordFor(c, 1, columns{"text": stringOf("A"), "wav": stringOf("x")})); err == nil || !strings.Contains(err.Error(), `column "wav": its bytes are a text, not a sound`) {
		t.Error(err)
	}
	if _, _, err := collect(c.Worker(), recordFor(c, 1, columns{"text": stringOf("A"), "wav": bytesOf("x")})); fault.ClassOf(err) != fault.User {
		t.Error(err)
	}
}

// TestMutedPieces: the masks of placeholders and of tokens are cut with the sample, and a
// first token is in no run.
func TestMutedPieces(t *testing.T) {
	src := jobspec.Source{Long: jobspec.Long{Rule: ruleSplit, Max: 4}, Transforms: []jobspec.Transform{
		ids("ids"), lossMask("mask"), waveform(jobspec.Waveform{Rate: 8000, Token: 900, SamplesPerToken: 1}),
	}}
	c := mustCompile(t, src, 100)
	samples, _, err := collect(c.Worker(), recordFor(c, 1, columns{
		"ids": tokensOf(1, 2, 3, 4, 5), "mask": listOf(intOf(0), intOf(1), intOf(1), intOf(0), intOf(0)), "wav": bytesOf(string(ramp(8000, 3))),
	}))
	if err != nil || len(samples) != 2 || !slices.Equal(samples[0].Masked, []int32{1, 4}) || !slices.Equal(samples[1].Masked, []int32{2, 4}) {
		t.Errorf("%+v, %v", samples, err)
	}
}

// TestMediaIdentity: the decoders are part of what a chain is made of.
func TestMediaIdentity(t *testing.T) {
	seen := map[[32]byte]string{}
	for name, steps := range map[string][]jobspec.Transform{
		"none": {tokenizeBytes}, "pixels": {pixels(jobspec.Pixels{}), tokenizeBytes}, "waveform": {waveform(jobspec.Waveform{}), tokenizeBytes},
	} {
		digest := mustCompile(t, jobspec.Source{Transforms: steps}, 10).EncodingDigest()
		if other, ok := seen[digest]; ok {
			t.Errorf("%s and %s have the same digest", name, other)
		}
		seen[digest] = name
	}
}

// shelf is a Room that counts how often it was asked, and what is held.
type shelf struct{ asked, held, most int64 }

func (s *shelf) Take(bytes int64) (func(), error) {
	s.asked++
	s.held += bytes
	s.most = max(s.most, bytes)
	return func() { s.held -= bytes }, nil
}

// TestMediaAsks: each picture and each sound is decoded in memory that was asked for, and given back with the record.
func TestMediaAsks(t *testing.T) {
	values := columns{"text": stringOf("A"), "jpg": picture(gradient(t, 300, 200)), "wav": bytesOf(string(ramp(8000, 8000)))}
	for name, c := range map[string]struct {
		step  jobspec.Transform
		bytes int64
	}{
		"pixels":   {pixels(jobspec.Pixels{Resize: "exact", Size: []int{10, 10}}), 300 * 200 * 7},
		"waveform": {waveform(jobspec.Waveform{Rate: 16000, MaxSeconds: 10}), 8000 * 4 * (1 + 2 + 2)},
		"image":    {&jobspec.Image{Columns: []string{"jpg"}, Token: 300, Patch: 14, Merge: 2, MinPixels: 1, MaxPixels: 1 << 20, MaxImages: 1, Verify: true}, 300 * 200 * 7},
	} {
		room, shared := &shelf{}, NewShared(1, nil)
		shared.Room = room
		src := jobspec.Source{Name: "a", Transforms: []jobspec.Transform{tokenizeBytes, c.step}}
		chain, err := Compile(src, 1000, shared)
		if err != nil {
			t.Fatal(name, err)
		}
		one(t, chain.Worker(), recordFor(chain, 1, values))
		if room.asked != 1 || room.held != 0 || room.most < c.bytes || room.most > 2*c.bytes {
			t.Errorf("%s: asked %d times, for %d bytes at most (decoding takes %d), %d are held", name, room.asked, room.most, c.bytes, room.held)
		}
	}
}
