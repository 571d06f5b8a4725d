package transform

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/jobspec"
)

// TestFused: native steps behind a function run in its task up to the last one that makes less of what it gives, and none
// does that works longer on the way.
func TestFused(t *testing.T) {
	for _, c := range []struct{ function, behind, want string }{
		{"python: 'm:f'", "{filter: n > 1}", "filter"},
		{"python: 'm:f'", "{text: '{a}'}, {normalize: nfc}", ""},
		{"python: 'm:f'", "{text: '{a}'}, {normalize: nfc}, {filter: len(text) > 3}, {normalize: nfd}", "text normalize filter"},
		{"python: 'm:f'", "{filter: n > 1}, {replace: {pattern: a, with: b}}, {filter: len(text) > 9}", "filter replace filter"},
		{"python: 'm:f'", "{pixels: {column: jpg, resize: exact, size: 8}}, {filter: n > 1}", ""},
		{"python: 'm:f'", "{filter: n > 1}, {pixels: {column: jpg, resize: exact, size: 8}}, {filter: n > 2}", "filter"},
		{"convert: {column: mp4, to: frames}", "{pixels: {column: mp4, resize: exact, size: 8}}", "pixels"},
		{"convert: {column: mp4, to: frames}", "{pixels: {column: mp4, crop: 8}}, {text: '{a}'}", "pixels"},
		{"convert: {column: mp4, to: frames}", "{pixels: mp4}", ""},
		{"convert: {column: mp4, to: frames}", "{pixels: {column: jpg, resize: exact, size: 8}}", ""},
		{"convert: mp3", "{waveform: mp3}", "waveform"},
		{"convert: mp3", "{text: '{a}'}, {waveform: {column: mp3, rate: 44100}}, {filter: n > 1}", "text waveform filter"},
		{"convert: mp3", "{waveform: {column: mp3, rate: 48000, channels: all}}, {filter: n > 1}", ""},
	} {
		job, findings := jobspec.Parse("j.yaml", fmt.Appendf(nil, "name: j\nsources: [{name: s, files: /x.jsonl, transforms: [{%s}, %s, {python: 'm:next'}, {tokenize: bytes}]}]\nbatch: {sequence_length: 8, sequences: 1}\n", c.function, c.behind), "/")
		if err := findings.Err(); err != nil {
			t.Fatal(err)
		}
		steps := job.Sources[0].Transforms
		native := behind(steps, 0)
		var got []string
		for _, step := range native[:fused(steps[0], native)] {
			got = append(got, step.Operator())
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %s: %q, want %q", c.function, c.behind, got, c.want)
		}
	}
}
