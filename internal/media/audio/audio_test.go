package audio

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/testdata"
)

// ExampleDecoder_Decode gives a file of two channels at 8 kHz as one channel at 16 kHz.
func ExampleDecoder_Decode() {
	file := wavOf(1, 2, 8000, 16, []byte{0, 64, 0, 0, 0, 64, 0, 0, 0, 64, 0, 0}) // 1/2 and 0, three times
	var d Decoder
	wave, err := d.Decode(file, Form{Rate: 8000, Mono: true})
	fmt.Println(wave.Rate, wave.Channels, wave.Samples, err)
	fmt.Println(wave.AppendInt16(nil))
	wave, err = d.Decode(file, Form{Rate: 16000})
	fmt.Println(wave.Rate, wave.Channels, wave.Samples, err)
	// Output:
	// 8000 1 3 <nil>
	// [0 32 0 32 0 32]
	// 16000 2 6 <nil>
}

// wavOf is a WAV file with an odd chunk before its samples.
func wavOf(kind, channels, rate, bits int, data []byte) []byte {
	b := []byte("RIFF\x00\x00\x00\x00WAVELIST\x03\x00\x00\x00abc\x00fmt \x10\x00\x00\x00")
	b = binary.LittleEndian.AppendUint16(b, uint16(kind))
	b = binary.LittleEndian.AppendUint16(b, uint16(channels))
	b = binary.LittleEndian.AppendUint32(b, uint32(rate))
	b = binary.LittleEndian.AppendUint32(b, uint32(rate*channels*bits/8))
	b = binary.LittleEndian.AppendUint16(b, uint16(channels*bits/8))
	b = binary.LittleEndian.AppendUint16(b, uint16(bits))
	b = append(b, "data"...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}

func floats(t testing.TB, data []byte, f Form) ([]float32, Wave) {
	t.Helper()
	var d Decoder
	w, err := d.Decode(data, f)
	if err != nil {
		t.Fatal(err)
	}
	bytes := w.AppendFloat32([]byte("x"))[1:]
	if len(bytes) != 4*w.Samples*w.Channels {
		t.Fatalf("%d bytes of %+v", len(bytes), w)
	}
	out := make([]float32, len(bytes)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(bytes[4*i:]))
	}
	return out, w
}

// TestKinds has the values of each kind of sample.
func TestKinds(t *testing.T) {
	bits32, bits64 := []byte{}, []byte{}
	for _, v := range []float64{0, 1, -0.5, 3e-8, 20, math.NaN(), math.Inf(-1)} {
		bits32 = binary.LittleEndian.AppendUint32(bits32, math.Float32bits(float32(v)))
		bits64 = binary.LittleEndian.AppendUint64(bits64, math.Float64bits(v))
	}
	floating := []float32{0, 1, -0.5, 1. / (1 << 25), 8, 0, -8}
	floating[3] = float32(math.RoundToEven(3e-8*(1<<24))) / (1 << 24)
	for _, c := range []struct {
		kind, bits int
		data       []byte
		want       []float32
	}{
		{1, 8, []byte{0, 128, 255, 192}, []float32{-1, 0, 127. / 128, 0.5}},
		{1, 16, []byte{0, 128, 255, 127, 0, 64}, []float32{-1, 32767. / 32768, 0.5}},
		{1, 24, []byte{0, 0, 128, 255, 255, 127, 1, 0, 0, 255, 255, 255}, []float32{-1, 8388607. / 8388608, 1. / 8388608, -1. / 8388608}},
		{1, 32, []byte{0, 0, 0, 128, 0, 0, 0, 64, 64, 0, 0, 0, 63, 0, 0, 0}, []float32{-1, 0.5, 1. / (1 << 24), 0}},
		{3, 32, bits32, floating},
		{3, 64, bits64, floating},
		{6, 8, []byte{0xd5, 0x55, 0xaa, 0x2a, 0x80}, []float32{8. / 32768, -8. / 32768, 32256. / 32768, -32256. / 32768, 5504. / 32768}},
		{7, 8, []byte{0xff, 0x7f, 0x80, 0x00, 0xf0}, []float32{0, 0, 32124. / 32768, -32124. / 32768, 120. / 32768}},
	} {
		if got, _ := floats(t, wavOf(c.kind, 1, 8000, c.bits, c.data), Form{}); !slices.Equal(got, c.want) {
			t.Errorf("kind %d of %d bits: %v, want %v", c.kind, c.bits, got, c.want)
		}
	}
}

