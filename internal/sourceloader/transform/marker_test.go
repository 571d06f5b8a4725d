package transform

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/jobspec"
)

// withMarker is an image step of placeholder 900 at a marker.
func withMarker(marker string, framed bool) *jobspec.Image {
	step := fourPixels("images")
	step.Marker, step.MaxImages = marker, 100
	if framed {
		step.Begin, step.End = 901, 902
	}
	return &step
}

// pictures are images with these numbers of placeholders, as a list.
func pictures(t testing.TB, sizes ...int) format.Value {
	v := format.Value{Kind: format.List}
	for _, n := range sizes {
		v.List = append(v.List, picture(imageOf(t, 4*n, 4)))
	}
	return v
}

// taught is which tokens of a sample carry loss, as 0 and 1: placeholders carry none.
func taught(s Sample, token int32) []int {
	mask := make([]int, len(s.Tokens))
	for i, id := range s.Tokens {
		if id != token {
			mask[i] = 1
		}
	}
	for k := 0; k+1 < len(s.Masked); k += 2 {
		for i := s.Masked[k]; i < s.Masked[k+1]; i++ {
			mask[i] = 0
		}
	}
	return mask
}

// TestMarkers compares the tokens of texts and conversations with images in them, and their loss, with those of
// texts that had the placeholders written into them before the tokenizers library read them (internal/tools/chat/images.py).
func TestMarkers(t *testing.T) {
	f, err := os.Open("testdata/images.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dir := modelsOf(t)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	cases, shared := 0, NewShared(0, nil)
	for ; lines.Scan(); cases++ {
		var c struct {
			Tokenizer, Title, Marker, Text, Template string
			Messages                                 json.RawMessage
			Sizes, Mask                              []int
			Framed                                   bool
			IDs                                      []int32
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		tokenize := &jobspec.Tokenize{File: filepath.Join(dir, c.Tokenizer, "tokenizer.json"), PostProcessor: "skip"}
		src := jobspec.Source{Name: "pages", Transforms: []jobspec.Transform{jobspec.Text("{text}"), tokenize, withMarker(c.Marker, c.Framed)}}
		values := columns{"text": stringOf(c.Text), "images": pictures(t, c.Sizes...)}
		if c.Template != "" {
			put(t, filepath.Join(dir, "t.jinja"), c.Template)
			src.Transforms[0] = &jobspec.Chat{Messages: "messages", TrainOn: trainAssistant, Template: filepath.Join(dir, "t.jinja")}
			values["messages"] = jsonColumn(t, c.Messages)
		}
		ch, err := Compile(src, 1<<20, shared)
		if err != nil {
			t.Fatal(err)
		}
		samples, _, err := collect(ch.Worker(), recordFor(ch, 0, values))
		name := fmt.Sprintf("%s, %s, %s", c.Tokenizer, c.Title, c.Marker)
		if err != nil || len(samples) != 1 || !slices.Equal(samples[0].Tokens, c.IDs) {
			t.Errorf("%s:\n%v, %v\nwant %v", name, samples, err, c.IDs)
			continue
		}
		if c.Template != "" {
			c.Mask[0] = 0 // which nothing predicts
			if got := taught(samples[0], 900); !slices.Equal(got[1:], c.Mask[1:]) {
				t.Errorf("%s: loss on\n%v, want\n%v", name, got, c.Mask)
			}
		}
		for i, x := range samples[0].Images {
			run := slices.Repeat([]int32{900}, c.Sizes[i])
			if got := samples[0].Tokens[x.At : int(x.At)+len(run)]; len(samples[0].Images) != len(c.Sizes) || !slices.Equal(got, run) {
				t.Errorf("%s: image %d has the tokens %v", name, i, got)
			}
		}
	}
	if cases < 250 {
		t.Errorf("%d cases", cases)
	}
}

// TestMarkersOfTokens: a column of tokens has an id as the marker, and its loss mask is of the column.
func TestMarkersOfTokens(t *testing.T) {
	step := fourPixels("images")
	step.MarkerID, step.Begin = 7, 901
	ch := mustCompile(t, jobspec.Source{Transforms: []jobspec.Transform{
		jobspec.Tokens("ids"), jobspec.LossMask("loss"), &step, eod(8),
	}}, 100)
	samples, _, err := collect(ch.Worker(), recordFor(ch, 0, columns{
		"ids":    format.Value{Kind: format.Tokens, Tokens: []int32{1, 7, 2, 3, 7, 4}},
		"loss":   format.Value{Kind: format.Tokens, Tokens: []int32{1, 0, 0, 1, 1, 0}},
		"images": pictures(t, 2, 3),
	}))
	if got := imageSamples(samples); err != nil || !slices.Equal(got, []string{"[1 901 900 900 2 3 901 900 900 900 4 8] 2:1x2 7:1x3"}) {
		t.Error(got, err)
	} else if got := taught(samples[0], 900); !slices.Equal(got, []int{1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0}) {
		t.Error(got)
	}
}

// TestMarkersAndLong: no rule cuts an image, and each piece has the images of its placeholders.
func TestMarkersAndLong(t *testing.T) {
	record := columns{"text": stringOf("AB#CD#E"), "images": pictures(t, 2, 3)} // AB 901 900 900 902 CD 901 900 900 900 902 E
	for _, test := range []struct {
		rule    string
		max     int
		outcome Outcome
		want    []string
	}{
		{ruleSplit, 4, TooLong, nil},
		{ruleTruncate, 4, TooLong, nil},
		{ruleSplit, 5, Kept, []string{"[65 66]", "[901 900 900 902 67] 1:1x2", "[68]", "[901 900 900 900 902] 1:1x3", "[69]"}},
		{ruleTruncate, 5, Kept, []string{"[65 66]"}},
		{ruleSplit, 6, Kept, []string{"[65 66 901 900 900 902] 3:1x2", "[67 68]", "[901 900 900 900 902 69] 1:1x3"}},
		{ruleTruncate, 8, Kept, []string{"[65 66 901 900 900 902 67 68] 3:1x2"}},
		{ruleTruncate, 12, Kept, []string{"[65 66 901 900 900 902 67 68] 3:1x2"}},
		{ruleSplit, 13, Kept, []string{"[65 66 901 900 900 902 67 68 901 900 900 900 902] 3:1x2 9:1x3", "[69]"}},
		{ruleDrop, 13, TooLong, nil},
		{ruleDrop, 14, Kept, []string{"[65 66 901 900 900 902 67 68 901 900 900 900 902 69] 3:1x2 9:1x3"}},
	} {
		c := mustCompile(t, jobspec.Source{
			Transforms: []jobspec.Transform{tokenizeBytes, withMarker("#", true)}, Long: jobspec.Long{Rule: test.rule, Max: test.max},
		}, 100)
		w := c.Worker()
		for range 2 { // the second time with memory that was used
			samples, outcome, err := collect(w, recordFor(c, 1, record))
			if err != nil || outcome != test.outcome || !slices.Equal(imageSamples(samples), test.want) {
				t.Errorf("%s at %d: %v %v %v, want %v %v", test.rule, test.max, outcome, imageSamples(samples), err, test.outcome, test.want)
			}
		}
	}
}

// TestMarkersBehindASound: the placeholders of a sound come before the text, with its images.
func TestMarkersBehindASound(t *testing.T) {
	step := withMarker("#", false)
	sound := &jobspec.Waveform{Column: "wav", Rate: 8000, MaxSeconds: 9, Token: 800, SamplesPerToken: 4000}
	ch := mustCompile(t, jobspec.Source{Transforms: []jobspec.Transform{tokenizeBytes, step, sound, eod(8)}}, 100)
	samples, _, err := collect(ch.Worker(), recordFor(ch, 0, columns{"text": stringOf("A#B"), "images": pictures(t, 2), "wav": bytesOf(string(ramp(8000, 8000)))}))
	if got := imageSamples(samples); err != nil || !slices.Equal(got, []string{"[800 800 65 900 900 66 8] 3:1x2"}) || !slices.Equal(samples[0].Masked, []int32{1, 2}) {
		t.Error(got, samples, err)
	}
}

func TestMarkerErrors(t *testing.T) {
	ch := mustCompile(t, jobspec.Source{Transforms: []jobspec.Transform{tokenizeBytes, withMarker("<image>", false)}}, 100)
	for _, test := range []struct {
		text   string
		images int
		want   string
	}{
		{"A <image>", 0, "row 3: transforms[1].image: the record has 0 images and 1 marker of <image>: it needs one for each image"},
		{"A", 2, "the record has 2 images and 0 markers of <image>"},
		{"<image><image>", 1, "the record has 1 image and 2 markers of <image>"},
	} {
		_, _, err := collect(ch.Worker(), recordFor(ch, 3, columns{"text": stringOf(test.text), "images": pictures(t, slices.Repeat([]int{1}, test.images)...)}))
		if fault.ClassOf(err) != fault.User || err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, want %q", test.text, err, test.want)
		}
	}
	id := fourPixels("images")
	id.MarkerID = 7
	for _, test := range []struct {
		steps []jobspec.Transform
		want  string
	}{
		{[]jobspec.Transform{jobspec.Tokens("ids"), withMarker("<image>", false)}, "write marker_id"},
		{[]jobspec.Transform{tokenizeBytes, &id}, "write marker, the text"},
		{[]jobspec.Transform{jobspec.Tokens("ids"), &id, jobspec.LossMask("m")}, "a loss_mask step comes before an image step with a marker"},
		{[]jobspec.Transform{&jobspec.Tokenize{Refuse: []string{"<image>"}}, withMarker("<image>", false)}, "tokenize refuses <image>"},
	} {
		_, err := Compile(jobspec.Source{Transforms: test.steps}, 10, nil)
		if err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want %q", err, test.want)
		}
	}
}
