package transform

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/imaging"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/jobspec"
)

// imageOf returns an encoded picture whose grid at patch 4, merge 1 has a patch for
// each 4 x 4 pixels.
func imageOf(t testing.TB, width, height int) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := png.Encode(&buf, image.NewGray(image.Rect(0, 0, width, height))); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func picture(data []byte) format.Value { return format.Value{Kind: format.Bytes, Bytes: data} }

// fourPixels is an image step of placeholder 900 for each 4 x 4 pixels.
func fourPixels(columns ...string) jobspec.Image {
	return jobspec.Image{Columns: columns, Token: 900, Patch: 4, Merge: 1, MaxPixels: 1 << 12, MaxImages: 3}
}

func imageStepOf(spec jobspec.Image) jobspec.Transform { return &spec }

// imageSamples describes samples: tokens, with images by place and grid.
func imageSamples(samples []Sample) (out []string) {
	for _, s := range samples {
		text := fmt.Sprint(s.Tokens)
		for _, x := range s.Images {
			text += fmt.Sprintf(" %d:%dx%d", x.At, x.Grid.H, x.Grid.W)
		}
		out = append(out, text)
	}
	return out
}

func TestImages(t *testing.T) {
	a, b, c := imageOf(t, 8, 4), imageOf(t, 4, 4), imageOf(t, 4, 12)
	framed := fourPixels("jpg", "more")
	framed.Begin, framed.End = 901, 902
	src := jobspec.Source{Transforms: []jobspec.Transform{tokenizeBytes, imageStepOf(framed), eod(7)}}
	for name, test := range map[string]struct {
		values columns
		want   []string
	}{
		"one":              {columns{"text": stringOf("A"), "jpg": picture(a)}, []string{"[901 900 900 902 65 7] 1:1x2"}},
		"several":          {columns{"text": stringOf("A"), "jpg": picture(b), "more": listOf(picture(c), format.Value{}, picture(a))}, []string{"[901 900 902 901 900 900 900 902 901 900 900 902 65 7] 1:1x1 4:3x1 9:1x2"}},
		"none":             {columns{"text": stringOf("AB")}, []string{"[65 66 7]"}},
		"no text":          {columns{"text": stringOf(""), "jpg": picture(b)}, []string{"[901 900 902 7] 1:1x1"}},
		"neither":          {columns{"text": stringOf("")}, nil},
		"an empty list":    {columns{"text": stringOf("A"), "more": listOf()}, []string{"[65 7]"}},
		"a list of a list": {columns{"text": stringOf("A"), "more": listOf(listOf(picture(b)))}, []string{"[901 900 902 65 7] 1:1x1"}},
	} {
		ch := mustCompile(t, src, 100)
		samples, _, err := collect(ch.Worker(), recordFor(ch, 3, test.values))
		if err != nil || !slices.Equal(imageSamples(samples), test.want) {
			t.Errorf("%s: %v, %v; want %v", name, imageSamples(samples), err, test.want)
		}
	}
	ch := mustCompile(t, src, 100)
	samples, _, _ := collect(ch.Worker(), recordFor(ch, 3, columns{"text": stringOf("A"), "jpg": picture(a)}))
	if x := samples[0].Images[0]; !bytes.Equal(x.Data, a) || x.SHA != sha256.Sum256(a) {
		t.Error("the image is not the record's")
	}
}

// TestImagesAndLong: the placeholders of images are never cut, by any rule.
func TestImagesAndLong(t *testing.T) {
	record := columns{"text": stringOf("ABC"), "jpg": picture(imageOf(t, 16, 4))} // 4 placeholders, 3 bytes
	for _, test := range []struct {
		rule    string
		max     int
		outcome Outcome
		want    []string
	}{
		{ruleSplit, 3, TooLong, nil},
		{ruleTruncate, 3, TooLong, nil},
		{ruleDrop, 3, TooLong, nil},
		{ruleSplit, 4, Kept, []string{"[900 900 900 900] 0:1x4", "[65 66 67]"}},
		{ruleTruncate, 4, Kept, []string{"[900 900 900 900] 0:1x4"}},
		{ruleDrop, 4, TooLong, nil},
		{ruleSplit, 5, Kept, []string{"[900 900 900 900 65] 0:1x4", "[66 67]"}},
		{ruleTruncate, 5, Kept, []string{"[900 900 900 900 65] 0:1x4"}},
		{ruleDrop, 6, TooLong, nil},
		{ruleDrop, 7, Kept, []string{"[900 900 900 900 65 66 67] 0:1x4"}},
	} {
		c := mustCompile(t, jobspec.Source{
			Transforms: []jobspec.Transform{tokenizeBytes, imageStepOf(fourPixels("jpg"))}, Long: jobspec.Long{Rule: test.rule, Max: test.max},
		}, 100)
		samples, outcome, err := collect(c.Worker(), recordFor(c, 1, record))
		if err != nil || outcome != test.outcome || !slices.Equal(imageSamples(samples), test.want) {
			t.Errorf("%s at %d: %v %v %v, want %v %v", test.rule, test.max, outcome, imageSamples(samples), err, test.outcome, test.want)
		}
	}
}

// TestFilterAfterImages: filters see the text's tokens only.
func TestFilterAfterImages(t *testing.T) {
	c := mustCompile(t, jobspec.Source{Transforms: []jobspec.Transform{tokenizeBytes, imageStepOf(fourPixels("jpg")), where("tokens() < 2")}}, 100)
	samples, outcome, err := collect(c.Worker(), recordFor(c, 1, columns{"text": stringOf("A"), "jpg": picture(imageOf(t, 16, 4))}))
	if err != nil || outcome != Kept || len(samples) != 1 {
		t.Error(samples, outcome, err)
	}
}

