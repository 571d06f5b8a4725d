package service_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/millrace-data/millrace/internal/imaging"
	"github.com/millrace-data/millrace/internal/reference"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/testdata"
	"github.com/millrace-data/millrace/internal/trainer"
	"github.com/millrace-data/millrace/jobspec"
)

const vlmSpec = `
name: vlm
seed: 11
sources:
  - name: pairs
    files: "*.tar"
    transforms:
      - text: "{txt?}"
      - tokenize: bytes
      - image: {columns: [jpg, png], token: 300, begin: 301, end: 302, patch: 4, merge: 2, min_pixels: 64, max_pixels: 1024, decode: DECODE}
      - append_eod: {}
  - name: albums
    files: albums.parquet
    long: truncate
    transforms:
      - text: "{caption}"
      - tokenize: bytes
      - image: {columns: images, token: 300, patch: 4, merge: 2, min_pixels: 64, max_pixels: 512, decode: DECODE}
  - {name: words, files: "text/*.txt"}
mix: {weights: {pairs: 0.5, albums: 0.3, words: 0.2}}
batch: {sequence_length: 96, sequences: 8, microbatch_size: 2}
topology: {TOPOLOGY}
output: {format: FORMAT}
STRATEGY
`

const encodersOverWorld = "strategy: [graph: image, distribute: world, cost: {expression: patches * patches + 50 * patches}, balance: {}]"

