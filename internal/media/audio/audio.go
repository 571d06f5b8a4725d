// Package audio turns encoded sound into the waveform that a model is trained on: its
// samples at one rate, in one type, with all channels or their mean.
//
// # Formats
//
// WAV (PCM of 8, 16, 24 and 32 bits, floating point of 32 and 64, A-law and µ-law) and
// FLAC. Anything else is refused with the name of what it is, if that is known.
//
// # Samples
//
// Between decoding and output a sample is a whole number in units of 2^-24, where 1 is
// full scale: 24 bits and less are exact, and so is each value from -1 to 1 as a float32. More bits are
// rounded to that, and floating point beyond ±8 is clipped there; what is no number is 0.
//
// Mono is the mean of all channels, rounded to the nearest. It is made before the rate is
// changed. A changed rate is a convolution with a windowed sinc (32 zero crossings on each
// side, a Kaiser window of beta 9, the edge at 0.92 of the lower of the two Nyquist
// frequencies): what would alias is 80 dB down or more. A waveform of n samples at rate a
// has n*b/a at rate b, rounded up, and the first of both are at the same time.
//
// # Determinism
//
// A waveform is a function of the file's bytes and Form, the same on every architecture.
// Samples are summed in whole numbers. The weights of the filter are computed in float64,
// where no product is added to anything before it was rounded, so that no compiler fuses
// the two, and no function of the machine's mathematical library is used but the square
// root, which IEEE 754 defines to the last bit.
//
// # Damage
//
// How long a file is is read from its header, and checked before it is decoded, with what it becomes at another rate; a file
// that says it is shorter than it is ends with an error. A WAV file whose header was never finished, or was written
// to a pipe, ends where it ends. Damaged and truncated files are an
// error of class fault.User that describes the damage; the caller adds the name.
//
// The package owns no file, no goroutine and no policy about bad files.
package audio

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
)

// scaleBits is the place of the point in a sample: full scale is 1<<scaleBits.
const scaleBits = 24

// most is the greatest size of a sample, 8 times full scale.
const most = 8 << scaleBits

// Bounds on what a header may say.
const (
	MaxRate     = 384_000
	MaxChannels = 64
	MaxSamples  = 1 << 27 // of all channels together, of the file and of the waveform: 512 MiB each
)

// Form is what a waveform is wanted in.
type Form struct {
	Rate    int  // samples a second; 0 is the file's own
	Mono    bool // the mean of the channels; else all of them
	Int16   bool // else float32
	Seconds int  // longer files are refused before they are decoded; 0 is no limit
}

// Check returns an error for an invalid form.
func (f Form) Check() error {
	if f.Rate < 0 || f.Rate > MaxRate {
		return fault.Userf("rate is %d; valid are 1 to %d samples a second, or 0 for that of each file", f.Rate, MaxRate)
	}
	return nil
}

// Info is what the header of a file says.
type Info struct {
	Format   string // wav or flac
	Rate     int    // samples a second
	Channels int
	Bits     int   // of a sample
	Samples  int64 // of each channel; 0 in a FLAC file that does not say
}

// Wave is a waveform.
type Wave struct {
	Rate, Channels, Samples int // Samples are those of each channel
	samples                 []int32
}

// Decoder decodes files and reuses its memory. The zero value is ready. It is not safe for
// concurrent use.
type Decoder struct {
	// Room is asked before a file is decoded, for all that it takes until Done; nil: there is no limit. Its
	// error is returned as it is.
	Room Room

	free    func()  // gives back what Room gave; nil if that was nothing
	samples []int32 // of all channels, interleaved
	resized []int32
	filters map[[2]int]*filter
	weights int // of all filters
}

// Decode returns the waveform of a file. It is valid until the next call, and until Done is called. Errors are of
// class fault.User.
func (d *Decoder) Decode(data []byte, f Form) (Wave, error) {
	d.Done()
	if err := f.Check(); err != nil {
		return Wave{}, err
	}
	info, err := d.read(data, f)
	if err != nil {
		return Wave{}, err
	}
	w := Wave{Rate: info.Rate, Channels: info.Channels, samples: d.samples}
	if f.Mono && w.Channels > 1 {
		w.samples = mean(w.samples, w.Channels)
		w.Channels = 1
	}
	if f.Rate != 0 && f.Rate != w.Rate {
		filter, err := d.filter(w.Rate, f.Rate)
		if err != nil {
			return Wave{}, err
		}
		d.resized = filter.apply(d.resized[:0], w.samples, w.Channels)
		w.samples, w.Rate = d.resized, f.Rate
	}
	w.Samples = len(w.samples) / w.Channels
	return w, nil
}

// read decodes a file into d.samples.
func (d *Decoder) read(data []byte, f Form) (info Info, err error) {
	d.samples = d.samples[:0]
	data = behindTag(data)
	switch {
	case begins(data, "RIFF????WAVE"):
		info, err = d.wav(data, f)
	case begins(data, "fLaC"):
		info, err = d.flac(data, f)
	default:
		return info, unknown(data)
	}
	return info, err
}

