package imaging

import (
	"bytes"
	"encoding/binary"

	"github.com/millrace-data/millrace/internal/fault"
)

// The most pixels that a byte can encode. A header that claims more is wrong.
const (
	jpegPixelsPerByte = 2048    // a bit for a block of 8 x 8, with chroma or luma halved twice
	deflateRatio      = 1032    // bytes for a byte of a deflate stream
	gifPixelsPerByte  = 4096    // an LZW code stands for the pixels of a full table
	anyPixelsPerByte  = 1 << 16 // one color costs nothing in WebP and fax TIFF; more is not a photograph
)

func cutOff(format string) error {
	return fault.Userf("the %s header is cut off: the file is truncated or damaged", format)
}

// jpegHeader walks the segments up to the first scan (ITU-T T.81, annex B), and through all scans if there are more.
func jpegHeader(data []byte) (header, error) {
	h, rgb := header{room: jpegPixelsPerByte * len(data)}, false
	var frame []byte
	progressive, interval := false, 0
	for rest := data[2:]; ; {
		marker, segment, after, err := jpegSegment(rest)
		if err != nil {
			return h, err
		}
		rest = after
		switch {
		case marker >= 0xc0 && marker <= 0xc2 && h.width == 0:
			if h.width, h.height, err = jpegFrame(segment); err != nil {
				return h, err
			}
			frame, progressive = segment, marker == 0xc2
		case marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc:
			return h, fault.Userf("a JPEG of kind SOF%d: baseline, extended and progressive pictures (SOF0 to SOF2) with one frame are decoded, lossless, hierarchical and arithmetic ones are not", marker-0xc0)
		case marker == 0xe1 && h.orientation == 0 && bytes.HasPrefix(segment, []byte("Exif\x00\x00")):
			h.orientation = orientationOf(segment)
		case marker == 0xee:
			rgb = adobeRGB(segment)
		case marker == 0xdd && len(segment) >= 2:
			interval = int(binary.BigEndian.Uint16(segment))
		case marker == 0xda && h.width > 0:
			h.eighths = jpegMemory(frame, progressive, rgb)
			if progressive || len(segment) > 0 && segment[0] < frame[5] {
				err = jpegScans(frame, segment, rest, interval)
			}
			return h, err
		case marker == 0xda || marker == 0xd9:
			return h, fault.Userf("a JPEG without a frame header before its data: it is damaged")
		}
	}
}

// jpegSegment returns the next marker, its segment without the length, and the
// rest. Bytes between segments are skipped, as decoders do.
func jpegSegment(data []byte) (marker byte, segment, after []byte, err error) {
	for {
		i := bytes.IndexByte(data, 0xff)
		if i < 0 || i+1 >= len(data) {
			return 0, nil, nil, cutOff("JPEG")
		}
		marker, data = data[i+1], data[i+1:]
		switch {
		case marker == 0xff: // a fill byte
		case marker == 0 || marker == 1 || marker >= 0xd0 && marker <= 0xd8: // no segment follows
			data = data[1:]
		case marker == 0xd9:
			return marker, nil, nil, nil
		default:
			if len(data) < 3 {
				return 0, nil, nil, cutOff("JPEG")
			}
			n := int(binary.BigEndian.Uint16(data[1:]))
			if n < 2 || 1+n > len(data) {
				return 0, nil, nil, cutOff("JPEG")
			}
			return marker, data[3 : 1+n], data[1+n:], nil
		}
	}
}

func jpegFrame(segment []byte) (width, height int, err error) {
	if len(segment) < 6 {
		return 0, 0, cutOff("JPEG")
	}
	height, width = int(binary.BigEndian.Uint16(segment[1:])), int(binary.BigEndian.Uint16(segment[3:]))
	if segment[0] != 8 {
		return 0, 0, fault.Userf("a JPEG with %d bits a channel; only 8 are decoded", segment[0])
	}
	if width == 0 || height == 0 {
		return 0, 0, fault.Userf("a JPEG of %d x %d pixels is empty", width, height)
	}
	if !jpegSampled(segment) {
		return 0, 0, fault.Userf("a JPEG of %d channels with these samples of each is not decoded: write it as gray, as YCbCr with the usual chroma, or as CMYK with all channels whole", segment[5])
	}
	return width, height, nil
}

// jpegSampled reports whether the library takes the channels of a frame: how many there are, and how many samples each
// has across and down.
func jpegSampled(frame []byte) bool {
	n := int(frame[5])
	if len(frame) != 6+3*n {
		return false
	}
	sides := func(c int) (across, down byte) { return frame[7+3*c] >> 4, frame[7+3*c] & 15 }
	for c := range n {
		if across, down := sides(c); across&(across-1) != 0 || down&(down-1) != 0 || across-1 > 3 || down-1 > 3 {
			return false
		}
	}
	switch n {
	case 1:
		return true
	case 3:
		across, down := sides(0)
		a, d := sides(1)
		return down < 4 && across%a == 0 && down%d == 0 && frame[13] == frame[10]
	case 4:
		return (frame[7] == 0x11 || frame[7] == 0x22) && frame[10] == 0x11 && frame[13] == 0x11 && frame[16] == frame[7]
	}
	return false
}