// TestExtensible: the kind of an extended format is in its extension, and a file written to
// a pipe ends where it ends.
func TestExtensible(t *testing.T) {
	plain := wavOf(1, 1, 8000, 16, []byte{0, 64, 0, 32, 9})
	b := []byte("RIFF\xff\xff\xff\xffWAVEfmt \x28\x00\x00\x00\xfe\xff")
	b = append(b, plain[34:48]...) // channels to bits
	b = append(b, 22, 0, 16, 0, 4, 0, 0, 0, 1, 0)
	b = append(b, make([]byte, 14)...)
	b = append(b, "data\xff\xff\xff\xff\x00\x40\x00\x20\x09"...)
	for _, file := range [][]byte{plain, b} {
		if got, _ := floats(t, file, Form{}); !slices.Equal(got, []float32{0.5, 0.25}) {
			t.Errorf("%v", got)
		}
	}
}

// TestUnfinished: sizes that a recorder or a pipe never knew. What is there is read to its end, unless chunks follow.
func TestUnfinished(t *testing.T) {
	whole := wavOf(1, 1, 8000, 16, []byte{0, 64, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0})
	const riff, head = 4, 56
	for _, c := range []struct {
		name       string
		riff, size uint32
		behind     string
		want       int // samples
	}{
		{"never finished", 0, 0, "", 6},
		{"never finished, but for what is before the samples", head - 8, 0, "", 6},
		{"a RIFF that is right", uint32(len(whole) - 8), 0, "", 6},
		{"SoX", 0x7ffff000, 0x7ffff000 - 36, "", 6},
		{"the most with a sign", 0x7fffffff, 0x7fffffff - 36, "", 6},
		{"the most with its header", 0xffffffff, 0xffffffff - 36, "", 6},
		{"the most", 0xffffffff, 0xffffffff, "", 6},
		{"the right size", 0, 12, "LIST\x04\x00\x00\x00abcd", 6},
		{"empty", head - 8, 0, "LIST\x04\x00\x00\x00abcd", 0},
	} {
		data := slices.Clone(whole)
		binary.LittleEndian.PutUint32(data[riff:], c.riff)
		binary.LittleEndian.PutUint32(data[head-4:], c.size)
		if c.want == 0 {
			data = data[:head]
		}
		w, err := new(Decoder).Decode(append(data, c.behind...), Form{})
		if err != nil || w.Samples != c.want {
			t.Errorf("%s: %d samples, %v; want %d", c.name, w.Samples, err, c.want)
		}
	}
	binary.LittleEndian.PutUint32(whole[head-4:], 0x7ffff000-37)
	if _, err := new(Decoder).Decode(whole, Form{}); err == nil || !strings.Contains(err.Error(), "holds 6 samples of the") {
		t.Error(err)
	}
}

