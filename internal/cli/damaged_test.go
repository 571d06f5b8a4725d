package cli

import (
	"archive/tar"
	"bytes"
	"fmt"
	"image"
	"image/jpeg"
	"testing"
)

const pairsSpec = `name: pairs
sources:
  - name: pairs
    files: "*.tar"
    shuffle: {enabled: false}
    transforms:
      - text: "{txt}"
      - tokenize: bytes
      - image: {columns: jpg, token: 300, patch: 4, merge: 2, min_pixels: 64, max_pixels: 1024}
batch: {sequence_length: 24, sequences: 4}
topology: {dp: 2}
resources: {prefetch: 2}
`

// putPairs writes a tar of texts and pictures. The pixels of one are cut off, which its
// header does not show.
func putPairs(t testing.TB, dir string, n, damaged int) {
	t.Helper()
	var shard bytes.Buffer
	w := tar.NewWriter(&shard)
	add := func(name string, data []byte) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		m := image.NewGray(image.Rect(0, 0, 48, 48))
		for k := range m.Pix {
			m.Pix[k] = uint8(k * (k%7 + i))
		}
		var picture bytes.Buffer
		if err := jpeg.Encode(&picture, m, nil); err != nil {
			t.Fatal(err)
		}
		data := picture.Bytes()
		if i == damaged {
			data = data[:len(data)*2/3]
		}
		add(fmt.Sprintf("%03d.txt", i), []byte("a"))
		add(fmt.Sprintf("%03d.jpg", i), data)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "pairs.tar", shard.Bytes())
}

// TestDamagedPicture: a job that meets a picture with damaged pixels says which it is and
// what to do; with that, it goes on from its last token.
func TestDamagedPicture(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "job.yaml", pairsSpec)
	putPairs(t, dir, 80, 40)
	millrace(t, dir, "run", "job.yaml", "--steps", "3", "--save-token", "3.token").expect(t, 0)
	millrace(t, dir, "run", "job.yaml", "--resume", "3.token").expect(t, exitUser,
		"step 10: ", `source "pairs"`, "pairs.tar: row 40, image 0", "decoding a jpeg picture of 48 x 48 pixels", "millrace ban", "--changes", "verify: true")
	put(t, dir, "ban.jsonl", `{"step":10,"ban":{"source":"pairs","file":"pairs.tar","row":40}}`+"\n")
	got := millrace(t, dir, "run", "job.yaml", "--resume", "3.token", "--changes", "ban.jsonl", "--steps", "12").digest(t)
	if want := millrace(t, dir, "reference", "job.yaml", "--changes", "ban.jsonl", "--steps", "15").digest(t); got != want {
		t.Errorf("after the ban the job ends with %s, want %s", got, want)
	}
}
