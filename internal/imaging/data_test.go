package imaging

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/testdata"
)

// TestListedSizes compares with the listed sizes of two sets of photographs, and
// decodes every eighth of them.
func TestListedSizes(t *testing.T) {
	dir := filepath.Join(testdata.Dir(t), "images")
	var d Decoder
	for list, count := range map[string]int{"coco-captions/captions.jsonl": 79, "imagenet-samples/labels.jsonl": 76} {
		f, err := os.Open(filepath.Join(dir, list))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		n := 0
		for ; lines.Scan(); n++ {
			var want struct {
				FileName      string `json:"file_name"`
				Width, Height int
			}
			if err := json.Unmarshal(lines.Bytes(), &want); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(filepath.Join(dir, filepath.Dir(list), want.FileName))
			if err != nil {
				t.Fatal(err)
			}
			info, err := Size(data)
			if err != nil || info.Width != want.Width || info.Height != want.Height {
				t.Errorf("%s: %+v, %v; listed as %d x %d", want.FileName, info, err, want.Width, want.Height)
			}
			planned, err := qwen.Grid(info.Width, info.Height)
			if err != nil {
				t.Error(want.FileName, err)
			}
			if n%(8*step) > 0 {
				continue
			}
			patches, grid, err := d.AppendPatches(nil, data, qwen)
			if err != nil || grid != planned || len(patches) != planned.Patches()*qwen.PatchBytes() {
				t.Errorf("%s: %d bytes of %v, %v; planned %v", want.FileName, len(patches), grid, err, planned)
			}
		}
		if lines.Err() != nil || n != count {
			t.Errorf("%s: %d pictures, %v; want %d", list, n, lines.Err(), count)
		}
	}
}

// TestOrientations checks that the eight pictures of one scene decode alike.
func TestOrientations(t *testing.T) {
	dir := filepath.Join(testdata.Dir(t), "images", "exif-orientation")
	g := Geometry{Patch: 16, Merge: 1, MinPixels: 0, MaxPixels: 64 * 64}
	var first *Pixels
	for i := 1; i <= 8; i += step {
		data, err := os.ReadFile(filepath.Join(dir, "Portrait_"+string(rune('0'+i))+".jpg"))
		if err != nil {
			t.Fatal(err)
		}
		info, err := Size(data)
		if err != nil || info.Orientation != i || info.Width >= info.Height {
			t.Errorf("%d: %+v, %v; want a portrait of orientation %d", i, info, err, i)
		}
		p, err := Decode(data, g)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = p
		}
		sum := 0
		for j, v := range p.Patches {
			diff := int(v) - int(first.Patches[j])
			sum += max(diff, -diff)
		}
		if mean := float64(sum) / float64(len(p.Patches)); p.Grid != first.Grid || mean > 6 {
			t.Errorf("%d: grid %v, mean difference to the first %.1f levels: turned another way", i, p.Grid, mean)
		}
	}
}

// unreadable are the odd pictures that are refused, and why.
var unreadable = map[string]string{
	"decompression_bomb.gif":         "frame bounds larger than image bounds", // a frame of another size than the screen
	"hopper_rle8.bmp":                "compression 1",                         // run lengths
	"hopper_rle8_grayscale.bmp":      "compression 1",
	"hopper_rle8_row_overflow.bmp":   "compression 1",
	"issue_2811.gif":                 "pixel size in decode out of range", // 11 bits a pixel
	"no_palette.gif":                 "no color table",
	"ultrahdr.jpg":                   "Huffman",  // cut off: Pillow refuses it too
	"unknown_compression_method.png": "checksum", // a deliberately damaged copy
}

// TestOddFormats decodes a collection of unusual pictures: all but the listed ones.
func TestOddFormats(t *testing.T) {
	dir := testdata.Dir(t)
	var files []string
	for _, set := range []string{"odd-formats", "scikit-image"} {
		found, err := filepath.Glob(filepath.Join(dir, "images", set, "*"))
		if err != nil || len(found) == 0 {
			t.Fatal(set, err)
		}
		files = append(files, found...)
	}
	met := 0
	for i, file := range files {
		why, listed := unreadable[filepath.Base(file)]
		if !listed && i%step > 0 {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, err = decodeBounded(t, file, data)
		switch {
		case listed:
			met++
			refused(t, err, why)
		case err != nil && strings.Contains(err.Error(), "longer than 200 times"):
			t.Logf("%s: %v", filepath.Base(file), err)
		case err != nil:
			t.Errorf("%s: %v", filepath.Base(file), err)
		}
	}
	if met != len(unreadable) {
		t.Errorf("%d of %d listed pictures are here", met, len(unreadable))
	}
}

// TestOddOrientations checks EXIF in WebP and JPEG of other writers. All show the same
// picture of 128 x 128 or a rectangle.
func TestOddOrientations(t *testing.T) {
	dir := filepath.Join(testdata.Dir(t), "images", "odd-formats")
	for name, want := range map[string]Info{
		"hopper_orientation_3.webp": {128, 128, "webp", 3},
		"hopper_orientation_5.webp": {128, 128, "webp", 5},
		"hopper_orientation_6.webp": {128, 128, "webp", 6},
		"hopper_orientation_7.webp": {128, 128, "webp", 7},
		"hopper_orientation_8.webp": {128, 128, "webp", 8},
		"hopper_orientation_3.jpg":  {128, 128, "jpeg", 3},
		"hopper_orientation_8.jpg":  {128, 128, "jpeg", 8},
		"flower.webp":               {480, 360, "webp", 1},
		"hopper_resized.gif":        {64, 64, "gif", 1},
	} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Size(data); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
	}
}