// TestGrown: a header of one sample a second makes gigabytes of a few of them at a usual rate.
func TestGrown(t *testing.T) {
	few := wavOf(1, 64, 1, 8, make([]byte, 64*140))
	for _, c := range []struct {
		form Form
		want string
	}{
		{Form{Rate: 16000}, "a wav file of 140 samples in each of 64 channels, 1 a second, becomes 143360000 in all at 16000 a second, more than 134217728"},
		{Form{Rate: 16000, Seconds: 139}, "becomes 143360000 in all"},
		{Form{Rate: 16000, Mono: true}, ""},
		{Form{}, ""},
	} {
		room := &testdata.Room{}
		d := Decoder{Room: room}
		w, err := d.Decode(few, c.form)
		if c.want == "" && (err != nil || w.Samples != 140*max(c.form.Rate, 1)) || c.want != "" && (fault.ClassOf(err) != fault.User || !strings.Contains(fmt.Sprint(err), c.want) || room.Asked != 0) {
			t.Errorf("%+v: %d samples, %v, %d bytes were asked for", c.form, w.Samples, err, room.Asked)
		}
	}
	most := Info{Format: "flac", Rate: 1, Channels: 2}
	if asked := most.memory(Form{Rate: MaxRate}, true); asked > 4*sampleBytes*MaxSamples*9/4 {
		t.Errorf("%d bytes are asked for a file whose waveform is bounded", asked)
	}
}

// TestOutputs rounds and clips.
func TestOutputs(t *testing.T) {
	w := Wave{Channels: 1, samples: []int32{255, 256, -256, -257, 1 << 24, -1 << 24, most, -most, -1 << 23}}
	var got []int16
	for b := range slices.Chunk(w.AppendInt16(nil), 2) {
		got = append(got, int16(binary.LittleEndian.Uint16(b)))
	}
	if !slices.Equal(got, []int16{0, 1, 0, -1, 32767, -32768, 32767, -32768, -16384}) {
		t.Error(got)
	}
	if m := mean([]int32{1, 2, -1, -2, 5, 5, -3, 0}, 2); !slices.Equal(m, []int32{2, -1, 5, -1}) {
		t.Error(m)
	}
}

// tone is a sine of 16 bits.
func tone(rate, n int, hz float64) []byte {
	var b []byte
	for i := range n {
		b = binary.LittleEndian.AppendUint16(b, uint16(int16(math.Round(16000*math.Sin(2*math.Pi*hz*float64(i)/float64(rate))))))
	}
	return wavOf(1, 1, rate, 16, b)
}

// TestResample: a tone below the edge is the same tone at the other rate, in place; one above the lower
// Nyquist frequency is gone; and constants stay what they are.
func TestResample(t *testing.T) {
	for _, r := range [][2]int{{44100, 16000}, {48000, 16000}, {8000, 16000}, {22050, 16000}, {16000, 44100}, {11127, 16000}, {96000, 8000}} {
		lower := float64(min(r[0], r[1])) / 2
		const n = 6000
		got, w := floats(t, tone(r[0], n, lower*0.8), Form{Rate: r[1]})
		if want := (n*r[1] + r[0] - 1) / r[0]; len(got) != want || w.Rate != r[1] {
			t.Errorf("%v: %d samples, want %d", r, len(got), want)
		}
		edge := len(got) / 8
		worst := 0.0
		for i := edge; i < len(got)-edge; i++ {
			want := 16000. / 32768 * math.Sin(2*math.Pi*lower*0.8*float64(i)/float64(r[1]))
			worst = max(worst, math.Abs(float64(got[i])-want))
		}
		if worst > 1e-4 { // the tone's own rounding is 1.5e-5
			t.Errorf("%v: a tone is off by %g", r, worst)
		}
		if r[0] > r[1] {
			got, _ := floats(t, tone(r[0], n, min(lower*1.05, float64(r[0])/2*0.99)), Form{Rate: r[1]})
			for i := edge; i < len(got)-edge; i++ {
				if math.Abs(float64(got[i])) > 1e-4 {
					t.Fatalf("%v: what would alias is %g", r, got[i])
				}
			}
		}
		same := []byte{}
		for range n {
			same = append(same, 0, 64)
		}
		flat, _ := floats(t, wavOf(1, 1, r[0], 16, same), Form{Rate: r[1]})
		for i := edge; i < len(flat)-edge; i++ {
			if flat[i] != 0.5 {
				t.Fatalf("%v: a constant of 0.5 becomes %v", r, flat[i])
			}
		}
	}
}

