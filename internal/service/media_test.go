package service_test

import (
	"bytes"
	"context"
	le "encoding/binary"
	"fmt"
	"image"
	"image/png"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-data/millrace/internal/reference"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/trainer"
)

// media has pictures that are cropped and mirrored by chance, and sounds that are resampled
// and take as many tokens as they are long; records with damaged ones are left out.
const media = "\n" + `  - name: media
    files: media/*.tar
    chunk_bytes: 20000
    keep: [jpg, png, wav]
    transforms:
      - pixels: {column: jpg, resize: shortest, size: 20, crop: [16, 12], crop_at: random, flip: 50, dtype: float32, mean: [0.5, 0.4, 0.3], std: 0.25, layout: chw}
      - pixels: {column: png, resize: area, size: 9, filter: bilinear, channels: gray}
      - text: "{txt}"
      - tokenize: bytes
      - waveform: {column: wav, rate: 11025, token: 301, begin: 302, samples_per_token: 40}
      - append_eod: {}
    long: {rule: split, max: 200}
    bad_records: skip`

// sound is a WAV file of noise.
func sound(rng *rand.Rand, rate, samples int) []byte {
	b := []byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00")
	b = le.LittleEndian.AppendUint32(b, uint32(rate))
	b = le.LittleEndian.AppendUint32(b, uint32(2*rate))
	b = append(b, 2, 0, 16, 0)
	b = le.LittleEndian.AppendUint32(append(b, "data"...), uint32(2*samples))
	for range samples {
		b = le.LittleEndian.AppendUint16(b, uint16(rng.Uint32()))
	}
	return b
}

// writeMedia writes shards of records with a text and mostly a picture, or two, and a sound.
func writeMedia(t testing.TB, dir string, rng *rand.Rand) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for shard := range 2 {
		var members []member
		for i := range 40 {
			key := fmt.Sprintf("%d-%03d", shard, i)
			members = append(members, member{key + ".txt", []byte(words(rng, 1+rng.IntN(60)))})
			if i%7 != 3 {
				members = append(members, member{key + ".jpg", picture(t, rng, 16+rng.IntN(40), 16+rng.IntN(40), "jpg")})
			}
			if i%3 == 0 {
				members = append(members, member{key + ".png", picture(t, rng, 3+rng.IntN(40), 3+rng.IntN(40), "png")})
			}
			switch {
			case i%20 == 9:
				members = append(members, member{key + ".wav", []byte("RIFF0000WAVE")})
			case i%2 == 0:
				members = append(members, member{key + ".wav", sound(rng, []int{8000, 11025, 16000}[rng.IntN(3)], 1+rng.IntN(4000))})
			}
		}
		writeTar(t, filepath.Join(dir, fmt.Sprintf("%d.tar", shard)), members)
	}
}

// sounds are files of their own, each with a text beside it, some with more, and some without.
const sounds = "\n" + `  - name: sounds
    files: files/*.wav
    chunk_bytes: 20000
    keep: [wav, json.speaker, name]
    transforms:
      - text: "{__key__}: {txt?}"
      - tokenize: bytes
      - waveform: {column: wav, rate: 8000, dtype: int16, token: 301, samples_per_token: 40}
      - append_eod: {}
    bad_records: skip`

// writeFiles writes sounds of their own.
func writeFiles(t testing.TB, dir string, rng *rand.Rand) {
	t.Helper()
	for i := range 60 {
		name := filepath.Join(dir, fmt.Sprintf("s.%03d", i))
		data := sound(rng, 8000, 1+rng.IntN(4000))
		if i%20 == 9 {
			data = data[:30]
		}
		write(t, name+".wav", string(data))
		if i%5 != 2 {
			write(t, name+".txt", words(rng, 1+rng.IntN(40)))
		}
		if i%3 == 0 {
			write(t, name+".json", fmt.Sprintf(`{"speaker": "s%d"}`, i))
		}
	}
}

