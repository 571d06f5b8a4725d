package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"image"
	"image/jpeg"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/millrace-data/millrace/internal/imaging"
	"github.com/millrace-data/millrace/internal/samples"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/testdata"
)

// The shape of a step of images: one in each of 16 rows, to 2 ranks, which encode
// those of their own rows.
const vlmSpec = `
name: bench-vlm
seed: 1
sources:
  - name: pairs
    files: %q
    long: truncate
    transforms:
      - text: "{txt}"
      - tokenize: bytes
      - image: {columns: jpg, token: 300, patch: 14, merge: 2, min_pixels: 3136, max_pixels: 1003520, decode: %s}
      - append_eod: {}
batch: {sequence_length: 2048, sequences: %d, packing: false}
topology: {dp: 2}
resources: {loader_buffer: 256MiB, constructor_buffer: 64MiB, window: 32, prefetch: 3}
`

const (
	vlmRows   = 16 // images of a step
	vlmWarm   = 2
	vlmSteps  = 10
	vlmShards = 8
	vlmPairs  = 32 // of a shard
)

// vlmGeometry is that of the spec.
var vlmGeometry = imaging.Geometry{Patch: 14, Merge: 2, MinPixels: 3136, MaxPixels: 1003520}

// readPictures returns encoded pictures: real ones of CC12M, or noise of 640 x 480
// without the shared data set.
func readPictures(ctx context.Context) (list [][]byte, origin string, err error) {
	if data, ok := testdata.Find(); ok {
		shard := filepath.Join(data, "shards/webdataset-cc12m/cc12m-train-0000.tar")
		err = eachRecord(ctx, shard, []string{"jpg"}, func(rec *format.Record) error {
			if _, sizeErr := imaging.Size(rec.Values[0].Bytes); sizeErr == nil {
				list = append(list, bytes.Clone(rec.Values[0].Bytes))
			}
			return nil
		})
		return list, fmt.Sprintf("%d real pictures (CC12M)", len(list)), err
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range vlmPairs {
		m := image.NewRGBA(image.Rect(0, 0, 640, 480))
		for i := range m.Pix {
			m.Pix[i] = byte(i/160 + rng.IntN(24))
		}
		var buf bytes.Buffer
		if err := jpeg.Encode(&buf, m, &jpeg.Options{Quality: 90}); err != nil {
			return nil, "", err
		}
		list = append(list, buf.Bytes())
	}
	return list, "synthetic pictures of 640 x 480 (no shared data set)", nil
}

// writePairs writes shards of pictures with a short text each.
func writePairs(dir string, list [][]byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for shard := range vlmShards {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		for i := range vlmPairs {
			for ext, data := range map[string][]byte{"jpg": list[(shard*vlmPairs+i)%len(list)], "txt": []byte("a picture, and what it shows")} {
				header := &tar.Header{Name: fmt.Sprintf("%d-%03d.%s", shard, i, ext), Mode: 0o644, Size: int64(len(data))}
				if err := w.WriteHeader(header); err != nil {
					return err
				}
				if _, err := w.Write(data); err != nil {
					return err
				}
			}
		}
		if err := w.Close(); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.tar", shard)), buf.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// answerBytes is the size of a loader's answer with pictures, encoded or as pixels.
func answerBytes(ctx context.Context, list [][]byte, decoded bool) (int, error) {
	set := samples.Set{Offsets: []int32{0}}
	pool := imaging.NewPool(runtime.GOMAXPROCS(0), nil)
	for _, data := range list {
		p, err := planned(data)
		if err != nil {
			return 0, err
		}
		x := samples.Image{H: int32(p.Grid.H), W: int32(p.Grid.W), SHA: p.SHA, Data: data}
		if decoded {
			one := []imaging.Picture{p}
			if err := pool.Decode(ctx, one, vlmGeometry); err != nil {
				return 0, err
			}
			x.Data, x.Decoded = one[0].Patches, true
		}
		set.Tokens = append(set.Tokens, make([]int32, vlmGeometry.Tokens(p.Grid)+30)...)
		set.Offsets = append(set.Offsets, int32(len(set.Tokens)))
		set.Images = append(set.Images, []samples.Image{x})
	}
	body, err := samples.Encode([]samples.Set{set})
	return len(body), err
}

// planned returns a picture as in a plan.
func planned(data []byte) (imaging.Picture, error) {
	info, err := imaging.Size(data)
	if err != nil {
		return imaging.Picture{}, err
	}
	grid, err := vlmGeometry.Grid(info.Width, info.Height)
	return imaging.Picture{
		Data: data, SHA: sha256.Sum256(data), Grid: grid, Patches: make([]byte, 0, grid.Patches()*vlmGeometry.PatchBytes()),
	}, err
}

// decodeAlone is the ceiling of rates: all pictures, on all cores, to memory.
func decodeAlone(list [][]byte) func(context.Context, int) (sample, error) {
	pool := imaging.NewPool(runtime.GOMAXPROCS(0), nil)
	return func(ctx context.Context, _ int) (sample, error) {
		all := make([]imaging.Picture, len(list))
		for i, data := range list {
			var err error
			if all[i], err = planned(data); err != nil {
				return sample{}, err
			}
		}
		before, begin := selfCPU(), time.Now()
		err := pool.Decode(ctx, all, vlmGeometry)
		n := float64(len(list))
		return sample{n / time.Since(begin).Seconds(), map[string]float64{vlmCPU: 1e3 * (selfCPU() - before).Seconds() / n}}, err
	}
}

// Names of the further measurements.
const (
	vlmCPU   = "cpu ms/image"
	vlmRanks = "KB/image to ranks"
)

// benchVLM goes from pairs of image and text to pixels at ranks, decoded by
// constructors and by loaders.
func benchVLM(ctx context.Context, cfg *config) error {
	list, origin, err := readPictures(ctx)
	if err != nil {
		return err
	}
	dir := filepath.Join(cfg.dir, "vlm")
	if err := writePairs(dir, list); err != nil {
		return err
	}
	cfg.report.title("Images to ranks: %s, %d a step, patches of 14 pixels", origin, vlmRows)
	rows := []measurement{{"decoding alone, all cores", decodeAlone(list)}}
	for _, decode := range []string{"constructor", "loader"} {
		spec := filepath.Join(cfg.dir, "vlm-"+decode+".yaml")
		if err := os.WriteFile(spec, fmt.Appendf(nil, vlmSpec, filepath.Join(dir, "*.tar"), decode, vlmRows), 0o644); err != nil {
			return err
		}
		rows = append(rows, measurement{"end to end, decode: " + decode, vlmService(cfg, spec, "vlm-"+decode)})
	}
	results := make([]result, len(rows))
	for run := range cfg.runs {
		for i, row := range rows {
			s, err := row.once(ctx, run)
			if err != nil {
				return fmt.Errorf("%s: %w", row.name, err)
			}
			results[i].add(s)
		}
	}
	for i, row := range rows {
		results[i].Scenario, results[i].Name, results[i].Unit = "vlm", row.name, "images/s"
	}
	if err := cfg.report.table(results, vlmCPU, vlmRanks); err != nil {
		return err
	}
	return reportAnswers(ctx, cfg, list)
}

// vlmService measures a fresh service.
func vlmService(cfg *config, spec, name string) func(context.Context, int) (sample, error) {
	return func(ctx context.Context, run int) (sample, error) {
		profile, err := cfg.profileOf(name, run)
		if err != nil {
			return sample{}, err
		}
		got, err := serviceRun(ctx, spec, profile, vlmWarm, vlmSteps, nil)
		images := float64(vlmRows * vlmSteps)
		return sample{images / got.Seconds, map[string]float64{
			vlmCPU: 1e3 * (got.ServiceCPU + got.RanksCPU) / images, vlmRanks: float64(got.Received) / 1e3 / images,
		}}, err
	}
}

// reportAnswers reports the bytes of an image between loader and constructor.
func reportAnswers(ctx context.Context, cfg *config, list [][]byte) error {
	var sizes [2]float64
	for i, decoded := range []bool{false, true} {
		size, err := answerBytes(ctx, list, decoded)
		if err != nil {
			return err
		}
		sizes[i] = float64(size) / 1e3 / float64(len(list))
		r := result{Scenario: "vlm", Name: fmt.Sprintf("loader to constructor, decoded: %v", decoded), Unit: "KB/image", Less: true, Values: []float64{sizes[i]}}
		r.summarize()
		if err := cfg.report.json(&r); err != nil {
			return err
		}
	}
	cfg.report.note("Loader to constructor, by image: %.0f KB encoded, %.0f KB as pixels: %.1f times as much.", sizes[0], sizes[1], sizes[1]/sizes[0])
	return nil
}
