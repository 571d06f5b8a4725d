package audio

import (
	"encoding/binary"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
)

// FLAC is RFC 9639. All arithmetic is in whole numbers, so that the samples are those that
// were encoded. The sums of headers and frames are checked, and the number of samples.

// flac decodes a FLAC file. What follows the last sample that the header counts, such as a
// tag, is left alone.
func (d *Decoder) flac(data []byte, f Form) (Info, error) {
	info, frames, err := readFLAC(data)
	if err == nil {
		err = info.check(f)
	}
	if err == nil {
		err = d.hold(info, f, true)
	}
	if err != nil {
		return info, err
	}
	p := flacFrames{Info: info, r: bitReader{data: frames}}
	has := info
	for has.Samples = 0; p.r.at < len(frames) && (info.Samples == 0 || has.Samples < info.Samples); {
		if why := p.next(); why != "" {
			return info, fault.Userf("a flac file whose frame at sample %d %s: it is truncated or damaged", has.Samples, why)
		}
		has.Samples += int64(p.size)
		if info.Samples > 0 && has.Samples > info.Samples {
			return info, fault.Userf("a flac file that holds %d samples or more, and %d by its header: it is damaged", has.Samples, info.Samples)
		}
		if err := has.check(f); err != nil {
			return info, err
		}
		d.interleave(&p)
	}
	if has.Samples < info.Samples {
		return info, cutOff(info.Format, has.Samples, info.Samples)
	}
	return has, nil
}

// interleave adds the samples of a frame.
func (d *Decoder) interleave(p *flacFrames) {
	at := len(d.samples)
	d.samples = slices.Grow(d.samples, p.size*p.Channels)[:at+p.size*p.Channels]
	for c := range p.Channels {
		for i, v := range p.channels[c][:p.size] {
			d.samples[at+i*p.Channels+c] = fixed(v, p.Bits)
		}
	}
}

// readFLAC reads the first metadata block and skips the others.
func readFLAC(data []byte) (info Info, frames []byte, err error) {
	info.Format = "flac"
	const streamInfo = 34
	if len(data) < 8+streamInfo || data[4]&0x7f != 0 || int(data[7]) != streamInfo {
		return info, nil, fault.Userf("a flac file that does not begin with the description of its stream: it is truncated or damaged")
	}
	packed := binary.BigEndian.Uint64(data[18:]) // rate, channels, bits, samples
	info.Rate, info.Channels, info.Bits = int(packed>>44), int(packed>>41&7)+1, int(packed>>36&31)+1
	info.Samples = int64(packed & (1<<36 - 1))
	if info.Bits < 4 {
		return info, nil, fault.Userf("a flac file of %d bits a sample: it is damaged", info.Bits)
	}
	for rest := data[4:]; len(rest) >= 4; {
		n := int(rest[1])<<16 | int(rest[2])<<8 | int(rest[3])
		if n > len(rest)-4 {
			break
		}
		last := rest[0]&0x80 != 0
		if rest = rest[4+n:]; last {
			return info, rest, nil
		}
	}
	return info, nil, fault.Userf("a flac file that ends before its samples: it is truncated or damaged")
}

// flacFrames reads frames one after the other.
type flacFrames struct {
	Info
	r        bitReader
	size     int        // samples of each channel in the last frame
	channels [8][]int64 // their values
}

// next reads a frame. It returns what is wrong with it, "" if nothing.
func (p *flacFrames) next() (why string) {
	begin := p.r.at
	coupling, why := p.header()
	if why != "" {
		return why
	}
	if sum := crc8(p.r.data[begin:p.r.at]); sum != 0 { // its own sum is the last byte
		return "has a header with another sum than it says"
	}
	for c := range p.Channels {
		bits := p.Bits
		if coupling == 8 && c == 1 || coupling == 9 && c == 0 || coupling == 10 && c == 1 {
			bits++ // the difference
		}
		p.channels[c] = slices.Grow(p.channels[c][:0], p.size)[:p.size]
		if why := p.subframe(p.channels[c], bits); why != "" {
			return why
		}
	}
	p.r.align()
	p.r.read(16)
	switch {
	case p.r.short:
		return "ends early"
	case crc16(p.r.data[begin:p.r.at]) != 0:
		return "has another sum than it says"
	}
	return p.couple(coupling)
}

