package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// The job of the scenario shifting: a source has its files one by one as blocks, so that several loaders can read it.
const shiftingSpec = `
name: bench-shifting
seed: 1
batch: {sequence_length: 2048, sequences: 16}
topology: {dp: 2}
resources: {loader_buffer: 64MiB, constructor_buffer: 64MiB}
sources:
`

// The files of a source.
const (
	shiftingFiles    = 8
	shiftingBytes    = 128 << 10 // of text in each
	shiftingPictures = 8         // or pictures
	shiftingDocument = 8 << 10   // bytes of a document at most
)

// shiftingKind are sources of like cost.
type shiftingKind struct {
	name       string // theirs have a number behind it
	sources    int
	suffix     string
	transforms string
	shares     [4]float64 // of the mix, by stage
	write      func(path string, first int) error
}

// shiftingKinds are the 40 sources. Text and pictures cost their tokenizer and their decoding, archives little but
// decompression.
func shiftingKinds(ctx context.Context) (kinds []shiftingKind, origin string, err error) {
	c, err := readCorpus(ctx)
	if err != nil {
		return nil, "", err
	}
	pictures, shown, err := readPictures(ctx)
	if err != nil {
		return nil, "", err
	}
	kinds = []shiftingKind{
		{"archive", 12, "jsonl.zst", `{text: "{text}"}, {tokenize: bytes}, {append_eod: {}}`,
			[4]float64{0.78, 0.15, 0.40, 0.58}, func(path string, first int) error { return writeArchive(path, c.lines(first)) }},
		{"text", 20, "jsonl", `{text: "{text}"}, {` + c.tokenizeStep() + `}, {append_eod: {}}`,
			[4]float64{0.20, 0.80, 0.20, 0.40}, func(path string, first int) error { return os.WriteFile(path, c.lines(first), 0o644) }},
		{"picture", 8, "tar", `{text: "{txt}"}, {tokenize: bytes}, ` +
			`{image: {columns: jpg, token: 300, patch: 14, merge: 2, min_pixels: 3136, max_pixels: 1003520, decode: loader}}, {append_eod: {}}`,
			[4]float64{0.02, 0.05, 0.40, 0.02}, func(path string, first int) error { return writePictures(path, pictures, first) }},
	}
	return kinds, c.origin + ", " + shown, nil
}

// lines are documents from one on, as JSON lines.
func (c *corpus) lines(first int) []byte {
	var b bytes.Buffer
	for i := first; b.Len() < shiftingBytes; i++ {
		doc := c.documents[i%len(c.documents)]
		text, _ := json.Marshal(strings.ToValidUTF8(string(doc[:min(len(doc), shiftingDocument)]), "")) // a string always can be
		fmt.Fprintf(&b, "{\"text\": %s}\n", text)
	}
	return b.Bytes()
}

func writeArchive(path string, lines []byte) error {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		return err
	}
	return os.WriteFile(path, w.EncodeAll(lines, nil), 0o644)
}

func writePictures(path string, list [][]byte, first int) error {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range shiftingPictures {
		for _, part := range []struct {
			name string
			data []byte
		}{{"jpg", list[(first+i)%len(list)]}, {"txt", []byte("a picture, and what it shows")}} {
			header := &tar.Header{Name: fmt.Sprintf("%06d.%s", first+i, part.name), Mode: 0o644, Size: int64(len(part.data))}
			if err := w.WriteHeader(header); err != nil {
				return err
			}
			if _, err := w.Write(part.data); err != nil {
				return err
			}
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// writeShifting writes the sources and the job spec of some steps, and returns the spec's file.
func writeShifting(dir string, kinds []shiftingKind, steps int) (spec string, err error) {
	var b strings.Builder
	b.WriteString(shiftingSpec)
	for _, k := range kinds {
		for i := range k.sources {
			folder := filepath.Join(dir, k.source(i))
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return "", err
			}
			for file := range shiftingFiles {
				path := filepath.Join(folder, fmt.Sprintf("%d.%s", file, k.suffix))
				if err := k.write(path, (i*shiftingFiles+file)*shiftingPictures); err != nil {
					return "", err
				}
			}
			fmt.Fprintf(&b, "  - {name: %s, files: %q, long: truncate, shuffle: {block: 1}, transforms: [%s]}\n",
				k.source(i), filepath.Join(folder, "*."+k.suffix), k.transforms)
		}
	}
	b.WriteString(shiftingMix(kinds, steps))
	spec = filepath.Join(dir, "shifting.yaml")
	return spec, os.WriteFile(spec, []byte(b.String()), 0o644)
}

func (k *shiftingKind) source(i int) string { return fmt.Sprintf("%s-%02d", k.name, i) }

// shiftingMix is the mix over some steps: after a quarter of them it ramps to text, after half it jumps to pictures, after three
// quarters it ramps back. Inside of a kind the weights of sources change, too.
func shiftingMix(kinds []shiftingKind, steps int) string {
	var b strings.Builder
	b.WriteString("mix:\n  stages:\n")
	for stage, how := range []string{"", "ramp: linear, over: %d, ", "", "ramp: cosine, over: %d, "} {
		if how != "" {
			how = fmt.Sprintf(how, max(steps/8, 1))
		}
		fmt.Fprintf(&b, "    - {from: %d, %sweights: {", stage*steps/4, how)
		for _, k := range kinds {
			sum := 0.0
			for i := range k.sources {
				sum += shiftingWeight(i, stage)
			}
			for i := range k.sources {
				fmt.Fprintf(&b, "%s: %.6f, ", k.source(i), k.shares[stage]*shiftingWeight(i, stage)/sum)
			}
		}
		b.WriteString("}}\n")
	}
	return strings.ReplaceAll(b.String(), ", }}", "}}")
}

// shiftingWeight is the weight of a source among those of its kind.
func shiftingWeight(source, stage int) float64 { return float64(1 + (source+3*stage)%5) }