// TestChannels: channels do not mix, and are resampled like one alone.
func TestChannels(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var both, left []byte
	for range 700 {
		l, r := uint16(rng.Uint32()), uint16(rng.Uint32())
		both = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(both, l), r)
		left = binary.LittleEndian.AppendUint16(left, l)
	}
	got, w := floats(t, wavOf(1, 2, 8000, 16, both), Form{Rate: 11025})
	want, _ := floats(t, wavOf(1, 1, 8000, 16, left), Form{Rate: 11025})
	if w.Channels != 2 || len(got) != 2*len(want) {
		t.Fatalf("%+v: %d values for %d", w, len(got), len(want))
	}
	for i := range want {
		if got[2*i] != want[i] {
			t.Fatalf("sample %d: %v, alone %v", i, got[2*i], want[i])
		}
	}
}

// TestFingerprint is a value that an unfused computation gives on every architecture.
func TestFingerprint(t *testing.T) {
	if got := fmt.Sprintf("%x", Fingerprint()); !strings.HasPrefix(got, "58b71875459a771f") {
		t.Error(got)
	}
}

// TestFilters: filters are bounded in memory, and one made again is the same.
func TestFilters(t *testing.T) {
	var d Decoder
	first, err := d.filter(44100, 16000)
	if err != nil {
		t.Fatal(err)
	}
	d.weights = maxWeights // as if there were many
	if _, err := d.filter(8000, 16000); err != nil || len(d.filters) != 1 || d.weights > 1000 {
		t.Fatal(d.weights, err)
	}
	again, err := d.filter(44100, 16000)
	if err != nil || again == first || !slices.Equal(again.weights, first.weights) {
		t.Error("the filter differs, or was never made again", err)
	}
	if _, err := d.filter(383_999, 383_998); err == nil || fault.ClassOf(err) != fault.User {
		t.Error(err)
	}
}

// TestFiles decodes real files. With ffmpeg in PATH every sample is compared with its.
func TestFiles(t *testing.T) {
	dir := filepath.Join(testdata.Dir(t), "audio-video")
	ffmpeg, _ := exec.LookPath("ffmpeg")
	for _, c := range []struct {
		file                    string
		rate, channels, samples int
	}{
		{"whisper/jfk.flac", 44100, 2, 485100},
		{"lhotse/2412-153948-0000.flac", 16000, 1, 186560},
		{"lhotse/2412-153948-0001.flac", 16000, 1, 168160},
		{"lhotse/LJ002-0020.wav", 22050, 1, 33949},
		{"lhotse/stereo.wav", 8000, 2, 8000},
		{"lhotse/real_8ch.wav", 16000, 8, 1600},
		{"llama-factory/mllm_demo_data/2.wav", 16000, 1, 46421},
		{"llama-factory/mllm_demo_data/3.flac", 16000, 1, 93680},
		{"spoken-digits/0_george_0.wav", 8000, 1, 2384},
	} {
		data, err := os.ReadFile(filepath.Join(dir, c.file))
		if err != nil {
			t.Fatal(err)
		}
		got, w := floats(t, data, Form{})
		if w.Rate != c.rate || w.Channels != c.channels || w.Samples != c.samples {
			t.Errorf("%s: %d Hz, %d channels, %d samples", c.file, w.Rate, w.Channels, w.Samples)
		}
		if ffmpeg == "" {
			continue
		}
		raw, err := exec.Command(ffmpeg, "-v", "error", "-i", filepath.Join(dir, c.file), "-f", "s32le", "-").Output()
		if err != nil || len(raw) != 4*len(got) {
			t.Fatalf("%s: ffmpeg gave %d bytes, %v", c.file, len(raw), err)
		}
		for i, v := range got {
			if want := float32(int32(binary.LittleEndian.Uint32(raw[4*i:]))) / (1 << 31); v != want {
				t.Fatalf("%s: sample %d is %v, ffmpeg's %v", c.file, i, v, want)
			}
		}
	}
}