// header reads a frame's header, and returns how its channels are coupled.
func (p *flacFrames) header() (coupling int, why string) {
	r := &p.r
	if r.read(15) != 0x7ffc {
		return 0, "does not begin as one"
	}
	r.read(1) // frames of one size or of several: no difference here
	size, rate := r.read(4), r.read(4)
	coupling = int(r.read(4))
	bits := r.read(3)
	r.read(1)
	for first := r.read(8); first&0xc0 == 0xc0; first = first << 1 & 0xff { // the frame's number, in the manner of UTF-8
		r.read(8)
	}
	switch {
	case size == 0:
		return 0, "has a size that is reserved"
	case size == 1:
		p.size = 192
	case size < 6:
		p.size = 576 << (size - 2)
	case size < 8:
		p.size = int(r.read(8*(uint(size)-5))) + 1
	default:
		p.size = 256 << (size - 8)
	}
	hertz := [...]int{p.Rate, 88_200, 176_400, 192_000, 8000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000, 0, 0, 0, -1}[rate]
	switch rate {
	case 12:
		hertz = 1000 * int(r.read(8))
	case 13:
		hertz = int(r.read(16))
	case 14:
		hertz = 10 * int(r.read(16))
	}
	r.read(8) // the sum
	channels := coupling + 1
	if coupling >= 8 {
		channels = 2
	}
	depth := [...]int{p.Bits, 8, 12, -1, 16, 20, 24, 32}[bits]
	switch {
	case r.short:
		return 0, "ends in its header"
	case hertz != p.Rate || depth != p.Bits || channels != p.Channels || coupling > 10:
		return 0, "has other channels, bits or another rate than the file"
	}
	return coupling, ""
}

// couple makes the two channels of what they have in common and their difference, and
// checks that all values have the bits that they may have.
func (p *flacFrames) couple(coupling int) (why string) {
	a, b := p.channels[0], p.channels[1]
	for i := range p.size {
		switch coupling {
		case 8:
			b[i] = a[i] - b[i]
		case 9:
			a[i] += b[i]
		case 10:
			twice := a[i]<<1 | b[i]&1
			a[i], b[i] = (twice+b[i])>>1, (twice-b[i])>>1
		}
	}
	limit := int64(1) << (p.Bits - 1)
	for c := range p.Channels {
		for _, v := range p.channels[c] {
			if v < -limit || v >= limit {
				return "has a sample beyond its bits"
			}
		}
	}
	return ""
}

// subframe reads one channel of a frame.
func (p *flacFrames) subframe(to []int64, bits int) (why string) {
	r := &p.r
	if r.read(1) != 0 {
		return "has a channel that does not begin as one"
	}
	kind, wasted := int(r.read(6)), uint(0)
	if r.read(1) == 1 {
		wasted = uint(r.zeros()) + 1
	}
	if bits -= int(wasted); bits < 1 || r.short {
		return "has a channel without bits, or ends early"
	}
	switch {
	case kind == 0:
		v := r.signed(uint(bits))
		for i := range to {
			to[i] = v
		}
	case kind == 1:
		for i := range to {
			to[i] = r.signed(uint(bits))
		}
	case kind >= 8 && kind <= 12:
		why = p.predicted(to, bits, kind-8, false)
	case kind >= 32:
		why = p.predicted(to, bits, kind-31, true)
	default:
		return "has a channel of a kind that is reserved"
	}
	for i := range to {
		to[i] <<= wasted
	}
	return why
}

