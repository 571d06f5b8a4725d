package audio

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
)

// The kinds of samples in a WAV file (wFormatTag).
const (
	wavPCM        = 1
	wavFloat      = 3
	wavALaw       = 6
	wavMuLaw      = 7
	wavExtensible = 0xfffe // the kind is in the extension
)

// unknownSize is the least that writers to a pipe leave in place of a size: the most that they know, without the
// header or with it. Files that are as long are beyond MaxSamples.
const unknownSize = 0x7ffff000 - 36

// wavFile is a WAV file's format and its samples.
type wavFile struct {
	Info
	kind  int
	frame int // bytes of a moment
	data  []byte
}

// wav decodes a WAV file.
func (d *Decoder) wav(data []byte, f Form) (Info, error) {
	w, err := readWAV(data)
	if err != nil {
		return Info{}, err
	}
	if err := w.check(f); err != nil {
		return Info{}, err
	}
	if err := d.hold(w.Info, f, false); err != nil {
		return Info{}, err
	}
	size := w.frame / w.Channels
	n := len(w.data) / size
	d.samples = slices.Grow(d.samples, n)[:n]
	decode := w.decoder()
	for i := range d.samples {
		d.samples[i] = decode(w.data[i*size:][:size])
	}
	return w.Info, nil
}

// readWAV walks the chunks up to the samples. A chunk of samples that is longer than the file is
// damage, unless its size is unknown: then it ends where the file does.
func readWAV(data []byte) (w wavFile, err error) {
	w.Format = "wav"
	for rest := data[12:]; len(rest) >= 8; {
		size := uint64(binary.LittleEndian.Uint32(rest[4:]))
		id, body := string(rest[:4]), rest[8:]
		if id == "data" {
			return w, w.take(body, size)
		}
		if size > uint64(len(body)) {
			break
		}
		if id == "fmt " {
			if err := w.format(body[:size]); err != nil {
				return w, err
			}
		}
		rest = body[min(size+size&1, uint64(len(body))):]
	}
	return w, fault.Userf("a wav file of %d bytes without samples: it is truncated or damaged", len(data))
}

// format reads the fmt chunk.
func (w *wavFile) format(chunk []byte) error {
	if len(chunk) < 16 {
		return fault.Userf("a wav file whose format has %d bytes; at least 16 are needed: it is damaged", len(chunk))
	}
	u16 := func(at int) int { return int(binary.LittleEndian.Uint16(chunk[at:])) }
	w.kind, w.Channels, w.frame, w.Bits = u16(0), u16(2), u16(12), u16(14)
	w.Rate = int(min(binary.LittleEndian.Uint32(chunk[4:]), math.MaxInt32))
	if w.kind == wavExtensible {
		if len(chunk) < 26 {
			return fault.Userf("a wav file whose extended format has %d bytes: it is damaged", len(chunk))
		}
		w.kind = u16(24)
	}
	known := false
	switch w.kind {
	case wavPCM:
		known = w.Bits == 8 || w.Bits == 16 || w.Bits == 24 || w.Bits == 32
	case wavFloat:
		known = w.Bits == 32 || w.Bits == 64
	case wavALaw, wavMuLaw:
		known = w.Bits == 8
	}
	switch {
	case !known:
		return fault.Userf("a wav file of kind %d with %d bits a sample; decoded are PCM of 8, 16, 24 and 32 bits, floating point of 32 and 64, A-law and µ-law", w.kind, w.Bits)
	case w.Channels < 1 || w.frame != w.Channels*w.Bits/8:
		return fault.Userf("a wav file of %d channels of %d bits with %d bytes for all of them: it is damaged", w.Channels, w.Bits, w.frame)
	}
	return nil
}

// take takes the samples. What is left behind the last whole moment is no sample.
func (w *wavFile) take(body []byte, size uint64) error {
	if w.frame == 0 {
		return fault.Userf("a wav file whose samples come before their format: it is damaged")
	}
	if size >= unknownSize && size > uint64(len(body)) || size == 0 && !beginsChunk(body) {
		size = uint64(len(body))
	}
	w.Samples = int64(size / uint64(w.frame))
	if size > uint64(len(body)) {
		return cutOff(w.Format, int64(len(body)/w.frame), w.Samples)
	}
	w.data = body[:w.Samples*int64(w.frame)]
	return nil
}

// beginsChunk reports whether a chunk comes next. If none does behind samples of size 0, their header was
// never finished: the recorder was stopped.
func beginsChunk(body []byte) bool {
	if len(body) < 8 || uint64(binary.LittleEndian.Uint32(body[4:])) > uint64(len(body)-8) {
		return false
	}
	return !slices.ContainsFunc(body[:4], func(c byte) bool { return c < ' ' || c > '~' })
}

// decoder returns the function that reads one sample.
func (w *wavFile) decoder() func(b []byte) int32 {
	switch w.kind {
	case wavALaw:
		return func(b []byte) int32 { return fixed(aLaw(b[0]), 16) }
	case wavMuLaw:
		return func(b []byte) int32 { return fixed(muLaw(b[0]), 16) }
	case wavFloat:
		if w.Bits == 32 {
			return func(b []byte) int32 { return ofFloat(float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))) }
		}
		return func(b []byte) int32 { return ofFloat(math.Float64frombits(binary.LittleEndian.Uint64(b))) }
	}
	switch w.Bits {
	case 8: // without a sign
		return func(b []byte) int32 { return fixed(int64(b[0])-128, 8) }
	case 16:
		return func(b []byte) int32 { return fixed(int64(int16(binary.LittleEndian.Uint16(b))), 16) }
	case 24:
		return func(b []byte) int32 { return fixed(int64(b[0])|int64(b[1])<<8|int64(int8(b[2]))<<16, 24) }
	}
	return func(b []byte) int32 { return fixed(int64(int32(binary.LittleEndian.Uint32(b))), 32) }
}

// ofFloat rounds to the nearest, halves to even; what is no number is 0.
func ofFloat(v float64) int32 {
	if math.IsNaN(v) {
		return 0
	}
	return int32(min(max(math.RoundToEven(v*(1<<scaleBits)), -most), most))
}

// aLaw expands a byte to 16 bits (ITU-T G.711).
func aLaw(b byte) int64 {
	b ^= 0x55
	v := int64(b&0x0f)<<4 + 8
	if segment := b >> 4 & 7; segment > 0 {
		v = (v + 0x100) << (segment - 1)
	}
	if b&0x80 == 0 {
		return -v
	}
	return v
}

// muLaw expands a byte to 16 bits (ITU-T G.711).
func muLaw(b byte) int64 {
	b = ^b
	v := (int64(b&0x0f)<<3+0x84)<<(b>>4&7) - 0x84
	if b&0x80 != 0 {
		return -v
	}
	return v
}
