package imaging

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"image"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/internal/testdata"
)

// numbered is a picture whose pixel (x, y) is (x, y, 7).
func numbered(t testing.TB, width, height int) []byte {
	m := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			m.SetRGBA(x, y, color.RGBA{byte(x), byte(y), 7, 255})
		}
	}
	return encodePNG(t, m)
}

func array(t testing.TB, data []byte, s Shape, chance Chance) (values []byte, height, width int) {
	t.Helper()
	var d Decoder
	values, height, width, err := d.AppendArray([]byte("x"), data, &s, chance)
	if err != nil {
		t.Fatal(err)
	}
	size := s.Channels() * height * width
	if s.Float {
		size *= 4
	}
	if values[0] != 'x' || len(values) != 1+size {
		t.Fatalf("%d bytes for %d x %d", len(values), height, width)
	}
	return values[1:], height, width
}

// TestArraySizes has the sizes that torchvision's Resize and CenterCrop give.
func TestArraySizes(t *testing.T) {
	for _, c := range []struct {
		width, height int
		s             Shape
		wide, high    int
	}{
		{40, 30, Shape{}, 40, 30},
		{40, 30, Shape{Resize: "none", Crop: "center", CropHeight: 10, CropWidth: 20}, 20, 10},
		{40, 30, Shape{Resize: "exact", Height: 7, Width: 90}, 90, 7},
		{40, 30, Shape{Resize: "shortest", Height: 20, Width: 20}, 26, 20}, // 26.67, cut
		{30, 40, Shape{Resize: "shortest", Height: 20, Width: 20}, 20, 26},
		{30, 30, Shape{Resize: "shortest", Height: 50, Width: 50}, 50, 50},
		{40, 30, Shape{Resize: "shortest", Height: 20, Width: 20, Crop: "random", CropHeight: 16, CropWidth: 16}, 16, 16},
		{40, 30, Shape{Resize: "within", MaxPixels: 1200}, 40, 30},
		{40, 30, Shape{Resize: "within", MaxPixels: 1199}, 39, 29},
		{40, 30, Shape{Resize: "within", MaxPixels: 300}, 20, 15},
		{200, 1, Shape{Resize: "within", MaxPixels: 10}, 10, 1},
		{40, 30, Shape{Resize: "area", Height: 12, Width: 14, MinArea: 8, MaxArea: 100}, 14, 12},
	} {
		_, height, width := array(t, numbered(t, c.width, c.height), c.s, 1)
		if height != c.high || width != c.wide {
			t.Errorf("%d x %d by %+v: %d x %d, want %d x %d", c.width, c.height, c.s, width, height, c.wide, c.high)
		}
	}
}

// TestArrayValues reads places off the values, in each layout.
func TestArrayValues(t *testing.T) {
	data := numbered(t, 9, 8)
	crop := Shape{Crop: "center", CropHeight: 3, CropWidth: 4} // from (2.5 -> 2, 2.5 -> 2)
	values, _, _ := array(t, data, crop, 1)
	if !slices.Equal(values[:6], []byte{2, 2, 7, 3, 2, 7}) || !slices.Equal(values[33:], []byte{5, 4, 7}) {
		t.Errorf("center: %v", values)
	}
	crop.Planar = true
	planar, _, _ := array(t, data, crop, 1)
	for i := range 12 {
		for c := range 3 {
			if planar[12*c+i] != values[3*i+c] {
				t.Fatalf("channels first: %v", planar)
			}
		}
	}
	mirrored, _, _ := array(t, data, Shape{Crop: "center", CropHeight: 3, CropWidth: 4, Flip: 100}, 1)
	if !slices.Equal(mirrored[:12], []byte{5, 2, 7, 4, 2, 7, 3, 2, 7, 2, 2, 7}) {
		t.Errorf("mirrored: %v", mirrored)
	}
	gray, _, _ := array(t, data, Shape{Gray: true}, 1)
	if want := byte((19595*3 + 38470*5 + 7471*7 + 1<<15) >> 16); gray[5*9+3] != want {
		t.Errorf("gray: %d, want %d", gray[5*9+3], want)
	}
	floats, _, _ := array(t, data, Shape{Float: true, Planar: true, Mean: [3]float64{0.5, 0.25, 0}, Std: [3]float64{0.5, 2, 1}}, 1)
	at := func(i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(floats[4*i:])) }
	if x, y, z := at(5*9+3), at(72+5*9+3), at(144); x != float32((3.0/255-0.5)/0.5) || y != float32((5.0/255-0.25)/2) || z != float32(7.0/255) {
		t.Errorf("floats: %v %v %v", x, y, z)
	}
}

