package ffmpeg

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"image/gif"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
)

// chunk is a part of RIFF or FORM, whose sizes are of 4 bytes without the 8 before what they count.
func chunk(order binary.ByteOrder, id string, body []byte) []byte {
	b := append([]byte(id), 0, 0, 0, 0)
	order.PutUint32(b[4:], uint32(len(body)))
	if b = append(b, body...); len(body)%2 == 1 {
		b = append(b, 0)
	}
	return b
}

// box is a part of MP4; its size counts itself, and has 8 bytes if it is long.
func box(kind string, long bool, body []byte) []byte {
	size := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	if long {
		size = []byte{0, 0, 0, 1}
		body = append(binary.BigEndian.AppendUint64(nil, uint64(16+len(body))), body...)
	}
	return append(append(size, kind...), body...)
}

func animation(t *testing.T) []byte {
	t.Helper()
	frame := image.NewPaletted(image.Rect(0, 0, 40, 30), color.Palette{color.Black, color.White})
	for i := range frame.Pix {
		frame.Pix[i] = byte(i * i / 7 % 2)
	}
	var b bytes.Buffer
	if err := gif.EncodeAll(&b, &gif.GIF{Image: []*image.Paletted{frame, frame}, Delay: []int{1, 1}}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestWhole cuts files of every container that says how long it is.
func TestWhole(t *testing.T) {
	little, big, body := binary.LittleEndian, binary.BigEndian, bytes.Repeat([]byte("x"), 101)
	riff := func(more string, size uint32) []byte {
		b := chunk(little, "RIFF", append([]byte("AVI "), chunk(little, "LIST", body)...))
		if size != 0 {
			little.PutUint32(b[4:], size)
		}
		return append(b, more...)
	}
	unsized := riff("", 0)
	little.PutUint32(unsized[4:], 0)
	segment := func(size string) []byte {
		return append([]byte(ebmlID+"\x83abc"+segmentID+size), body...)
	}
	for _, c := range []struct {
		name string
		data []byte
		lost int // bytes at the end without which it is still whole
		want string
	}{
		{"AVI", riff("", 0), 8, "its RIFF has 114 bytes, of which"},
		{"long AVI", riff(string(chunk(little, "RIFF", append([]byte("AVIX"), body...))), 0), 9, "its RIFF has "},
		{"AVI that counts its head", riff("", 122), 0, "its RIFF has 122 bytes"},
		{"AVI to a pipe", unsized, 1 << 20, ""},
		{"AVI to another pipe", riff("", 0x7ffff000-36), 1 << 20, ""},
		{"AVI with something behind", riff("\n\nno chunk", 0), 18, "its RIFF has"},
		{"AIFF", chunk(big, "FORM", append([]byte("AIFF"), body...)), 9, "its FORM has 105 bytes"},
		{"MP4", bytes.Join([][]byte{box("ftyp", false, body), box("mdat", false, body), box("moov", false, body)}, nil), 0, " of which "},
		{"fragments", bytes.Join([][]byte{box("moof", false, body), box("mdat", true, body)}, nil), 0, " of which "},
		{"MP4 to the end", append(box("ftyp", false, nil), append([]byte("\x00\x00\x00\x00mdat"), body...)...), 1 << 20, ""},
		{"MP4 with something behind", append(box("mdat", false, body), "more and more"...), 13, "its mdat has 109 bytes, of which"},
		{"Matroska", segment("\xe5"), 0, "its segment has 101 bytes, of which"},
		{"Matroska with a long size", segment("\x01\x00\x00\x00\x00\x00\x00\x65"), 0, "its segment has 101 bytes, of which"},
		{"Matroska to a pipe", segment("\x01\xff\xff\xff\xff\xff\xff\xff"), 1 << 20, ""},
		{"GIF", animation(t), 0, "it has no trailer"},
		{"GIF with something behind", append(animation(t), "\x00;"...), 2, "it has no trailer"},
		{"MPEG-TS", append([]byte{0x47}, body...), 1 << 20, ""},
	} {
		if err := whole(c.data); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		for n := range c.data {
			err := whole(c.data[:n:n])
			if len(c.data)-n <= c.lost && err != nil {
				t.Errorf("%s: %d of %d bytes: %v", c.name, n, len(c.data), err)
			}
			if err != nil && (fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "the file is cut off: it")) {
				t.Errorf("%s: %d bytes: class %v: %v", c.name, n, fault.ClassOf(err), err)
			}
		}
		if n := len(c.data) - min(c.lost, len(c.data)-1) - 1; c.want != "" {
			if err := whole(c.data[:n:n]); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %d of %d bytes: %v, want %s", c.name, n, len(c.data), err, c.want)
			}
		}
	}
}

// FuzzWhole looks for panics and for a walk without end.
func FuzzWhole(f *testing.F) {
	for _, data := range []string{"RIFF\x04\x00\x00\x00AVI ", "FORM\x00\x00\x00\x00", ebmlID + "\x80" + segmentID + "\x84", "\x00\x00\x00\x08ftyp\x00\x00\x00\x01mdat", "GIF89a\x01\x00\x01\x00\x80\x00\x00"} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) { _ = whole(data) })
}