// TestDamaged cuts and changes files: errors are of class user, and nothing panics or takes
// memory that the file does not have.
func TestDamaged(t *testing.T) {
	wav := tone(8000, 300, 440)
	flac, err := os.ReadFile(filepath.Join("testdata", "tone.flac"))
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(5, 5))
	var d Decoder
	for name, data := range map[string][]byte{"wav": wav, "flac": flac} {
		for n := range data {
			_, err := d.Decode(data[:n:n], Form{Rate: 16000, Mono: true})
			if err == nil || fault.ClassOf(err) != fault.User || len(err.Error()) > 300 {
				t.Fatalf("%s: %d of %d bytes: %v", name, n, len(data), err)
			}
		}
		for range 3000 {
			bad := slices.Clone(data)
			for range 1 + rng.IntN(3) {
				at := rng.IntN(len(bad))
				if rng.IntN(2) == 0 {
					at = rng.IntN(64)
				}
				bad[at] = byte(rng.IntN(256))
			}
			w, err := d.Decode(bad, Form{Seconds: 5})
			if err != nil && fault.ClassOf(err) != fault.User || err == nil && w.Samples > 5*w.Rate {
				t.Fatalf("%s: %+v, %v", name, w, err)
			}
		}
	}
}

// TestRefused has the errors of what is not decoded.
func TestRefused(t *testing.T) {
	long := tone(8000, 16001, 440)
	many := wavOf(1, 65, 8000, 8, make([]byte, 65))
	for want, c := range map[string]struct {
		data []byte
		f    Form
	}{
		"audio file of 0 bytes":                        {nil, Form{}},
		"this is MP3":                                  {[]byte("ID3\x04rest"), Form{}},
		"this is Ogg (Vorbis or Opus)":                 {[]byte("OggS\x00rest"), Form{}},
		"this is MP4 or M4A":                           {[]byte("\x00\x00\x00\x20ftypisom"), Form{}},
		"it begins with \"hello\"":                     {[]byte("hello"), Form{}},
		"a wav file of 3 s is longer than 2 s":         {long, Form{Seconds: 2}},
		"a wav file of 65 channels":                    {many, Form{}},
		"a wav file of kind 2 with 4 bits":             {wavOf(2, 1, 8000, 4, nil), Form{}},
		"of 0 samples a second":                        {wavOf(1, 1, 0, 16, nil), Form{}},
		"holds 16000 samples of the 16001":             {long[:len(long)-2], Form{}},
		"rate is -1; valid are":                        {long, Form{Rate: -1}},
		"383999 samples a second cannot become 383998": {wavOf(1, 1, 383_999, 16, []byte{1, 0}), Form{Rate: 383_998}},
		"a wav file of 24 bytes without samples":       {append([]byte("RIFF0000WAVE"), "fmt \x10\x00\x00\x00abcd"...), Form{}},
		"whose samples come before their format":       {append([]byte("RIFF0000WAVE"), "data\x04\x00\x00\x00abcd"...), Form{}},
		"a wav file whose format has 4 bytes":          {append([]byte("RIFF0000WAVE"), "fmt \x04\x00\x00\x00abcd"...), Form{}},
		"2 channels of 16 bits with 3 bytes for all":   {badFrame(), Form{}},
	} {
		_, err := new(Decoder).Decode(c.data, c.f)
		if err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func badFrame() []byte {
	b := wavOf(1, 2, 8000, 16, []byte{1, 2, 3, 4})
	b[44] = 3
	return b
}

// TestBomb: a small FLAC file that becomes hours of silence is refused by its header, or where the header lies
// when there is too much.
func TestBomb(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "silence.flac")) // a minute
	if err != nil {
		t.Fatal(err)
	}
	_, err = new(Decoder).Decode(data, Form{Seconds: 59})
	if err == nil || !strings.Contains(err.Error(), "a flac file of 60 s is longer than 59 s") {
		t.Error(err)
	}
	lies := slices.Clone(data)
	clear(lies[22:26]) // total samples, but for 4 bits: unknown
	lies[21] &= 0xf0
	var d Decoder
	if _, err = d.Decode(lies, Form{Seconds: 6}); err == nil || !strings.Contains(err.Error(), "longer than 6 s") || cap(d.samples) > 2*7*8000 {
		t.Errorf("%v, with memory for %d samples", err, cap(d.samples))
	}
}