// TestArrayChance: equal chances give equal arrays, others all the places and sides there are,
// each about as often.
func TestArrayChance(t *testing.T) {
	data := numbered(t, 9, 8)
	s := Shape{Crop: "random", CropHeight: 5, CropWidth: 6, Flip: 50}
	places, flipped := map[[2]byte]int{}, 0
	const tries = 1600
	for chance := range Chance(tries) {
		values, _, _ := array(t, data, s, chance*0x12345)
		if again, _, _ := array(t, data, s, chance*0x12345); !slices.Equal(again, values) {
			t.Fatal("the same chance gave another array")
		}
		corner := [2]byte{values[0], values[1]}
		if values[3] < values[0] {
			flipped++
			corner[0] -= 5
		}
		places[corner]++
	}
	if len(places) != 4*4 || flipped < 2*tries/5 || flipped > 3*tries/5 {
		t.Errorf("%d mirrored; places %v", flipped, places)
	}
	for at, n := range places {
		if n < tries/16/2 || n > tries/16*2 {
			t.Errorf("place %v: %d of %d", at, n, tries)
		}
	}
}

// TestArea: the parts have areas and aspects of the whole range, and lie inside.
func TestArea(t *testing.T) {
	s := Shape{Resize: "area", Height: 8, Width: 8, MinArea: 8, MaxArea: 100}
	if aspects[0] != 3<<14 || aspects[32] != 1<<16 || aspects[64] != 87381 {
		t.Errorf("aspects %v", aspects)
	}
	smallest, largest, wide, fallen := 1.0, 0.0, 0, 0
	for seed := range Chance(2000) {
		chance := seed * 0xabcdef
		r, err := s.region(400, 300, &chance)
		if err != nil || r.x < 0 || r.y < 0 || r.x+r.width > 400 || r.y+r.height > 300 {
			t.Fatalf("%+v, %v", r, err)
		}
		area, aspect := float64(r.width*r.height)/120000, float64(r.width)/float64(r.height)
		if aspect < 0.74 || aspect > 1.36 {
			t.Fatalf("aspect %v of %+v", aspect, r)
		}
		smallest, largest = min(smallest, area), max(largest, area)
		if aspect > 1 {
			wide++
		}
		if r.width == 400 {
			fallen++
		}
	}
	if smallest < 0.079 || smallest > 0.1 || largest < 0.9 || largest > 1 || wide < 800 || wide > 1250 {
		t.Errorf("areas %v to %v, %d wide, %d whole", smallest, largest, wide, fallen)
	}
	for _, size := range [][2]int{{1, 200}, {200, 1}, {1, 1}, {3, 2}} {
		chance := Chance(5)
		if r, err := s.region(size[0], size[1], &chance); err != nil || r.width < 1 || r.height < 1 || r.x+r.width > size[0] || r.y+r.height > size[1] {
			t.Errorf("%v: %+v, %v", size, r, err)
		}
	}
}