// check refuses headers that no decoder here takes.
func (i Info) check(f Form) error {
	switch {
	case i.Rate < 1 || i.Rate > MaxRate:
		return fault.Userf("a %s file of %d samples a second; valid are 1 to %d", i.Format, i.Rate, MaxRate)
	case i.Channels < 1 || i.Channels > MaxChannels:
		return fault.Userf("a %s file of %d channels; valid are 1 to %d", i.Format, i.Channels, MaxChannels)
	case i.Samples*int64(i.Channels) > MaxSamples:
		return fault.Userf("a %s file of %d samples in each of %d channels is too large: at most %d in all are decoded; cut it or leave it out", i.Format, i.Samples, i.Channels, MaxSamples)
	case i.resampled(f) > MaxSamples:
		return fault.Userf("a %s file of %d samples in each of %d channels, %d a second, becomes %d in all at %d a second, more than %d: cut it or leave it out",
			i.Format, i.Samples, i.Channels, i.Rate, i.resampled(f), f.Rate, MaxSamples)
	case f.Seconds > 0 && i.Samples > int64(f.Seconds)*int64(i.Rate):
		return fault.Userf("a %s file of %d s is longer than %d s: leave it out, cut it, or raise the limit", i.Format, (i.Samples+int64(i.Rate)-1)/int64(i.Rate), f.Seconds)
	}
	return nil
}

// moments are the samples of each channel of n at another rate.
func (i Info) moments(n int64, f Form) int64 {
	if f.Rate == 0 || f.Rate == i.Rate {
		return n
	}
	return (n*int64(f.Rate) + int64(i.Rate) - 1) / int64(i.Rate)
}

// resampled are the samples of a waveform, of all channels together.
func (i Info) resampled(f Form) int64 {
	if f.Mono {
		return i.moments(i.Samples, f)
	}
	return i.moments(i.Samples, f) * int64(i.Channels)
}

// foreign lists other formats found in place of those read here, for error messages.
var foreign = []struct{ name, magic string }{
	{"MP3", "ID3"}, {"MP3", "\xff\xfb"}, {"MP3", "\xff\xf3"}, {"MP3", "\xff\xf2"}, {"MP3", "\xff\xfa"},
	{"AAC", "\xff\xf1"}, {"AAC", "\xff\xf9"},
	{"Ogg (Vorbis or Opus)", "OggS"},
	{"MP4 or M4A", "????ftyp"},
	{"Matroska or WebM", "\x1a\x45\xdf\xa3"},
	{"AIFF", "FORM????AIF"}, {"RF64", "RF64"}, {"AU", ".snd"}, {"AVI", "RIFF????AVI "},
	{"NIST SPHERE", "NIST_1A"}, {"AMR", "#!AMR"}, {"ASF or WMA", "\x30\x26\xb2\x75"},
	{"a NumPy array", "\x93NUMPY"}, {"gzip", "\x1f\x8b"},
}

func unknown(data []byte) error {
	const supported = "WAV and FLAC are decoded; a convert step before makes WAV of others"
	if len(data) == 0 {
		return fault.Userf("an audio file of 0 bytes; %s", supported)
	}
	for _, other := range foreign {
		if begins(data, other.magic) {
			return fault.Userf("this is %s, which is not decoded here; %s", other.name, supported)
		}
	}
	return fault.Userf("not a known audio format: it begins with %q; %s", data[:min(len(data), 12)], supported)
}

// behindTag is a file without an ID3v2 tag before it, if it is FLAC.
func behindTag(data []byte) []byte {
	if !begins(data, "ID3") || len(data) < 10 {
		return data
	}
	size := int(data[6]&0x7f)<<21 | int(data[7]&0x7f)<<14 | int(data[8]&0x7f)<<7 | int(data[9]&0x7f)
	if behind := data[min(10+size, len(data)):]; begins(behind, "fLaC") {
		return behind
	}
	return data
}

func begins(data []byte, magic string) bool {
	if len(data) < len(magic) {
		return false
	}
	for i := range magic {
		if magic[i] != '?' && magic[i] != data[i] {
			return false
		}
	}
	return true
}

// mean is that of the channels of each moment, rounded to the nearest, halves up, in the
// memory of samples.
func mean(samples []int32, channels int) []int32 {
	n := len(samples) / channels
	for i := range n {
		sum := int64(channels) // two halves for each channel, which rounds
		for _, v := range samples[i*channels:][:channels] {
			sum += 2 * int64(v)
		}
		twice := int64(2 * channels)
		q := sum / twice
		if sum%twice < 0 {
			q--
		}
		samples[i] = int32(q)
	}
	return samples[:n]
}

// AppendFloat32 appends the samples, those of all channels of a moment side by side, as
// little-endian float32, where full scale is 1.
func (w Wave) AppendFloat32(dst []byte) []byte {
	at := len(dst)
	dst = slices.Grow(dst, 4*len(w.samples))[:at+4*len(w.samples)]
	for i, v := range w.samples {
		binary.LittleEndian.PutUint32(dst[at+4*i:], math.Float32bits(float32(v)/(1<<scaleBits)))
	}
	return dst
}

// AppendInt16 appends the samples as little-endian int16, rounded to the nearest, halves
// up, and clipped to full scale.
func (w Wave) AppendInt16(dst []byte) []byte {
	const shift = scaleBits - 15
	at := len(dst)
	dst = slices.Grow(dst, 2*len(w.samples))[:at+2*len(w.samples)]
	for i, v := range w.samples {
		binary.LittleEndian.PutUint16(dst[at+2*i:], uint16(min(max((v+1<<(shift-1))>>shift, math.MinInt16), math.MaxInt16)))
	}
	return dst
}

// fixed brings a sample of some bits to 24 after the point.
func fixed(v int64, bits int) int32 {
	switch shift := scaleBits + 1 - bits; {
	case shift >= 0:
		return int32(v << shift)
	default:
		return int32((v + 1<<(-shift-1)) >> -shift)
	}
}

// cutOff is a file that ends too early.
func cutOff(format string, has, says int64) error {
	return fault.Userf("a %s file that holds %d samples of the %d that its header says: it is truncated or damaged", format, has, says)
}
