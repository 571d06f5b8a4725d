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

	"github.com/millrace-data/millrace/internal/reference"
	"github.com/millrace-data/millrace/internal/sourceloader/store/bucket"
	"github.com/millrace-data/millrace/jobspec"
)

// The job of the scenario shifting. Its blocks are small, so that each waits for the store once and has little to compute, as
// samples of a store far away.
const shiftingSpec = `
name: bench-shifting
seed: 1
batch: {sequence_length: 2048, sequences: 16}
topology: {dp: 2}
resources: {loader_buffer: 512MiB, constructor_buffer: 64MiB, window: 16}
sources:
`

// What a source has. A file is a block, but for text, which has several in one file.
const (
	shiftingText     = 3 << 19  // bytes of a text source
	shiftingChunk    = 64 << 10 // of them in a block
	shiftingArchive  = 64 << 10 // of text in an archive
	shiftingPictures = 2        // pictures in a file
	shiftingDocument = 8 << 10  // bytes of a document at most
)

// shiftingKind are sources of like cost.
type shiftingKind struct {
	name       string // theirs have a number behind it
	sources    int
	files      int // of a source
	suffix     string
	transforms string
	shares     [4]float64 // of the mix, by stage
	write      func(path string, first int) error
}

// shiftingKinds are the 40 sources. A token of pictures costs most, as a block has few; archives cost least.
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
		{"archive", 12, 8, "jsonl.zst", `{text: "{text}"}, {tokenize: bytes}, {append_eod: {}}`,
			[4]float64{0.80, 0.15, 0.48, 0.60}, func(path string, first int) error { return writeArchive(path, c.lines(first, shiftingArchive)) }},
		{"text", 20, 1, "jsonl", `{text: "{text}"}, {` + c.tokenizeStep() + `}, {append_eod: {}}`,
			[4]float64{0.19, 0.84, 0.40, 0.39}, func(path string, first int) error { return os.WriteFile(path, c.lines(first, shiftingText), 0o644) }},
		{"picture", 8, 24, "tar", `{text: "{txt}"}, {tokenize: bytes}, ` +
			`{image: {columns: jpg, token: 300, patch: 14, merge: 2, min_pixels: 3136, max_pixels: 1003520, decode: loader}}, {append_eod: {}}`,
			[4]float64{0.01, 0.01, 0.12, 0.01}, func(path string, first int) error { return writePictures(path, pictures, first) }},
	}
	return kinds, c.origin + ", " + shown, nil
}

// lines are documents from one on, as JSON lines of some bytes.
func (c *corpus) lines(first, size int) []byte {
	var b bytes.Buffer
	for i := first; b.Len() < size; i++ {
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

// writeShifting writes the sources into a folder for each.
func writeShifting(dir string, kinds []shiftingKind) error {
	for _, k := range kinds {
		for i := range k.sources {
			folder := filepath.Join(dir, k.source(i))
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return err
			}
			for file := range k.files {
				path := filepath.Join(folder, fmt.Sprintf("%d.%s", file, k.suffix))
				if err := k.write(path, (i*k.files+file)*shiftingPictures); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// shiftingJob is a job over the sources, of some steps.
type shiftingJob struct {
	spec    string // file
	job     *jobspec.Job
	digests [][32]byte // by step, of the reference reader
}

// newShiftingJob writes the spec of some steps into a folder, and has the reference reader compute the digests.
func newShiftingJob(ctx context.Context, dir string, kinds []shiftingKind, steps int) (*shiftingJob, error) {
	var b strings.Builder
	b.WriteString(shiftingSpec)
	for _, k := range kinds {
		for i := range k.sources {
			fmt.Fprintf(&b, "  - {name: %[1]s, files: \"s3://%[2]s/%[1]s/*.%[3]s\", chunk_bytes: %[4]d, long: truncate, shuffle: {block: 1}, transforms: [%[5]s]}\n",
				k.source(i), shiftingBucket, k.suffix, shiftingChunk, k.transforms)
		}
	}
	b.WriteString(shiftingMix(kinds, steps))
	j := &shiftingJob{spec: filepath.Join(dir, fmt.Sprintf("shifting-%d.yaml", steps))}
	err := os.WriteFile(j.spec, []byte(b.String()), 0o644)
	if err != nil {
		return nil, err
	}
	if j.job, err = jobspec.Load(j.spec); err != nil {
		return nil, err
	}
	st := bucket.ForCommand(dir)
	defer st.Close()
	n, _, err := reference.Read(ctx, st, j.job, nil, int64(steps), func(s *reference.Step) error {
		j.digests = append(j.digests, s.Digest)
		return nil
	})
	if err == nil && n != int64(steps) {
		err = fmt.Errorf("the reference reader has %d steps, %d are needed", n, steps)
	}
	return j, err
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