const plainMedia = `
name: media
sources:
  - name: pairs
    files: "*.tar"
    keep: [png, wav]
    transforms: [{pixels: png}, {text: "{txt}"}, {tokenize: bytes}, {waveform: {column: wav, rate: 8000, dtype: int16}}]
batch: {sequence_length: 64, sequences: 4}
topology: {dp: 2, pp: 2}
`

// TestMedia: what trainers get is, behind the header of an array, the pixels and the samples that
// were written.
func TestMedia(t *testing.T) {
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(3, 9))
	var members []member
	want := map[string]bool{}
	for i := range 30 {
		key := fmt.Sprintf("%03d", i)
		m := image.NewNRGBA(image.Rect(0, 0, 1+rng.IntN(9), 1+rng.IntN(9)))
		var rgb []byte
		for p := 0; p < len(m.Pix); p += 4 {
			c := []byte{byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32()), 255}
			copy(m.Pix[p:], c)
			rgb = append(rgb, c[:3]...)
		}
		var file bytes.Buffer
		if err := png.Encode(&file, m); err != nil {
			t.Fatal(err)
		}
		wav := sound(rng, 8000, 1+rng.IntN(500))
		want[fmt.Sprintf("'|u1' (%d, %d, 3) %x", m.Rect.Dy(), m.Rect.Dx(), rgb)] = true
		want[fmt.Sprintf("'<i2' (%d,) %x", len(wav[44:])/2, wav[44:])] = true
		members = append(members, member{key + ".txt", []byte(words(rng, 1+rng.IntN(9)))}, member{key + ".png", file.Bytes()}, member{key + ".wav", wav})
	}
	writeTar(t, filepath.Join(dir, "pairs.tar"), members)
	job := parse(t, dir, plainMedia)
	_, digest, err := reference.Read(t.Context(), store.Local{}, job, nil, 8, nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	var said bytes.Buffer
	job.Resources.LoaderBuffer = 1 // each picture, and each sound, is decoded alone
	log := slog.New(slog.NewTextHandler(&locked{to: &said}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	err = service.Run(t.Context(), service.Options{Job: job, Log: log}, func(ctx context.Context, address string) error {
		res, err := trainer.Run(ctx, trainer.Options{Address: address, Job: job, Steps: 8, OnStep: func(s trainer.Step) {
			for _, row := range s.Rows {
				for _, k := range row.Kept {
					seen++
					if got := arrayWords(k.Data); !want[got] {
						t.Errorf("step %d: column %s is %.200s", s.Step, k.Column, got)
					}
				}
			}
		}})
		if err == nil && res.Digest != digest {
			t.Errorf("digest %x, want %x", res.Digest, digest)
		}
		return err
	})
	if err != nil || seen < 60 {
		t.Errorf("%d arrays, %v", seen, err)
	}
	if n := strings.Count(said.String(), "more memory to decode"); n != 1 {
		t.Errorf("it is said %d times that files are decoded alone:\n%s", n, said.String())
	}
}

// locked is written to by one at a time.
type locked struct {
	mu sync.Mutex
	to io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(p)
}

// arrayWords is the type, the shape and the values of an array.
func arrayWords(file []byte) string {
	if len(file) < 10 || !bytes.HasPrefix(file, []byte("\x93NUMPY\x01\x00")) {
		return fmt.Sprintf("%q", file)
	}
	at := 10 + int(le.LittleEndian.Uint16(file[8:]))
	header := strings.NewReplacer("{'descr': ", "", ", 'fortran_order': False, 'shape':", "", ", }", "").Replace(strings.TrimSpace(string(file[10:at])))
	return fmt.Sprintf("%s %x", header, file[at:])
}

// converted is a job whose sounds and videos go through FFmpeg; some are damaged.
const converted = `
name: converted
sources:
  - name: talk
    files: converted/*.tar
    chunk_bytes: 20000
    keep: [mp3, mkv, avi]
    transforms:
      - convert: mp3
      - convert: {column: mkv, to: frames, every: 3, max_frames: 4}
      - pixels: {column: mkv, resize: shortest, size: 16, crop: 12, crop_at: random, flip: 50}
      - probe: avi
      - filter: avi == null or avi.seconds > 0.5
      - frames: {column: avi, uniform: 3, from: 0.2, resize: shortest, size: 16, crop: 12, crop_at: random, flip: 50}
      - tokenize: bytes
      - waveform: {column: mp3, rate: 8000, dtype: int16, token: 301, samples_per_token: 400}
      - append_eod: {}
    bad_records: skip
mix: {epochs: 2}
batch: {sequence_length: 32, sequences: 4}
topology: {dp: 2, pp: 2}
`

// TestConvert: what FFmpeg makes is the same for whoever reads it, and when.
func TestConvert(t *testing.T) {
	ffmpeg, err := exec.LookPath("ffmpeg")
	if err != nil {
		t.Skip("ffmpeg is not in PATH (apt-get install ffmpeg)")
	}
	dir := t.TempDir()
	made := func(name string, args ...string) []byte {
		file := filepath.Join(t.TempDir(), name)
		if out, err := exec.Command(ffmpeg, append(append([]string{"-v", "error", "-f", "lavfi"}, args...), file)...).CombinedOutput(); err != nil {
			t.Fatalf("%s", out)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	if err := os.MkdirAll(filepath.Join(dir, "converted"), 0o755); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(8, 1))
	{
		var members []member
		for i := range 6 {
			key := fmt.Sprint(i)
			members = append(members, member{key + ".txt", []byte(words(rng, 1+rng.IntN(9)))})
			if i%3 != 2 {
				members = append(members, member{key + ".mp3", made("a.mp3", "-i", fmt.Sprintf("sine=%d:d=0.%d", 200+rng.IntN(900), 1+rng.IntN(8)), "-ar", "22050", "-b:a", "32k")})
			}
			if i%2 == 0 {
				members = append(members, member{key + ".mkv", made("v.mkv", "-i", fmt.Sprintf("testsrc=s=%dx32:r=10:d=1.%d", 24+2*rng.IntN(9), rng.IntN(9)), "-c:v", "mpeg4")})
			}
			if i%3 == 1 {
				members = append(members, member{key + ".avi", made("v.avi", "-i", fmt.Sprintf("testsrc=s=%dx32:r=10:d=0.%d", 24+2*rng.IntN(9), 3+i), "-c:v", "mpeg4")})
			}
			if i == 5 {
				members = append(members, member{key + ".mkv", []byte("no video at all")})
			}
		}
		writeTar(t, filepath.Join(dir, "converted", "a.tar"), members)
	}
	job := parse(t, dir, converted)
	const steps = 2
	job.Resources.Prefetch = 1
	skipped, arrays := 0, 0
	_, want, err := reference.ReadWith(t.Context(), store.Local{}, program, job, nil, steps, func(s *reference.Step) error {
		skipped += len(s.Skipped)
		for _, row := range s.Rows {
			arrays += len(row.Kept)
		}
		return nil
	})
	if err != nil || skipped == 0 || arrays < steps {
		t.Fatalf("%d records left out, %d arrays, %v", skipped, arrays, err)
	}
	for _, buffer := range []int64{job.Resources.LoaderBuffer, 48 << 20, 1} { // children side by side, two or so, and each alone
		if !long && buffer == 48<<20 || testing.Short() && buffer == 1 {
			continue
		}
		job.Resources.LoaderBuffer = buffer
		err = service.Run(t.Context(), service.Options{Job: job, Loaders: 2, Functions: open}, func(ctx context.Context, address string) error {
			res, err := trainer.Run(ctx, trainer.Options{Address: address, Job: job, Steps: steps})
			if err == nil && res.Digest != want {
				t.Errorf("%d bytes: digest %x, want %x", buffer, res.Digest, want)
			}
			return err
		})
		if err != nil {
			t.Error(buffer, err)
		}
	}
}