// fixedWeights are those of the predictors without weights of their own, the nearest
// sample first.
var fixedWeights = [5][]int64{{}, {1}, {2, -1}, {3, -3, 1}, {4, -6, 4, -1}}

// predicted reads a channel whose samples are predicted from those before: the first ones, the weights if
// there are any, and what the others are off by.
func (p *flacFrames) predicted(to []int64, bits, order int, weighted bool) (why string) {
	r := &p.r
	if order > len(to) {
		return "is shorter than its prediction"
	}
	for i := range order {
		to[i] = r.signed(uint(bits))
	}
	var own [32]int64
	weights, shift := own[:order], uint64(0)
	if weighted {
		precision := uint(r.read(4)) + 1
		shift = r.read(5)
		if precision > 15 || shift > 15 {
			return "has weights that are reserved"
		}
		for i := range weights {
			weights[i] = r.signed(precision)
		}
	} else {
		weights = fixedWeights[order]
	}
	if why := p.residuals(to, order); why != "" {
		return why
	}
	for i := order; i < len(to); i++ {
		sum := int64(0)
		for k, w := range weights {
			sum += w * to[i-1-k]
		}
		to[i] += sum >> shift
	}
	return ""
}

// residuals reads the values behind the first ones, by partitions with a parameter of
// their own.
func (p *flacFrames) residuals(to []int64, first int) (why string) {
	r := &p.r
	method, order := r.read(2), int(r.read(4))
	if method > 1 {
		return "has a coding that is reserved"
	}
	size := len(to) >> order
	if size<<order != len(to) || size < first {
		return "has parts that do not fit"
	}
	width := 4 + uint(method)
	for end := size; end <= len(to); end += size {
		k := uint(r.read(width))
		part := to[first:end]
		if k == 1<<width-1 { // not coded
			n := uint(r.read(5))
			for i := range part {
				part[i] = r.signed(n)
			}
		} else {
			for i := range part {
				v := r.zeros()<<k | r.read(k)
				part[i] = int64(v>>1) ^ -int64(v&1)
			}
		}
		if r.short {
			return "ends early"
		}
		first = end
	}
	return ""
}

// bitReader reads bits, the highest of a byte first. Behind the end they are zeros, and
// short is set.
type bitReader struct {
	data  []byte
	at    int // byte
	word  uint64
	left  uint // bits of word, which are its lowest
	short bool
}

// read returns n bits, at most 56.
func (r *bitReader) read(n uint) uint64 {
	for r.left < n {
		r.word <<= 8
		if r.at < len(r.data) {
			r.word |= uint64(r.data[r.at])
		} else {
			r.short = true
		}
		r.at++
		r.left += 8
	}
	r.left -= n
	v := r.word >> r.left & (1<<n - 1)
	return v
}

// signed returns n bits, at most 56, of which the highest is the sign.
func (r *bitReader) signed(n uint) int64 { return int64(r.read(n)<<(64-n)) >> (64 - n) }

// zeros counts the bits before the next 1, which it passes.
func (r *bitReader) zeros() (n uint64) {
	for r.read(1) == 0 {
		if n++; r.short {
			return n
		}
	}
	return n
}

// align passes the rest of a byte.
func (r *bitReader) align() { r.left -= r.left % 8 }

var crc8Table, crc16Table = crcTables()

func crcTables() (t8 [256]byte, t16 [256]uint16) {
	for i := range 256 {
		a, b := byte(i), uint16(i)<<8
		for range 8 {
			a, b = a<<1^a>>7*0x07, b<<1^b>>15*0x8005
		}
		t8[i], t16[i] = a, b
	}
	return t8, t16
}

func crc8(data []byte) (sum byte) {
	for _, b := range data {
		sum = crc8Table[sum^b]
	}
	return sum
}

func crc16(data []byte) (sum uint16) {
	for _, b := range data {
		sum = sum<<8 ^ crc16Table[byte(sum>>8)^b]
	}
	return sum
}