// TestArrayTurned: pictures that differ in their orientation only give the same array, whatever the shape.
func TestArrayTurned(t *testing.T) {
	dir := filepath.Join(testdata.Dir(t), "images", "exif-orientation")
	files, err := filepath.Glob(filepath.Join(dir, "*.jpg"))
	if err != nil || len(files) != 8 {
		t.Fatal(files, err)
	}
	if testing.Short() {
		files = files[5:6] // turned by a quarter; all eight take long under the race detector
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		info, err := Size(data)
		if err != nil {
			t.Fatal(err)
		}
		var d Decoder
		if err := d.load(data, &formats[0], info); err != nil {
			t.Fatal(err)
		}
		d.upright(info)
		upright := image.NewRGBA(image.Rect(0, 0, info.Width, info.Height))
		for i := range info.Width * info.Height {
			copy(upright.Pix[4*i:], []byte{d.rgb[3*i], d.rgb[3*i+1], d.rgb[3*i+2], 255})
		}
		again := encodeBMP(t, upright) // without compression, which would take long
		for _, s := range []Shape{
			{Resize: "exact", Height: 30, Width: 40}, {Resize: "area", MinArea: 10, MaxArea: 50, Height: 24, Width: 24, Filter: "bilinear"},
			{Resize: "shortest", Height: 40, Width: 40, Crop: "random", CropHeight: 32, CropWidth: 32, Flip: 50},
		} {
			want, _, _ := array(t, again, s, 99)
			if got, _, _ := array(t, data, s, 99); !slices.Equal(got, want) {
				t.Errorf("%s by %+v differs from the upright picture", filepath.Base(file), s)
			}
		}
	}
}

// TestBilinearIsPillows compares with what Image.resize(..., Image.BILINEAR) of Pillow 11.3
// makes of pictures with values (3xx + 5yy + xy + 85c) mod 256.
func TestBilinearIsPillows(t *testing.T) {
	for _, c := range []struct {
		width, height, outWidth, outHeight int
		sha                                string
	}{
		{5, 7, 28, 28, "42c38547d5dc9f36f2ea406c6c854a6e"},
		{100, 60, 56, 28, "8e5b991192c0647d0b1da85d71cd0267"},
		{33, 47, 33, 28, "ec5d46d005ab1bac9ca63fd4ef9d6fb5"},
		{640, 3, 28, 56, "71bccc162168fb5c270cb7f92c2e898a"},
		{61, 200, 280, 84, "fc3ba618c9c8af4079bc0eac41b3b320"},
		{1, 1, 28, 28, "ec3fb9b50d6f2afddc69d955f610b914"},
		{997, 251, 84, 28, "c70e9dd42939ac93976227146d7afb9a"},
	} {
		var d Decoder
		for y := range c.height {
			for x := range c.width {
				for i := range 3 {
					d.rgb = append(d.rgb, byte(3*x*x+5*y*y+x*y+85*i))
				}
			}
		}
		d.resizeColumns(bilinear, c.width, c.height, c.outWidth)
		d.resizeRows(bilinear, c.outWidth, c.height, c.outHeight)
		sum := sha256.Sum256(d.rgb)
		if got := hex.EncodeToString(sum[:16]); got != c.sha {
			t.Errorf("%d x %d to %d x %d: %s, want %s", c.width, c.height, c.outWidth, c.outHeight, got, c.sha)
		}
	}
}

func TestArrayRefused(t *testing.T) {
	data := numbered(t, 40, 30)
	for want, s := range map[string]Shape{
		"resize \"fit\": valid are":     {Resize: "fit"},
		"filter \"lanczos\": valid are": {Filter: "lanczos"},
		"size is 0 x 4 pixels":          {Resize: "exact", Width: 4},
		"max_pixels is 0":               {Resize: "within"},
		"area is 50 to 8 percent":       {Resize: "area", Width: 4, Height: 4, MinArea: 50, MaxArea: 8},
		"crop_at \"left\"":              {Crop: "left"},
		"crop is 9 x 4 pixels, more":    {Resize: "exact", Width: 8, Height: 8, Crop: "center", CropHeight: 9, CropWidth: 4},
		"flip is 101 percent":           {Flip: 101},
		"std has a value":               {Float: true},
		"smaller than the crop":         {Crop: "center", CropHeight: 31, CropWidth: 4},
		"has more than 1199":            {Largest: 1199},
		"would become one of":           {Resize: "shortest", Height: 8192, Width: 8192, Crop: "center", CropHeight: 1, CropWidth: 1},
	} {
		picture := data
		if s.Resize == "shortest" {
			picture = numbered(t, 200, 1)
		}
		out, _, _, err := new(Decoder).AppendArray([]byte("x"), picture, &s, 1)
		refused(t, err, want)
		if string(out) != "x" {
			t.Errorf("%s: %d bytes", want, len(out))
		}
	}
}
