package service_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace-data/millrace/internal/reference"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/trainer"
	"github.com/millrace-data/millrace/jobspec"
)

const keptSpec = `
name: kept
seed: 3
sources:
  - {name: pictures, files: "*.tar", keep: [jpg, cls], transforms: [{text: "{txt}"}, {tokenize: bytes}, {append_eod: {}}], long: split}
  - {name: words, files: "text/*.txt"}
mix: {weights: {pictures: 0.6, words: 0.4}}
batch: {sequence_length: 64, sequences: 8, microbatch_size: 2}
topology: {dp: 2, cp: 2, pp: 2}
`

// TestKept checks that the bytes of image members reach the trainers' first
// pipeline stage as they are: the trainer's digest is over what was delivered.
func TestKept(t *testing.T) {
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 1))
	var images [][]byte
	for shard := range 2 {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		add := func(name string, data []byte) {
			if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(data); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 20 {
			image := make([]byte, rng.IntN(3000)+1)
			for k := range image {
				image[k] = byte(rng.IntN(256))
			}
			images = append(images, image)
			add(fmt.Sprintf("%d-%03d.txt", shard, i), []byte(words(rng, 12)))
			add(fmt.Sprintf("%d-%03d.jpg", shard, i), image)
			if i%3 == 0 {
				add(fmt.Sprintf("%d-%03d.cls", shard, i), []byte("7"))
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.tar", shard)), buf.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 9 {
		write(t, filepath.Join(dir, "text", fmt.Sprintf("%d.txt", i)), words(rng, 40))
	}
	for _, resources := range []string{"", "resources: {loader_buffer: 1}\n", "resources: {loader_buffer: 1, loader_disk: 0}\n"} {
		t.Run(resources, func(t *testing.T) { serveKept(t, parse(t, dir, keptSpec+resources), images) })
	}
}

func serveKept(t *testing.T, job *jobspec.Job, images [][]byte) {
	const steps = 12
	_, want, err := reference.Read(t.Context(), store.Local{}, job, nil, steps, nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	err = service.Run(t.Context(), service.Options{Job: job, Constructors: 2}, func(ctx context.Context, address string) error {
		res, err := trainer.Run(ctx, trainer.Options{Address: address, Job: job, Steps: steps, OnStep: func(s trainer.Step) {
			for _, row := range s.Rows {
				for _, k := range row.Kept {
					if k.Column == "jpg" && !contains(images, k.Data) {
						t.Errorf("step %d: a picture of %d bytes that is in no tar", s.Step, len(k.Data))
					}
					seen++
				}
			}
		}})
		if err == nil && res.Digest != want {
			t.Errorf("digest %x, want %x", res.Digest, want)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < steps {
		t.Errorf("%d kept values in %d steps", seen, steps)
	}
}

func contains(images [][]byte, image []byte) bool {
	for _, i := range images {
		if bytes.Equal(i, image) {
			return true
		}
	}
	return false
}
