package service_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/trainer"
)

// pagesSpec has images at their places in the text: of tars, of lists in Parquet, in conversations.
const pagesSpec = `
name: pages
seed: 11
sources:
  - name: pairs
    files: "*.tar"
    transforms:
      - tokenize: bytes
      - image: {columns: [jpg, png], marker: "<image>", token: 300, begin: 301, end: 302, patch: 4, merge: 2, min_pixels: 64, max_pixels: 1024, decode: DECODE}
      - append_eod: {}
  - name: pages
    files: pages.parquet
    long: {rule: split, max: 24}
    transforms:
      - text: "{caption}"
      - tokenize: bytes
      - image: {columns: images, marker: "<image>", token: 300, patch: 4, merge: 2, min_pixels: 64, max_pixels: 512, decode: DECODE}
  - name: talks
    files: talks.parquet
    long: drop
    bad_records: {policy: skip, limit: 100}
    transforms:
      - chat: {template: talk.jinja}
      - tokenize: bytes
      - image: {columns: images, marker: "<|image_pad|>", token: 300, patch: 4, merge: 2, min_pixels: 64, max_pixels: 512, decode: DECODE}
mix: {weights: {pairs: 0.4, pages: 0.3, talks: 0.3}}
batch: {sequence_length: 112, sequences: 8, microbatch_size: 2}
topology: {TOPOLOGY}
output: {format: FORMAT}
STRATEGY
`

// placed has images at their places in texts that are split, and in conversations.
const placed = "\n" + `  - name: placed
    files: pages/talks.parquet
    long: {rule: split, max: 90}
    bad_records: skip
    transforms:
      - chat: {template: pages/talk.jinja}
      - tokenize: bytes
      - image: {columns: images, marker: "<|image_pad|>", token: 300, begin: 301, end: 302, patch: 4, merge: 2, min_pixels: 64, max_pixels: 1024}
      - append_eod: {}`

const talkTemplate = `{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}
{% endgeneration %}{% else %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ '<|image_pad|>' if p.type == 'image' else p.text }}{% endfor %}{% endif %}
{% endif %}{% endfor %}`

// page is a record with a text and images.
type page struct {
	Caption  string   `parquet:"caption"`
	Messages string   `parquet:"messages"`
	Images   [][]byte `parquet:"images,list"`
}

// writePages makes the sources of pagesSpec in dir, and returns their texts with every marker as <image>.
func writePages(t testing.TB, dir string) (texts map[string]bool) {
	t.Helper()
	texts = map[string]bool{}
	rng := rand.New(rand.NewPCG(5, 5))
	shot := func(format string) []byte { return picture(t, rng, 3+rng.IntN(40), 3+rng.IntN(40), format) }
	write(t, filepath.Join(dir, "talk.jinja"), talkTemplate)
	for shard := range 3 {
		var members []member
		for i := range 25 {
			key, text := fmt.Sprintf("%d-%03d", shard, i), words(rng, rng.IntN(4))
			for n, ending := range []string{"jpg", "png"} {
				if i%3 == n {
					continue
				}
				members = append(members, member{key + "." + ending, shot(ending)})
				text += "<image>" + words(rng, rng.IntN(4))
			}
			members = append(members, member{key + ".txt", []byte(text)})
			texts[text] = true
		}
		writeTar(t, filepath.Join(dir, fmt.Sprintf("%d.tar", shard)), members)
	}
	var pages, talks []page
	for i := range 40 {
		p := page{Caption: words(rng, rng.IntN(5))}
		talk := []any{map[string]any{"type": "text", "text": words(rng, 1)}}
		asked := "u:" + talk[0].(map[string]any)["text"].(string)
		for range rng.IntN(4) {
			more := words(rng, rng.IntN(6))
			p.Images = append(p.Images, shot("jpg"))
			p.Caption += "<image>" + more
			talk = append(talk, map[string]any{"type": "image"}, map[string]any{"type": "text", "text": more})
			asked += "<image>" + more
		}
		answer := words(rng, 2)
		messages, err := json.Marshal([]any{map[string]any{"role": "user", "content": talk}, map[string]any{"role": "assistant", "content": answer}})
		if err != nil {
			t.Fatal(err)
		}
		p.Messages = string(messages)
		texts[p.Caption], texts[asked+"a:"+answer+"\n"] = true, true
		if pages, talks = append(pages, p), append(talks, p); i%10 == 9 { // a bad record: an image that the conversation does not have
			talks[i].Images = append(talks[i].Images, shot("jpg"))
		}
	}
	for name, rows := range map[string][]page{"pages.parquet": pages, "talks.parquet": talks} {
		if err := parquet.WriteFile(filepath.Join(dir, name), rows, parquet.MaxRowsPerRowGroup(16)); err != nil {
			t.Fatal(err)
		}
	}
	return texts
}

// textOf is a document's text with its images as <image>. It fails if placeholders are elsewhere.
func textOf(t testing.TB, row *batch.Row, document int) string {
	t.Helper()
	runs := map[int]int{}
	for _, x := range row.Images {
		if x.Document == document {
			runs[x.At] = x.Tokens
		}
	}
	var b strings.Builder
	tokens := row.Segments[document]
	for i := 0; i < len(tokens); i++ {
		switch id := tokens[i]; {
		case runs[i] > 0:
			for _, pad := range tokens[i : i+runs[i]] {
				if pad != 300 {
					t.Errorf("token %d among the placeholders of an image in %v", pad, tokens)
				}
			}
			b.WriteString("<image>")
			i += runs[i] - 1
		case id == 300:
			t.Errorf("a placeholder of no image: token %d of %v", i, tokens)
		case id < 256:
			b.WriteByte(byte(id))
		}
	}
	return b.String()
}

// TestVLMPlaces has images at their places in the text: every batch is the reference's, to the pixel, and what
// is around the placeholders is what was around the markers.
func TestVLMPlaces(t *testing.T) {
	dir := t.TempDir()
	texts := writePages(t, dir)
	const steps = 8
	for i, c := range []struct {
		vlm
		loaders, constructors int
		resources             string
	}{
		{vlm{"constructor", "dp: 2, cp: 2, pp: 2", "megatron", encodersOverWorld}, 1, 1, ""},
		{vlm{"loader", "dp: 2", "hf", ""}, 2, 2, "\nresources: {loader_buffer: 1}\n"},
		{vlm{"loader", "dp: 4", "jax", encodersOverWorld}, 2, 1, ""},
		{vlm{"constructor", "dp: 2, cp: 2", "megatron-thd, cp_slicing: zigzag, document_multiple: 4", ""}, 1, 2, ""},
	} {
		job := parse(t, dir, strings.NewReplacer("DECODE", c.decode, "TOPOLOGY", c.topology, "FORMAT", c.format, "STRATEGY", c.strategy).Replace(pagesSpec)+c.resources)
		want, images := expect(t, job, steps)
		if images < 5*steps {
			t.Fatalf("%d images in %d steps: the test is about none", images, steps)
		}
		whole, pieces := 0, 0
		serveVLM(t, service.Options{Job: job, Loaders: c.loaders, Constructors: c.constructors}, steps, nil, want, func(s trainer.Step) {
			for r := range s.Rows {
				for k := range s.Rows[r].Segments {
					if text := textOf(t, &s.Rows[r], k); texts[text] {
						whole++
					} else if pieces++; strings.Count(text, "a:") > 0 {
						t.Errorf("%q is the text of no record", text)
					}
				}
			}
		})
		if whole < 10*steps || pieces == 0 || pieces > whole {
			t.Errorf("case %d: %d documents are texts, %d pieces of them", i, whole, pieces)
		}
	}
}
