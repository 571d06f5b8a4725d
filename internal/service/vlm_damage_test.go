package service_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/trainer"
)

const damagedSpec = `
name: damaged
sources:
  - name: pairs
    files: "*.tar"
    transforms:
      - text: "{txt}"
      - tokenize: bytes
      - image: {columns: [jpg, png], token: 300, patch: 4, merge: 2, min_pixels: 64, max_pixels: 1024, max_images: 1, decode: DECODE, verify: VERIFY}
    bad_records: POLICY
batch: {sequence_length: 24, sequences: 4}
topology: {dp: 2, pp: 2}
`

// damaged is a way to spoil the record of a pair.
type damaged struct {
	name    string
	members func(t testing.TB, rng *rand.Rand, key string) []member
	want    string // in the error of a job that stops at it
	late    bool   // the header is fine: it is found when pixels are made
}

var spoiled = []damaged{
	{"the header claims another size", func(t testing.TB, rng *rand.Rand, key string) []member {
		data := picture(t, rng, 20, 20, "png")
		copy(data[16:], []byte{0, 0, 16, 0, 0, 0, 16, 0})
		return []member{{key + ".png", data}}
	}, "than a file of", false},
	{"cut off in the header", func(t testing.TB, rng *rand.Rand, key string) []member {
		return []member{{key + ".jpg", picture(t, rng, 20, 20, "jpg")[:60]}}
	}, `column "jpg"`, false},
	{"no format", func(t testing.TB, rng *rand.Rand, key string) []member {
		return []member{{key + ".jpg", []byte("not a picture at all")}}
	}, "not a known picture format", false},
	{"too many", func(t testing.TB, rng *rand.Rand, key string) []member {
		return []member{{key + ".jpg", picture(t, rng, 9, 9, "jpg")}, {key + ".png", picture(t, rng, 9, 9, "png")}}
	}, "more than 1 images", false},
	{"cut off in the pixels", func(t testing.TB, rng *rand.Rand, key string) []member {
		data := picture(t, rng, 60, 60, "jpg")
		return []member{{key + ".jpg", data[:len(data)*2/3]}}
	}, "decoding a jpeg picture of 60 x 60 pixels", true},
}

// writeDamaged makes a shard of pairs of which one is spoiled.
func writeDamaged(t testing.TB, d damaged) string {
	t.Helper()
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(6, 6))
	var members []member
	for i := range 30 {
		key := fmt.Sprintf("%03d", i)
		members = append(members, member{key + ".txt", []byte(words(rng, 1)[:1])})
		if i == 17 {
			members = append(members, d.members(t, rng, key)...)
		} else {
			members = append(members, member{key + ".jpg", picture(t, rng, 8+rng.IntN(20), 8+rng.IntN(20), "jpg")})
		}
	}
	writeTar(t, filepath.Join(dir, "pairs.tar"), members)
	return dir
}

func damagedJob(decode, verify, policy string) string {
	return strings.NewReplacer("DECODE", decode, "VERIFY", verify, "POLICY", policy).Replace(damagedSpec)
}

// TestDamagedImages: a job that stops at a bad record names it, one that skips goes on
// with what the reference has, and damage that headers do not show stops the job, with
// the record's place, unless images are verified.
func TestDamagedImages(t *testing.T) {
	for _, d := range spoiled {
		t.Run(d.name, func(t *testing.T) {
			dir := writeDamaged(t, d)
			for _, decode := range []string{"constructor", "loader"} {
				for _, verify := range []string{"false", "true"} {
					mustStop(t, dir, damagedJob(decode, verify, "stop"), d)
					if late := d.late && verify == "false"; late {
						mustStop(t, dir, damagedJob(decode, verify, "skip"), d)
						continue
					}
					job := parse(t, dir, damagedJob(decode, verify, "skip"))
					want, _ := expect(t, job, 6)
					serveVLM(t, service.Options{Job: job}, 6, nil, want)
				}
			}
		})
	}
}

// mustStop runs a job into its damaged image.
func mustStop(t *testing.T, dir, spec string, d damaged) {
	t.Helper()
	job := parse(t, dir, spec)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := service.Run(ctx, service.Options{Job: job, Constructors: 2}, func(ctx context.Context, address string) error {
		_, err := trainer.Run(ctx, trainer.Options{Address: address, Job: job, Steps: 40})
		return err
	})
	if err == nil || fault.ClassOf(err) != fault.User {
		t.Fatalf("class %v: %v", fault.ClassOf(err), err)
	}
	for _, want := range []string{`source "pairs"`, "pairs.tar", "row 17", d.want} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

// TestLongImages: records whose placeholders are longer than a row are counted and
// left out.
func TestLongImages(t *testing.T) {
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(8, 8))
	var members []member
	for i := range 20 {
		side := 8
		if i%4 == 0 {
			side = 100
		}
		members = append(members, member{fmt.Sprintf("%d.txt", i), []byte("a")}, member{fmt.Sprintf("%d.jpg", i), picture(t, rng, side, side, "jpg")})
	}
	writeTar(t, filepath.Join(dir, "pairs.tar"), members)
	job := parse(t, dir, strings.ReplaceAll(damagedJob("constructor", "false", "stop"), "sequence_length: 24", "sequence_length: 15"))
	want, images := expect(t, job, 5)
	if images < 5 {
		t.Fatal("no image is short enough")
	}
	for _, step := range want {
		for _, row := range step.pixels {
			if len(row) > 15 {
				t.Errorf("%d images in a row of 15 tokens", len(row))
			}
		}
	}
	serveVLM(t, service.Options{Job: job}, 5, nil, want)
}