// jpegOf is a picture whose data ends early: its header is whole.
func cutJPEG(t testing.TB) []byte {
	var buf bytes.Buffer
	m := image.NewGray(image.Rect(0, 0, 40, 40))
	for i := range m.Pix {
		m.Pix[i] = byte(i * i)
	}
	if err := jpeg.Encode(&buf, m, nil); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()[:buf.Len()*3/4]
}

func TestImageErrors(t *testing.T) {
	huge := imageOf(t, 4, 4)
	copy(huge[16:], []byte{0, 4, 0, 0, 0, 4, 0, 0}) // a PNG that says 2^18 x 2^18
	large := imageOf(t, 4, 4)
	copy(large[16:], []byte{0, 0, 4, 0, 0, 0, 4, 0})
	verified := fourPixels("jpg")
	verified.Verify = true
	b := picture(imageOf(t, 4, 4))
	for name, test := range map[string]struct {
		step  jobspec.Image
		value format.Value
		want  string
	}{
		"unknown format":     {fourPixels("jpg"), bytesOf("hello there"), `row 5: transforms[1].image: column "jpg": not a known picture format: it begins with "hello there"`},
		"empty":              {fourPixels("jpg"), bytesOf(""), "a picture of 0 bytes"},
		"foreign":            {fourPixels("jpg"), bytesOf("%PDF-1.4"), "this is PDF"},
		"truncated header":   {fourPixels("jpg"), picture(imageOf(t, 4, 4)[:20]), "the PNG header is cut off"},
		"lies, too large":    {fourPixels("jpg"), picture(huge), "is too large"},
		"lies, no room":      {fourPixels("jpg"), picture(large), "more than a file of"},
		"text":               {fourPixels("jpg"), stringOf("abc"), "its bytes are a text, not an image"},
		"an empty text":      {fourPixels("jpg"), stringOf(""), "it is empty, not the bytes of an image"},
		"a number":           {fourPixels("jpg"), intOf(3), "it is an integer, not the bytes of an image"},
		"too many":           {fourPixels("jpg"), listOf(b, b, b, b), `column "jpg": element 3: the record has more than 3 images`},
		"a strip":            {fourPixels("jpg"), picture(imageOf(t, 900, 2)), "longer than 200 times"},
		"verified, cut data": {verified, picture(cutJPEG(t)), "decoding a jpeg picture of 40 x 40 pixels"},
	} {
		c := mustCompile(t, jobspec.Source{Transforms: []jobspec.Transform{tokenizeBytes, imageStepOf(test.step)}}, 100)
		w := c.Worker()
		_, _, err := collect(w, recordFor(c, 5, columns{"text": stringOf("A"), "jpg": test.value}))
		if err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: class %v: %v, want %q", name, fault.ClassOf(err), err, test.want)
		}
		samples, _, err := collect(w, recordFor(c, 6, columns{"text": stringOf("A"), "jpg": b}))
		if got := imageSamples(samples); err != nil || !slices.Equal(got, []string{"[900 65] 0:1x1"}) {
			t.Errorf("%s: the record after it gives %v, %v", name, got, err)
		}
	}
	// Not verified, the same data is planned by its header.
	c := mustCompile(t, jobspec.Source{Transforms: []jobspec.Transform{tokenizeBytes, imageStepOf(fourPixels("jpg"))}}, 200)
	if samples, _, err := collect(c.Worker(), recordFor(c, 5, columns{"text": stringOf("A"), "jpg": picture(cutJPEG(t))})); err != nil || len(samples) != 1 {
		t.Error(samples, err)
	}
}

func TestImageCompileErrors(t *testing.T) {
	good := imageStepOf(fourPixels("jpg"))
	small := fourPixels("jpg")
	small.MaxPixels = 15
	for _, test := range []struct {
		steps []jobspec.Transform
		want  string
	}{
		{[]jobspec.Transform{good, tokenizeBytes}, "put it after the tokenize or tokens step"},
		{[]jobspec.Transform{tokenizeBytes, good, good}, "a chain has one image step"},
		{[]jobspec.Transform{tokenizeBytes, eod(-1), good}, "an image step comes before append_eod"},
		{[]jobspec.Transform{tokenizeBytes, imageStepOf(jobspec.Image{})}, "names the columns"},
		{[]jobspec.Transform{tokenizeBytes, imageStepOf(fourPixels("a..b"))}, "field path"},
		{[]jobspec.Transform{tokenizeBytes, imageStepOf(small)}, "max_pixels is 15"},
	} {
		_, err := Compile(jobspec.Source{Transforms: test.steps}, 10, nil)
		if err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want %q", err, test.want)
		}
	}
}

// TestImageDigest: the picture decoder is part of the data's identity.
func TestImageDigest(t *testing.T) {
	with := mustCompile(t, jobspec.Source{Transforms: []jobspec.Transform{tokenizeBytes, imageStepOf(fourPixels("jpg"))}}, 10)
	without := mustCompile(t, jobspec.Source{Transforms: []jobspec.Transform{tokenizeBytes}}, 10)
	fingerprint, plain := imaging.Fingerprint(), without.EncodingDigest()
	if want := sha256.Sum256(append(plain[:], fingerprint[:]...)); with.EncodingDigest() != want {
		t.Errorf("digest %x, want %x", with.EncodingDigest(), want)
	}
}
