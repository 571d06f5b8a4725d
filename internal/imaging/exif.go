package imaging

import (
	"bytes"
	"encoding/binary"
)

// Tags of TIFF directories, which EXIF uses too (TIFF 6.0, section 8; Exif 2.32, 4.6).
const (
	tagImageWidth  = 256
	tagImageLength = 257
	tagOrientation = 274
)

// upright is the orientation of a picture that is stored as displayed.
const upright = 1

// orientationOf returns the orientation in an EXIF block: 1 to 8, and upright if it
// names none or is damaged. Damaged EXIF is no reason to refuse a picture.
func orientationOf(exif []byte) int {
	exif = bytes.TrimPrefix(exif, []byte("Exif\x00\x00")) // some writers of WebP and PNG leave it there
	dir, order := firstDirectory(exif)
	if v, ok := entry(dir, order, tagOrientation); ok && v >= 1 && v <= 8 {
		return int(v)
	}
	return upright
}

// firstDirectory returns the entries of the first directory of a TIFF file, 12 bytes
// each, and its byte order. There are none if the file ends before.
func firstDirectory(tiff []byte) ([]byte, binary.ByteOrder) {
	if len(tiff) < 8 {
		return nil, nil
	}
	var order binary.ByteOrder
	switch string(tiff[:4]) {
	case "II*\x00":
		order = binary.LittleEndian
	case "MM\x00*":
		order = binary.BigEndian
	default:
		return nil, nil
	}
	at := uint64(order.Uint32(tiff[4:]))
	if at+2 > uint64(len(tiff)) {
		return nil, nil
	}
	dir := tiff[at+2:]
	return dir[:min(len(dir)/12, int(order.Uint16(tiff[at:])))*12], order
}

// entry returns the value of a tag that holds one SHORT or LONG.
func entry(dir []byte, order binary.ByteOrder, tag uint16) (uint32, bool) {
	for ; len(dir) >= 12; dir = dir[12:] {
		if order.Uint16(dir) != tag || order.Uint32(dir[4:]) != 1 {
			continue
		}
		switch order.Uint16(dir[2:]) {
		case 3:
			return uint32(order.Uint16(dir[8:])), true
		case 4:
			return order.Uint32(dir[8:]), true
		}
	}
	return 0, false
}