// FuzzDecode looks for panics and errors that do not blame the file.
func FuzzDecode(f *testing.F) {
	f.Add(tone(8000, 30, 440))
	for _, name := range []string{"tone.flac"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var d Decoder
		w, err := d.Decode(data, Form{Mono: true, Seconds: 2})
		if err != nil && fault.ClassOf(err) != fault.User {
			t.Errorf("class %v: %v", fault.ClassOf(err), err)
		}
		if err == nil && (w.Channels != 1 || w.Samples != len(w.samples)) {
			t.Errorf("%+v of %d", w, len(w.samples))
		}
	})
}

// TestEncoders decodes what ffmpeg encodes, with its levels, sizes and kinds of samples.
func TestEncoders(t *testing.T) {
	ffmpeg, err := exec.LookPath("ffmpeg")
	if err != nil {
		t.Skip("ffmpeg is not in PATH (apt-get install ffmpeg)")
	}
	for _, options := range []string{
		"-ar 24000 -sample_fmt s16 -c:a flac -compression_level 12",
		"-ar 48000 -ac 2 -sample_fmt s32 -c:a flac -compression_level 5",
		"-ar 11127 -ac 6 -sample_fmt s16 -c:a flac -compression_level 0",
		"-ar 44100 -ac 2 -sample_fmt s16 -c:a flac -compression_level 8 -ch_mode mid_side -frame_size 192",
		"-ar 44100 -ac 2 -sample_fmt s16 -c:a flac -ch_mode left_side -lpc_type cholesky -frame_size 1000",
		"-ar 96000 -ac 2 -sample_fmt s32 -strict experimental -bits_per_raw_sample 32 -c:a flac -ch_mode right_side",
		"-ar 8000 -c:a pcm_mulaw", "-ar 8000 -c:a pcm_alaw", "-c:a pcm_u8", "-c:a pcm_s24le", "-c:a pcm_s32le", "-c:a pcm_f32le", "-c:a pcm_f64le",
	} {
		file := filepath.Join(t.TempDir(), "a.wav")
		if strings.Contains(options, "flac") {
			file = strings.Replace(file, ".wav", ".flac", 1)
		}
		source := "sine=440:sample_rate=44100:duration=0.3,volume=0.6[a];anoisesrc=d=0.3:r=44100:a=0.2:seed=3[b];[a][b]join=inputs=2:channel_layout=stereo"
		args := append([]string{"-v", "error", "-filter_complex", source}, strings.Fields(options)...)
		if out, err := exec.Command(ffmpeg, append(args, file)...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %s", options, out)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got, w := floats(t, data, Form{})
		raw, err := exec.Command(ffmpeg, "-v", "error", "-i", file, "-f", "f64le", "-").Output()
		if err != nil || len(raw) != 8*len(got) || len(got) < 1000 {
			t.Fatalf("%s: %+v, ffmpeg gave %d bytes, %v", options, w, len(raw), err)
		}
		for i, v := range got {
			want := math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:]))
			if math.Abs(float64(v)-want) > 1./(1<<25) {
				t.Fatalf("%s: sample %d is %v, ffmpeg's %v", options, i, v, want)
			}
		}
	}
}
