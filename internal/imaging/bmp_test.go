package imaging

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/image/bmp"

	"github.com/millrace-data/millrace/internal/testdata"
)

// maskedBMP writes a BMP of one row, from the top, with the words of its pixels.
func maskedBMP(info, depth, compression int, masks []uint32, gap int, words ...uint32) []byte {
	var b bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			binary.Write(&b, binary.LittleEndian, v) // a buffer's Write never fails
		}
	}
	head := 14 + info
	if info == 40 {
		head += 4 * len(masks)
	}
	put([]byte("BM"), uint32(0), uint32(0), uint32(head+gap))
	put(uint32(info), int32(len(words)), int32(-1), uint16(1), uint16(depth), uint32(compression), make([]byte, 20), masks)
	put(make([]byte, max(head+gap-b.Len(), 0)))
	for _, w := range words {
		if depth == 16 {
			put(uint16(w))
		} else {
			put(w)
		}
	}
	put(make([]byte, -(len(words)*depth/8)&3))
	return b.Bytes()
}

func TestBitFields(t *testing.T) {
	five := []uint32{0xf800, 0x7e0, 0x1f}
	for name, c := range map[string]struct {
		data []byte
		want []color.NRGBA
	}{
		"RGBA":                   {maskedBMP(124, 32, 3, []uint32{0xff, 0xff00, 0xff0000, 0xff000000}, 0, 0x80302010, 0xff0000ff), []color.NRGBA{{0x10, 0x20, 0x30, 0x80}, {0xff, 0, 0, 0xff}}},
		"RGBX of 108":            {maskedBMP(108, 32, 3, []uint32{0xff, 0xff00, 0xff0000, 0}, 0, 0x80302010), []color.NRGBA{{0x10, 0x20, 0x30, 0xff}}},
		"RGBX after the header":  {maskedBMP(40, 32, 3, []uint32{0xff, 0xff00, 0xff0000}, 0, 0x80302010), []color.NRGBA{{0x10, 0x20, 0x30, 0xff}}},
		"alpha fields":           {maskedBMP(40, 32, 6, []uint32{0xff, 0xff00, 0xff0000, 0xff000000}, 4, 0x80302010), []color.NRGBA{{0x10, 0x20, 0x30, 0x80}}},
		"ten bits":               {maskedBMP(40, 32, 3, []uint32{0x3ff00000, 0xffc00, 0x3ff}, 0, 0x3ff<<20|0x200<<10|1), []color.NRGBA{{255, 128, 0, 255}}},
		"565":                    {maskedBMP(40, 16, 3, five, 0, 0xffff, 1<<11|1<<5|1, 3), []color.NRGBA{{255, 255, 255, 255}, {8, 4, 8, 255}, {0, 0, 25, 255}}},
		"555":                    {maskedBMP(40, 16, 0, nil, 0, 0x7fff, 1<<10), []color.NRGBA{{255, 255, 255, 255}, {8, 0, 0, 255}}},
		"1555":                   {maskedBMP(124, 16, 3, []uint32{0x7c00, 0x3e0, 0x1f, 0x8000}, 0, 0xffff, 0x7fff), []color.NRGBA{{255, 255, 255, 255}, {255, 255, 255, 0}}},
		"108 without masks":      {maskedBMP(108, 32, 0, nil, 0, 0x00102030, 0x80ffffff), []color.NRGBA{{0x10, 0x20, 0x30, 0xff}, {0xff, 0xff, 0xff, 0xff}}},
		"124 with masks unused":  {maskedBMP(124, 32, 0, []uint32{0xff0000, 0xff00, 0xff, 0xff000000}, 0, 0x00102030), []color.NRGBA{{0x10, 0x20, 0x30, 0xff}}},
		"124, pixels further on": {maskedBMP(124, 32, 0, nil, 8, 0x00102030), []color.NRGBA{{0x10, 0x20, 0x30, 0xff}}},
		"124 with alpha":         {maskedBMP(124, 32, 3, []uint32{0xff0000, 0xff00, 0xff, 0xff000000}, 0, 0x00102030, 0x80102030), []color.NRGBA{{0x10, 0x20, 0x30, 0}, {0x10, 0x20, 0x30, 0x80}}},
		"pixels further on":      {maskedBMP(40, 32, 0, nil, 10, 0x80102030), []color.NRGBA{{0x10, 0x20, 0x30, 0xff}}},
	} {
		info, err := identify(c.data)
		if err != nil || info.Width != len(c.want) || info.Height != 1 {
			t.Errorf("%s: %+v, %v", name, info, err)
			continue
		}
		m, err := info.safely(c.data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []color.NRGBA
		for x := range m.Bounds().Dx() {
			got = append(got, m.(*image.NRGBA).NRGBAAt(x, 0))
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		for n := range c.data {
			if _, err := Decode(c.data[:n], Geometry{Patch: 1, Merge: 1, MaxPixels: 100}); err == nil && n < len(c.data)-2 {
				t.Errorf("%s: %d of %d bytes are decoded", name, n, len(c.data))
			}
		}
	}
}

// TestBitFieldsRefused checks that kinds that are not decoded are refused by the header.
func TestBitFieldsRefused(t *testing.T) {
	for want, data := range map[string][]byte{
		"compression 1":            maskedBMP(40, 8, 1, nil, 1024, 0),
		"compression 4":            maskedBMP(40, 32, 4, nil, 0, 0),
		"64 bits a pixel":          maskedBMP(40, 64, 0, nil, 0, 0, 0),
		"24 bits a pixel":          maskedBMP(40, 24, 3, []uint32{0xff, 0xff00, 0xff0000}, 0, 0),
		"masks [00000000 0000ff00": maskedBMP(40, 32, 3, []uint32{0, 0xff00, 0xff0000}, 0, 0),
		"masks [000000f5":          maskedBMP(40, 32, 3, []uint32{0xf5, 0xff00, 0xff0000}, 0, 0),
		"masks [000000ff 000000ff": maskedBMP(40, 32, 3, []uint32{0xff, 0xff, 0xff0000}, 0, 0),
		"masks [00ff0000":          maskedBMP(40, 16, 3, []uint32{0xff0000, 0xff00, 0xff}, 0, 0),
		"inside its header":        maskedBMP(40, 32, 3, []uint32{0xff, 0xff00, 0xff0000}, -4, 0),
	} {
		_, err := Size(data)
		refused(t, err, want)
	}
}

// TestBitFieldsOfPillow compares with the values that Pillow gives.
func TestBitFieldsOfPillow(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(testdata.Dir(t), "images", "odd-formats", "rgb32bf-rgba.bmp"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := decodeBMP(data)
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[image.Point]color.NRGBA{
		{X: 0, Y: 0}: {0, 0, 0, 255}, {X: 60, Y: 30}: {0, 0, 0, 0}, {X: 126, Y: 63}: {0, 126, 96, 96}, {X: 30, Y: 5}: {0, 247, 247, 235},
	} {
		if got := m.(*image.NRGBA).NRGBAAt(at.X, at.Y); got != want {
			t.Errorf("%v is %v, want %v", at, got, want)
		}
	}
}

// TestPlainIsTheLibrarys compares plain with the library, over headers of all kinds but the one of which the library
// takes padding for alpha.
func TestPlainIsTheLibrarys(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	pick := func(values ...int) int { return values[rng.IntN(len(values))] }
	read := 0
	for range 100_000 {
		info, depth := pick(40, 108, 124), pick(1, 2, 4, 8, 16, 24, 32, 64)
		data := make([]byte, 14+info+1024)
		copy(data, "BM")
		put32 := func(at, v int) { binary.LittleEndian.PutUint32(data[at:], uint32(v)) }
		colors := pick(0, 0, 1, 256, 300)
		put32(10, 14+info+pick(0, 0, 4, 8, 16, 4*colors, 4<<depth, 1024))
		put32(14, info)
		put32(18, 1)
		put32(22, pick(1, -1))
		binary.LittleEndian.PutUint16(data[26:], uint16(pick(1, 1, 1, 0)))
		binary.LittleEndian.PutUint16(data[28:], uint16(depth))
		put32(30, pick(0, 0, 0, 1, 3, 6))
		put32(46, colors)
		if rng.IntN(2) == 0 && info > 40 {
			for i, mask := range []int{0xff0000, 0xff00, 0xff, 0xff000000} {
				put32(54+4*i, mask)
			}
		}
		h, err := readBMPHead(data)
		if err != nil {
			t.Fatal(err)
		}
		if h.depth == 32 && h.compression == bmpPlain && h.info > 40 {
			if h.plain() {
				t.Fatalf("% x: padding would be alpha", data[:70])
			}
			continue
		}
		_, err = bmp.DecodeConfig(bytes.NewReader(data))
		if h.plain() != (err == nil) {
			t.Fatalf("% x: plain says %v, the library %v", data[:70], h.plain(), err)
		}
		if err == nil {
			read++
		}
	}
	if read < 1000 {
		t.Errorf("the library reads %d of the headers: too few for a result", read)
	}
}
