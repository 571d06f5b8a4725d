package imaging

import (
	"bytes"
	"encoding/binary"
	"image/jpeg"
	"slices"
	"testing"
)

// segmentOf is a segment of a JPEG.
func segmentOf(marker byte, body ...byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{0xff, marker}, uint16(2+len(body))), body...)
}

// headersOf are the segments of a JPEG of 40 x 24 pixels in three channels, with luma sampled as said, and a little data
// behind each header of a scan.
func headersOf(frame, sampling byte, segments ...[]byte) []byte {
	b := []byte{0xff, 0xd8}
	b = append(b, segmentOf(frame, 8, 0, 24, 0, 40, 3, 1, sampling, 0, 2, 0x11, 0, 3, 0x11, 0)...)
	for _, s := range segments {
		b = append(b, s...)
		if s[1] == 0xda {
			b = append(b, 1, 0xff, 0, 0xda, 0xff, 0xd0, 2)
		}
	}
	return append(b, 0xff, 0xd9)
}

// TestScans: pictures of many scans, and of scans whose restarts the library counts otherwise, are refused by their
// headers, wherever these are.
func TestScans(t *testing.T) {
	const many, restarts = "a JPEG of more than 500 scans", "a JPEG with restarts in the scan of a channel"
	all := segmentOf(0xda, 3, 1, 0, 2, 0x11, 3, 0x11, 0, 0, 0)
	luma, chroma := segmentOf(0xda, 1, 1, 0, 1, 63, 0), segmentOf(0xda, 1, 2, 0, 1, 63, 0)
	every := func(n byte) []byte { return segmentOf(0xdd, 0, n) }
	thumbnail := segmentOf(0xe2, slices.Repeat(luma, 600)...)
	times := func(n int) [][]byte { return append([][]byte{all}, slices.Repeat([][]byte{luma}, n-1)...) }
	for _, c := range []struct {
		name, want string
		data       []byte
	}{
		{"500 scans", "", headersOf(0xc2, 0x22, times(500)...)},
		{"501 scans", many, headersOf(0xc2, 0x22, times(501)...)},
		{"501 scans, beginning with one channel", many, headersOf(0xc0, 0x22, times(502)[1:]...)},
		{"scans in a thumbnail", "", headersOf(0xc2, 0x22, all, thumbnail, luma)},
		{"scans behind the end", "", append(headersOf(0xc2, 0x22, all, luma), bytes.Repeat(luma, 600)...)},
		{"restarts", restarts, headersOf(0xc2, 0x22, every(2), all, luma)},
		{"restarts, from the second scan on", restarts, headersOf(0xc2, 0x22, all, every(14), luma)},
		{"restarts, one chroma for two", restarts, headersOf(0xc2, 0x21, every(1), all, luma)},
		{"restarts, baseline in several scans", restarts, headersOf(0xc0, 0x22, every(2), luma, chroma)},
		{"restarts in all channels", "", headersOf(0xc2, 0x22, every(2), all)},
		{"restarts in chroma", "", headersOf(0xc2, 0x22, every(2), all, chroma, every(0), luma)},
		{"restarts that never come", "", headersOf(0xc2, 0x22, every(15), all, luma)},
		{"restarts with as much chroma", "", headersOf(0xc2, 0x11, every(2), all, luma)},
		{"restarts, baseline in one scan", "", headersOf(0xc0, 0x22, every(2), all)},
	} {
		if _, err := Size(c.data); c.want != "" {
			refused(t, err, c.want)
		} else if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if n := testing.AllocsPerRun(5, func() { Size(c.data) }); c.want == "" && n > 0 {
			t.Errorf("%s: Size allocates %v times", c.name, n)
		}
	}
	whole := headersOf(0xc2, 0x22, all, luma, chroma)
	for n := 40; n < len(whole); n++ {
		if _, err := Size(whole[:n]); err != nil {
			t.Errorf("cut after its first scan's header, at %d: %v", n, err)
		}
	}
}

// TestSampling compares the header with the library, over channels of all kinds.
func TestSampling(t *testing.T) {
	taken := 0
	for n := range 6 {
		for _, first := range []byte{0x11, 0x12, 0x21, 0x22, 0x41, 0x42, 0x14, 0x13, 0x31, 0x10, 0x81} {
			for _, second := range []byte{0x11, 0x21, 0x12, 0x22, 0x41, 0x10} {
				for _, last := range []byte{0x11, 0x22, first, second} {
					frame := []byte{8, 0, 24, 0, 40, byte(n)}
					for c := range n {
						frame = append(frame, byte(c), []byte{first, second, second, last, 0x11}[c], 0)
					}
					if n == 3 {
						frame[13] = last
					}
					// DecodeConfig of JFIF ends behind the frame
					data := slices.Concat([]byte{0xff, 0xd8}, segmentOf(0xe0, []byte("JFIF\x00")...), segmentOf(0xc0, frame...), segmentOf(0xda, 1, 0, 0, 0, 63, 0), []byte{0, 0xff, 0xd9})
					_, sized := Size(data)
					if _, err := jpeg.DecodeConfig(bytes.NewReader(data)); (err == nil) != (sized == nil) {
						t.Fatalf("%d channels of %#x, %#x and %#x: the header says %v, the library %v", n, first, second, last, sized, err)
					}
					if sized == nil {
						taken++
					}
				}
			}
		}
	}
	if taken < 50 {
		t.Errorf("%d frames are taken: too few for a result", taken)
	}
}
