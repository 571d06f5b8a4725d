package imaging

import (
	"encoding/binary"

	"github.com/millrace-data/millrace/internal/fault"
)

// maxScans bounds the scans of a JPEG: real ones have about ten. In a progressive one a scan of a few bytes goes through
// all blocks again.
const maxScans = 500

// jpegScans looks at the scans of a JPEG that has several, as far as they are there (T.81, B.2.3). scan is the header of
// the first one, rest what follows it, and interval that between its restarts.
func jpegScans(frame, scan, rest []byte, interval int) error {
	for scans := 0; ; {
		if scan != nil {
			scans++
			if scans > maxScans {
				return fault.Userf("a JPEG of more than %d scans, each of which goes through the whole picture: it is damaged, or made to take time", maxScans)
			}
			if interval > 0 && interval < jpegAlone(frame, scan) {
				return fault.Userf("a JPEG with restarts in the scan of a channel that has more samples than another one (progressive, with less chroma than luma) is not decoded: write it without restarts, or as baseline")
			}
		}
		marker, segment, after, err := jpegSegment(rest)
		if err != nil || marker == 0xd9 {
			return nil
		}
		scan, rest = nil, after
		switch {
		case marker == 0xda:
			scan = segment
		case marker == 0xdd && len(segment) >= 2:
			interval = int(binary.BigEndian.Uint16(segment))
		}
	}
}

// jpegAlone returns the blocks of a scan of one channel, if that has several of them where another channel has one, else 0.
// The interval between restarts counts these blocks; the library counts the groups of blocks of a scan of all channels.
func jpegAlone(frame, scan []byte) (blocks int) {
	if len(scan) < 2 || scan[0] != 1 || frame[5] == 1 {
		return 0
	}
	height, width := int(binary.BigEndian.Uint16(frame[1:])), int(binary.BigEndian.Uint16(frame[3:]))
	for c := frame[6:]; len(c) >= 3; c = c[3:] {
		if c[0] == scan[1] && c[1] != 0x11 {
			return (width + 7) / 8 * ((height + 7) / 8)
		}
	}
	return 0
}