// pngHeader reads IHDR, and walks the chunks for eXIf, which may stand before or after
// the data (PNG third edition, 11.2.1 and 11.3.4.5).
func pngHeader(data []byte) (header, error) {
	if len(data) < 33 {
		return header{}, cutOff("PNG")
	}
	if string(data[8:16]) != "\x00\x00\x00\x0dIHDR" {
		return header{}, fault.Userf("a PNG that does not begin with a header chunk: it is damaged")
	}
	width, height := binary.BigEndian.Uint32(data[16:]), binary.BigEndian.Uint32(data[20:])
	channels := [...]int{0: 1, 2: 3, 3: 1, 4: 2, 6: 4, 7: 0}[data[25]&7]
	bits := channels * int(data[24])
	if bits == 0 || data[25] > 6 {
		return header{}, fault.Userf("a PNG of color type %d with %d bits, which does not exist", data[25], data[24])
	}
	h := header{width: claimed(width), height: claimed(height), room: len(data) * deflateRatio * 8 / bits, eighths: pngMemory(data[24], data[25], data[28])}
	for rest := data[8:]; len(rest) >= 12; {
		n := int64(binary.BigEndian.Uint32(rest))
		if n > int64(len(rest)-12) {
			break
		}
		if string(rest[4:8]) == "eXIf" {
			h.orientation = orientationOf(rest[8 : 8+n])
			break
		}
		rest = rest[12+n:]
	}
	return h, nil
}

// claimed is a side of 32 bits in an int of any width: a side that does not fit is
// too large anyway.
func claimed(side uint32) int { return int(min(side, 1<<31-1)) }

// gifHeader reads the logical screen (GIF89a, section 18).
func gifHeader(data []byte) (header, error) {
	if len(data) < 13 {
		return header{}, cutOff("GIF")
	}
	return header{
		width:  int(binary.LittleEndian.Uint16(data[6:])),
		height: int(binary.LittleEndian.Uint16(data[8:])),
		room:   gifPixelsPerByte * len(data), eighths: gifMemory,
	}, nil
}

// webpHeader reads the first chunk, and walks to EXIF if that announces it (RFC
// 9649, sections 2.5 to 2.7).
func webpHeader(data []byte) (header, error) {
	if len(data) < 30 {
		return header{}, cutOff("WebP")
	}
	h := header{room: anyPixelsPerByte * len(data), copied: len(data)}
	switch body := data[20:]; string(data[12:16]) {
	case "VP8 ":
		if body[0]&1 != 0 || string(body[3:6]) != "\x9d\x01\x2a" {
			return h, fault.Userf("a WebP that does not begin with a key frame: it is damaged")
		}
		h.width = int(binary.LittleEndian.Uint16(body[6:]) & 0x3fff)
		h.height = int(binary.LittleEndian.Uint16(body[8:]) & 0x3fff)
		h.eighths = vp8Memory
	case "VP8L":
		if body[0] != 0x2f {
			return h, fault.Userf("a lossless WebP without its signature: it is damaged")
		}
		sides := binary.LittleEndian.Uint32(body[1:])
		h.width, h.height, h.eighths = int(sides&0x3fff)+1, int(sides>>14&0x3fff)+1, vp8lMemory
	case "VP8X":
		const animated, hasEXIF = 1 << 1, 1 << 3
		if body[0]&animated != 0 {
			return h, fault.Userf("an animated WebP, which is not decoded; keep one frame of it as a still picture")
		}
		h.width = int(binary.LittleEndian.Uint32(body[4:])&0xffffff) + 1
		h.height = int(binary.LittleEndian.Uint32(body[6:])>>8) + 1
		h.eighths = vp8xMemory
		if body[0]&hasEXIF != 0 {
			h.orientation = webpOrientation(data[12:])
		}
	default:
		return h, fault.Userf("a WebP that begins with a chunk %q; valid are VP8, VP8L and VP8X", data[12:16])
	}
	return h, nil
}

func webpOrientation(chunks []byte) int {
	for len(chunks) >= 8 {
		n := int64(binary.LittleEndian.Uint32(chunks[4:]))
		if n > int64(len(chunks)-8) {
			break
		}
		if string(chunks[:4]) == "EXIF" {
			return orientationOf(chunks[8 : 8+n])
		}
		chunks = chunks[min(8+n+n&1, int64(len(chunks))):]
	}
	return upright
}