// picture makes an encoded picture of noise over a slope.
func picture(t testing.TB, rng *rand.Rand, width, height int, format string) []byte {
	t.Helper()
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			m.SetNRGBA(x, y, color.NRGBA{uint8(3*x + rng.IntN(40)), uint8(5*y + rng.IntN(40)), uint8(rng.IntN(256)), 255})
		}
	}
	var buf bytes.Buffer
	var err error
	if format == "png" {
		err = png.Encode(&buf, m)
	} else {
		err = jpeg.Encode(&buf, m, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// member is a file of a tar.
type member struct {
	name string
	data []byte
}

func writeTar(t testing.TB, path string, members []member) {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, m := range members {
		if err := w.WriteHeader(&tar.Header{Name: m.name, Mode: 0o644, Size: int64(len(m.data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(m.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, buf.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// writePictures makes sources with images of many sizes: pairs of which some have no
// image, or two; albums with none to three; and text.
func writePictures(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(4, 4))
	side := func() int { return 3 + rng.IntN(40) }
	for shard := range 3 {
		var members []member
		for i := range 25 {
			key := fmt.Sprintf("%d-%03d", shard, i)
			if i%5 != 4 { // the others have an image and no text
				members = append(members, member{key + ".txt", []byte(words(rng, rng.IntN(9)))})
			}
			if i%4 != 1 {
				members = append(members, member{key + ".jpg", picture(t, rng, side(), side(), "jpg")})
			}
			if i%3 == 0 {
				members = append(members, member{key + ".png", picture(t, rng, side(), side(), "png")})
			}
		}
		writeTar(t, filepath.Join(dir, fmt.Sprintf("%d.tar", shard)), members)
	}
	type album struct {
		Caption string   `parquet:"caption"`
		Images  [][]byte `parquet:"images,list"`
	}
	var albums []album
	for range 40 {
		a := album{Caption: words(rng, 1+rng.IntN(12))}
		for range rng.IntN(4) {
			a.Images = append(a.Images, picture(t, rng, side(), side(), "jpg"))
		}
		albums = append(albums, a)
	}
	if err := parquet.WriteFile(filepath.Join(dir, "albums.parquet"), albums, parquet.MaxRowsPerRowGroup(16)); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		write(t, filepath.Join(dir, "text", fmt.Sprintf("%d.txt", i)), words(rng, 40))
	}
	return dir
}

// vlm is a way to write the job. None may change a byte, but for the topology and
// the format, which decide who gets it and how.
type vlm struct{ decode, topology, format, strategy string }

func (v vlm) spec() string {
	return strings.NewReplacer("DECODE", v.decode, "TOPOLOGY", v.topology, "FORMAT", v.format, "STRATEGY", v.strategy).Replace(vlmSpec)
}

func (v vlm) job(t testing.TB, dir string) *jobspec.Job { return parse(t, dir, v.spec()) }

// delivered is what a step must be: its digest, and the SHA-256 of the pixels of each
// image, in the order of rows.
type delivered struct {
	digest [32]byte
	pixels [][][32]byte
}

// expect has the reference read a job and decodes its images itself.
func expect(t testing.TB, job *jobspec.Job, steps int64) (want []delivered, images int) {
	t.Helper()
	geometries := map[string]imaging.Geometry{}
	for _, s := range job.Sources {
		if x := s.Images(); x != nil {
			geometries[s.Name] = imaging.Geometry{Patch: x.Patch, Merge: x.Merge, MinPixels: x.MinPixels, MaxPixels: x.MaxPixels}
		}
	}
	_, _, err := reference.Read(t.Context(), store.Local{}, job, nil, steps, func(s *reference.Step) error {
		d := delivered{digest: s.Digest}
		for r, row := range s.Rows {
			var list [][32]byte
			for _, x := range row.Images {
				p, err := imaging.Decode(x.Data, geometries[s.Places[r][x.Document].Source])
				if err != nil {
					return err
				}
				list = append(list, sha256.Sum256(p.Patches))
				images++
			}
			d.pixels = append(d.pixels, list)
		}
		want = append(want, d)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return want, images
}

// checkStep compares a delivered step with what it must be.
func checkStep(t testing.TB, s trainer.Step, want []delivered) {
	t.Helper()
	w := want[s.Step]
	if s.Digest != w.digest {
		t.Errorf("step %d: digest %x, want %x", s.Step, s.Digest, w.digest)
	}
	for r, row := range s.Rows {
		if len(row.Images) != len(w.pixels[r]) {
			t.Errorf("step %d, row %d: %d images, want %d", s.Step, r, len(row.Images), len(w.pixels[r]))
			continue
		}
		for i, x := range row.Images {
			if sha256.Sum256(x.Data) != w.pixels[r][i] {
				t.Errorf("step %d, row %d, image %d of %d x %d patches: other pixels than the reference's", s.Step, r, i, x.H, x.W)
			}
		}
	}
}

// TestVLM feeds images, decoded by loaders or constructors, to encoders that the
// strategy chose or did not, from one or more roles: every batch is the reference's,
// to the pixel.
func TestVLM(t *testing.T) {
	dir := writePictures(t)
	const steps = 10
	const mesh = "dp: 2, cp: 2, pp: 2"
	want, images := expect(t, vlm{"constructor", mesh, "megatron", ""}.job(t, dir), steps)
	if images < 5*steps {
		t.Fatalf("%d images in %d steps: the test is about none", images, steps)
	}
	for _, decode := range []string{"constructor", "loader"} {
		for _, strategy := range []string{"", encodersOverWorld} {
			for _, loaders := range []int{1, 2} {
				for _, constructors := range []int{1, 2} {
					if testing.Short() && loaders != constructors {
						continue
					}
					name := fmt.Sprintf("decode=%s balanced=%v loaders=%d constructors=%d", decode, strategy != "", loaders, constructors)
					t.Run(name, func(t *testing.T) {
						spec := vlm{decode, mesh, "megatron", strategy}.spec()
						if loaders == 2 { // which keep nothing in memory
							spec += "\nresources: {loader_buffer: 1}\n"
						}
						job := parse(t, dir, spec)
						opts := service.Options{Job: job, Loaders: loaders, Constructors: constructors}
						_, encoders := serveVLM(t, opts, steps, nil, want)
						if balanced := strategy != ""; balanced && encoders < 5*steps || !balanced && encoders > 2*steps {
							t.Errorf("in %d steps of 8 ranks, %d ranks had images to encode", steps, encoders)
						}
					})
				}
			}
		}
	}
}

// TestVLMRowsByImages: rows that are evened by what their images cost hold what the
// reference says.
func TestVLMRowsByImages(t *testing.T) {
	dir := writePictures(t)
	const steps = 6
	for _, cost := range []string{"tokens + 3 * patches * patches", "tokens + 1000 * images"} {
		job := vlm{"constructor", "dp: 2", "megatron", "strategy: [distribute: dp, cost: {expression: " + cost + "}, balance: {level: interleaved}]"}.job(t, dir)
		want, _ := expect(t, job, steps)
		serveVLM(t, service.Options{Job: job}, steps, nil, want)
	}
}

// serveVLM runs a service from a token for some steps. It returns the token after
// them, and the sum over steps of the ranks that encoded an image.
func serveVLM(t testing.TB, opts service.Options, steps int64, token []byte, want []delivered, also ...func(trainer.Step)) (next []byte, encoders int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runTime)
	defer cancel()
	err := service.Run(ctx, opts, func(ctx context.Context, address string) error {
		res, err := trainer.Run(ctx, trainer.Options{Address: address, Job: opts.Job, Steps: steps, Token: token, OnStep: func(s trainer.Step) {
			checkStep(t, s, want)
			for _, check := range also {
				check(s)
			}
			encoders += s.Encoders
		}})
		if err == nil {
			next = res.Token
			if res.Next-res.First != steps {
				t.Errorf("%d steps, want %d", res.Next-res.First, steps)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return next, encoders
}

// TestVLMResume stops in the middle, and goes on in another service with another
// decoder, strategy and number of roles.
func TestVLMResume(t *testing.T) {
	dir := writePictures(t)
	before, after := vlm{"loader", "dp: 2, pp: 2", "hf", ""}, vlm{"constructor", "dp: 2, pp: 2", "hf", encodersOverWorld}
	want, _ := expect(t, before.job(t, dir), 12)
	token, _ := serveVLM(t, service.Options{Job: before.job(t, dir), Loaders: 2}, 5, nil, want)
	serveVLM(t, service.Options{Job: after.job(t, dir), Constructors: 2}, 7, token, want)
}

// TestVLMProcesses sends images over the wire, from loaders to constructors of other
// processes.
func TestVLMProcesses(t *testing.T) {
	dir := writePictures(t)
	for _, decode := range []string{"constructor", "loader"} {
		v := vlm{decode, "dp: 2, cp: 2, pp: 2", "megatron", encodersOverWorld}
		job, spec := v.job(t, dir), filepath.Join(dir, decode+".yaml")
		write(t, spec, v.spec())
		want, _ := expect(t, job, 6)
		opts := service.Options{Job: job, Loaders: 2, Constructors: 2, Executable: binary(t), SpecFile: spec, Stderr: os.Stderr}
		serveVLM(t, opts, 6, nil, want)
	}
}

// TestVLMFormats delivers images beside every format of batches, and on other meshes.
func TestVLMFormats(t *testing.T) {
	dir := writePictures(t)
	for _, v := range []vlm{
		{"constructor", "dp: 2, cp: 2", "megatron-thd, cp_slicing: zigzag, document_multiple: 4", encodersOverWorld},
		{"constructor", "dp: 1, pp: 2, tp: 2", "hf", encodersOverWorld},
		{"constructor", "dp: 2, cp: 2", "torchtitan, cp_slicing: none", ""},
		{"constructor", "dp: 2, cp: 2", "hf", "strategy: [graph: {of: image, sources: pairs}, distribute: world, cost: {expression: patches}, balance: {}, " +
			"graph: image, distribute: {axis: world, group_size: 3, last_group: smaller}, cost: {expression: patches * patches}, balance: lpt]"},
		{"constructor", "dp: 2, cp: 2", "megatron", "strategy: [graph: {of: image, sources: albums}, distribute: cp, cost: {expression: patches}, balance: {}]"},
		{"constructor", "dp: 4, tp: 2, order: [dp, tp, cp, pp]", "jax, broadcast_at: tp", "strategy: [graph: image, distribute: pp]"},
	} {
		t.Run(v.format+" "+v.topology, func(t *testing.T) {
			job := v.job(t, dir)
			want, _ := expect(t, job, 6)
			serveVLM(t, service.Options{Job: job}, 6, nil, want)
		})
	}
}

const realVLM = `
name: real
sources:
  - name: cc12m
    files: DATA/shards/webdataset-cc12m/*.tar
    transforms:
      - text: "{txt}"
      - tokenize: bytes
      - image: {columns: jpg, token: 300, begin: 301, end: 302, max_pixels: 50176}
      - append_eod: {}
  - name: albums
    files: DATA/parquet/images-in-parquet/*.parquet
    transforms:
      - text: "{text}"
      - tokenize: bytes
      - image: {columns: image_bytes, token: 300, max_pixels: 50176, verify: true}
      - append_eod: {}
mix: {weights: {cc12m: 0.8, albums: 0.2}}
batch: {sequence_length: 1024, sequences: 4}
topology: {dp: 2, pp: 2}
strategy: [graph: image, distribute: world, cost: {expression: patches}, balance: {}]
resources: {window: 8, prefetch: 2}
`

// TestRealVLM reads real pictures: CC12M's in a tar, and lists of them in Parquet.
func TestRealVLM(t *testing.T) {
	if testing.Short() {
		t.Skip("it decodes real pictures for half a minute under the race detector, without a goroutine that TestVLM has not")
	}
	job := parse(t, t.TempDir(), strings.ReplaceAll(realVLM, "DATA", testdata.Dir(t)))
	const steps = 3
	want, images := expect(t, job, steps)
	if images < 12 {
		t.Fatalf("%d images", images)
	}
	serveVLM(t, service.Options{Job: job, Loaders: 2, Constructors: 2}, steps, nil, want)
}
