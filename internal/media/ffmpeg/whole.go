package ffmpeg

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
)

// FFmpeg takes the end of a cut file for the end of most containers. Those that say how long they are are
// compared with the file before.

// whole refuses a file that ends before its container does. Containers that do not say where they end pass.
func whole(data []byte) error {
	missing := ""
	switch {
	case bytes.HasPrefix(data, []byte("RIFF")):
		missing = ofChunks(data, binary.LittleEndian)
	case bytes.HasPrefix(data, []byte("FORM")):
		missing = ofChunks(data, binary.BigEndian)
	case bytes.HasPrefix(data, []byte("GIF8")):
		missing = ofGIF(data)
	case bytes.HasPrefix(data, []byte(ebmlID)):
		missing = ofMatroska(data)
	case len(data) >= 8 && slices.Contains(firstBoxes, string(data[4:8])):
		missing = ofBoxes(data)
	}
	if missing == "" {
		return nil
	}
	return fault.Userf("the file is cut off: %s", missing)
}

func lacks(part string, size uint64, has int) string {
	return fmt.Sprintf("its %s has %d bytes, of which %d are there", part, size, has)
}

// unknownSize and sizes above it are what writers to a pipe leave in RIFF; others leave 0.
const unknownSize = 0x7ffff000 - 36

// ofChunks looks at the outer chunks of AVI, WAV and AIFF; a long AVI has several. Some writers count the 8 bytes
// before a chunk, too.
func ofChunks(data []byte, order binary.ByteOrder) string {
	id := string(data[:4])
	for len(data) >= 8 && string(data[:4]) == id {
		size := uint64(order.Uint32(data[4:]))
		switch {
		case size == 0 || size >= unknownSize:
			return ""
		case size > uint64(len(data)):
			return lacks(id, size, len(data)-8)
		}
		data = data[min(8+size+size&1, uint64(len(data))):]
	}
	return ""
}

// Boxes that an MP4 or QuickTime file begins with, and those that hold what is shown.
var (
	firstBoxes = []string{"ftyp", "styp", "moov", "moof", "mdat", "sidx", "wide", "free", "skip"}
	fullBoxes  = []string{"moov", "moof", "mdat", "mfra"}
)

// ofBoxes walks the outer boxes of MP4 and QuickTime, in fragments or not (ISO 14496-12, section 4.2).
func ofBoxes(data []byte) string {
	for len(data) >= 8 {
		size, kind := uint64(binary.BigEndian.Uint32(data)), string(data[4:8])
		if size == 1 && len(data) >= 16 {
			size = binary.BigEndian.Uint64(data[8:])
		}
		if size < 8 { // 0: to the end of the file
			return ""
		}
		if size > uint64(len(data)) {
			if slices.Contains(fullBoxes, kind) {
				return lacks(kind, size, len(data))
			}
			return "" // or something else behind the last box
		}
		data = data[size:]
	}
	return ""
}

// The elements that Matroska and WebM have on the outside (RFC 8794, RFC 9559).
const (
	ebmlID    = "\x1a\x45\xdf\xa3"
	segmentID = "\x18\x53\x80\x67"
)

// ofMatroska looks at the segment, which may be of unknown size.
func ofMatroska(data []byte) string {
	size, data := vint(data[4:])
	data, found := bytes.CutPrefix(data[min(size, uint64(len(data))):], []byte(segmentID))
	if !found {
		return ""
	}
	if size, data = vint(data); size > uint64(len(data)) {
		return lacks("segment", size, len(data))
	}
	return ""
}

// vint reads a size; it is 0 if it is unknown, or cut off.
func vint(data []byte) (size uint64, rest []byte) {
	if len(data) == 0 || data[0] == 0 {
		return 0, nil
	}
	n := bits.LeadingZeros8(data[0]) + 1
	if n > len(data) {
		return 0, nil
	}
	for _, b := range data[:n] {
		size = size<<8 | uint64(b)
	}
	most := uint64(1)<<(7*n) - 1
	if size &= most; size == most {
		size = 0
	}
	return size, data[n:]
}

// ofGIF walks the blocks up to the trailer (GIF89a, appendix A).
func ofGIF(data []byte) string {
	const missing = "it has no trailer"
	colors := func(flags byte) int { return int(flags>>7) * 3 << (flags&7 + 1) }
	if len(data) < 13 {
		return missing
	}
	for at := 13 + colors(data[10]); at < len(data); {
		switch data[at] {
		case ';':
			return ""
		case '!':
			at += 2
		case ',':
			if at+10 > len(data) {
				return missing
			}
			at += 10 + colors(data[at+9]) + 1
		default: // decoders skip it
			at++
			continue
		}
		for at < len(data) && data[at] > 0 {
			at += 1 + int(data[at])
		}
		at++ // the block of size 0
	}
	return missing
}
