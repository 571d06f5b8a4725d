package ffmpeg_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/imaging"
	"github.com/millrace-data/millrace/internal/media/audio"
	"github.com/millrace-data/millrace/internal/media/ffmpeg"
	"github.com/millrace-data/millrace/internal/memory"
	"github.com/millrace-data/millrace/internal/testdata"
)

var limits = ffmpeg.Limits{Output: 64 << 20, Pixels: 1 << 22, Memory: 512 << 20, Time: time.Minute}

// Example makes WAV of a file of another format, and refuses what is none. Where there is no
// FFmpeg it says which package has it, and that is the user's to do, too.
func Example() {
	wav, err := func() ([]byte, error) {
		tool, err := ffmpeg.Find(context.Background())
		if err != nil {
			return nil, err
		}
		return tool.Sound(context.Background(), []byte("this is no sound"), 60, limits)
	}()
	fmt.Println(len(wav), fault.ClassOf(err) == fault.User)
	// Output: 0 true
}

func find(t testing.TB) *ffmpeg.Tool {
	t.Helper()
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("ffmpeg is not in PATH (apt-get install ffmpeg)")
	}
	tool, err := ffmpeg.Find(t.Context())
	if err != nil || !strings.HasPrefix(tool.Version, "ffmpeg version ") {
		t.Fatal(tool, err)
	}
	return tool
}

// made is a file that FFmpeg itself made.
func made(t testing.TB, tool *ffmpeg.Tool, name string, args ...string) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command(tool.Path, append(append([]string{"-v", "error", "-f", "lavfi"}, args...), file)...).CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestSound decodes formats that this process does not, the same each time.
func TestSound(t *testing.T) {
	tool := find(t)
	dir := filepath.Join(testdata.Dir(t), "audio-video")
	for _, c := range []struct {
		file           string
		rate, channels int
		seconds        float64
	}{
		{"lhotse/common_voice_en_651325.mp3", 48000, 1, 0}, {"lhotse/stereo.opus", 48000, 2, 0}, {"nemo-curator/audio_1.opus", 48000, 2, 60},
		{"lhotse/big_buck_bunny_small.mp4", 48000, 6, 0}, {"whisper/jfk.flac", 44100, 2, 11},
	} {
		data, err := os.ReadFile(filepath.Join(dir, c.file))
		if err != nil {
			t.Fatal(err)
		}
		wav, err := tool.Sound(t.Context(), data, 90, limits)
		if err != nil {
			t.Fatal(c.file, err)
		}
		if c.channels > 2 {
			continue
		}
		if again, err := tool.Sound(t.Context(), data, 90, limits); err != nil || !bytes.Equal(again, wav) {
			t.Errorf("%s: another result, %v", c.file, err)
		}
		var d audio.Decoder
		w, err := d.Decode(wav, audio.Form{})
		t.Logf("%s: %d Hz, %d channels, %d samples", c.file, w.Rate, w.Channels, w.Samples)
		if err != nil || w.Rate != c.rate || w.Channels != c.channels || w.Samples < w.Rate/2 || c.seconds > 0 && w.Samples < int(c.seconds*0.99*float64(w.Rate)) {
			t.Errorf("%s: %+v, %v", c.file, w.Rate, err)
		}
	}
}

// TestFrames has a video whose frames differ in their gray: every n-th, key frames, and
// no more than asked.
func TestFrames(t *testing.T) {
	tool := find(t)
	video := made(t, tool, "v.mkv", "-i", "color=c=black:s=64x48:r=10:d=3,geq=lum='16+7*N':cb=128:cr=128", "-c:v", "mpeg4", "-g", "12", "-qscale:v", "1")
	for _, c := range []struct{ every, most, want int }{{0, 100, 3}, {1, 100, 30}, {7, 100, 5}, {7, 3, 3}} {
		frames, err := tool.Frames(t.Context(), video, c.every, c.most, limits)
		if err != nil || len(frames) != c.want {
			t.Fatalf("%+v: %d frames, %v", c, len(frames), err)
		}
		step := max(c.every, 1)
		if c.every == 0 {
			step = 12
		}
		for i, f := range frames {
			var d imaging.Decoder
			values, height, width, err := d.AppendArray(nil, f, &imaging.Shape{Gray: true}, 0)
			if err != nil || height != 48 || width != 64 {
				t.Fatal(height, width, err)
			}
			if want := float64(7*i*step) * 255 / 219; float64(values[100]) < want-4 || float64(values[100]) > want+4 {
				t.Errorf("%+v: frame %d has gray %d, want %.0f", c, i, values[100], want)
			}
		}
	}
}

// TestRefused: what is refused is the file's fault, in the same words each time, and limits
// end a child.
func TestRefused(t *testing.T) {
	tool := find(t)
	video := made(t, tool, "v.mkv", "-i", "testsrc=s=320x240:r=25:d=8", "-c:v", "mpeg4")
	secret := filepath.Join(t.TempDir(), "secret.wav")
	sound := made(t, tool, "s.wav", "-i", "sine=d=1")
	if err := os.WriteFile(secret, sound, 0o600); err != nil {
		t.Fatal(err)
	}
	tight := func(change func(l *ffmpeg.Limits)) ffmpeg.Limits {
		l := limits
		change(&l)
		return l
	}
	for _, c := range []struct {
		name  string
		data  []byte
		l     ffmpeg.Limits
		class fault.Class
		want  string
	}{
		{"nothing", nil, limits, fault.User, "ffmpeg refuses it"},
		{"text", []byte("hello world, this is no video"), limits, fault.User, "ffmpeg refuses it"},
		{"a playlist", []byte("#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:1,\nfile://" + secret + "\n#EXT-X-ENDLIST\n"), limits, fault.User, "ffmpeg refuses it"},
		{"a list of files", []byte("ffconcat version 1.0\nfile 'file:" + secret + "'\n"), limits, fault.User, "ffmpeg refuses it"},
		{"a sound", sound, limits, fault.User, "ffmpeg refuses it"},
		{"too many pixels", video, tight(func(l *ffmpeg.Limits) { l.Pixels = 1000 }), fault.User, "ffmpeg refuses it"},
		{"more frames than fit", video, tight(func(l *ffmpeg.Limits) { l.Output = 1 << 20 }), fault.User, "ffmpeg gave more than 1048576 bytes"},
		{"too long", video, tight(func(l *ffmpeg.Limits) { l.Time = time.Millisecond }), fault.Lost, "ffmpeg took longer than 1ms"},
		{"too much memory", video, tight(func(l *ffmpeg.Limits) { l.Memory, l.Output = 1<<20, 1<<40 }), fault.Lost, "ffmpeg took more than 1 MiB of memory"},
	} {
		_, err := tool.Frames(t.Context(), c.data, 1, 1<<20, c.l)
		if fault.ClassOf(err) != c.class || err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "@") {
			t.Errorf("%s: class %v: %v", c.name, fault.ClassOf(err), err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := tool.Frames(ctx, video, 1, 10, limits); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Error(err)
	}
}

// TestCutOff: what FFmpeg takes for a file's end, and is none. A file that is longer than what is wanted of it is not
// looked at to its end, unless its container says how long it is.
func TestCutOff(t *testing.T) {
	tool := findBoth(t)
	moving, tone := []string{"-i", "testsrc=s=160x120:r=10:d=4", "-c:v", "mpeg4", "-g", "10"}, []string{"-i", "sine=d=4"}
	live := func(mkv []byte) []byte { // as it is sent while it is made: without a size of all
		at := bytes.Index(mkv, []byte("\x18\x53\x80\x67")) + 4
		return slices.Concat(mkv[:at], []byte("\x01\xff\xff\xff\xff\xff\xff\xff"), mkv[at+8:])
	}
	fragments := append(slices.Clone(moving), "-movflags", "frag_keyframe+empty_moov")
	for _, c := range []struct {
		name   string
		data   []byte
		frames int // that are there without its last tenth, if only 3 are wanted
	}{
		{"live.mkv", live(made(t, tool, "v.mkv", moving...)), 3},
		{"v.mkv", made(t, tool, "v.mkv", moving...), 0},
		{"v.avi", made(t, tool, "v.avi", moving...), 0},
		{"v.mp4", made(t, tool, "v.mp4", fragments...), 0},
		{"v.gif", made(t, tool, "v.gif", moving[:2]...), 0},
		{"live.mka", live(made(t, tool, "s.mka", tone...)), 0},
		{"s.wav", made(t, tool, "s.wav", append(slices.Clone(tone), "-c:a", "adpcm_ms")...), 0},
		{"s.aiff", made(t, tool, "s.aiff", tone...), 0},
	} {
		cut := c.data[:len(c.data)*9/10]
		makes := map[string]func(data []byte) (int, error){"sound": func(data []byte) (int, error) {
			wav, err := tool.Sound(t.Context(), data, 60, limits)
			return len(wav), err
		}}
		if strings.Contains(c.name, "v.") || c.name == "live.mkv" {
			makes = map[string]func(data []byte) (int, error){"frames": func(data []byte) (int, error) {
				frames, err := tool.Frames(t.Context(), data, 1, 1000, limits)
				return len(frames), err
			}, "clip": func(data []byte) (n int, err error) {
				err = tool.Clip(t.Context(), data, ffmpeg.Choice{Uniform: 3, To: seconds("0.5")}, limits, func(int, int, []byte) error { n++; return nil })
				return n, err
			}}
		}
		for what, of := range makes {
			if n, err := of(c.data); n == 0 || err != nil {
				t.Errorf("%s of %s: %d, %v", what, c.name, n, err)
			}
			if _, err := of(cut); fault.ClassOf(err) != fault.User || !strings.Contains(fmt.Sprint(err), "the file is cut off: ") {
				t.Errorf("%s of %s without its end: class %v: %v", what, c.name, fault.ClassOf(err), err)
			}
		}
		if frames, err := tool.Frames(t.Context(), cut, 1, 3, limits); len(frames) != c.frames || (err == nil) != (c.frames > 0) {
			t.Errorf("three frames of %s without its end: %d, %v", c.name, len(frames), err)
		}
	}
	sound := live(made(t, tool, "s.mka", tone...))
	if wav, err := tool.Sound(t.Context(), sound[:len(sound)*9/10], 2, limits); err != nil || len(wav) < 19*44100*4/10 {
		t.Errorf("two seconds of what is cut off later: %d bytes, %v", len(wav), err)
	}
}

// TestLease: a child asks for what it takes with its input and output, and is ended if others have the rest.
func TestLease(t *testing.T) {
	tool := find(t)
	video := made(t, tool, "v.mkv", "-i", "testsrc=s=640x480:r=25:d=20", "-c:v", "mpeg4")
	held := int64(0)
	var mu sync.Mutex
	room := memory.NewRoom(t.Context(), 40<<20, memory.Options{Count: func(bytes int64) {
		mu.Lock()
		defer mu.Unlock()
		held += bytes
	}})
	l := limits
	l.Output = 1 << 30
	for _, others := range []int64{0, 20 << 20} {
		other, err := room.Lease(t.Context(), others)
		if err == nil {
			l.Lease, err = room.Lease(t.Context(), 1)
		}
		if err != nil {
			t.Fatal(err)
		}
		if others == 0 {
			other.Free()
		}
		frames, err := tool.Frames(t.Context(), video, 1, 100, l)
		if others > 0 {
			if !errors.Is(err, ffmpeg.ErrNoRoom) || fault.ClassOf(err) != fault.Lost {
				t.Errorf("beside 20 of 40 MiB, a child gave %d frames of 0.9 MB, and %v", len(frames), err)
			}
		} else if err != nil || len(frames) != 100 || l.Lease.Bytes() < 90<<20 {
			t.Errorf("%d frames of 0.9 MB are said to take %d bytes; %v", len(frames), l.Lease.Bytes(), err)
		}
		l.Lease.Free()
		other.Free()
	}
	if held != 0 {
		t.Errorf("%d bytes are held at the end", held)
	}
}

// TestMissing says which package has it.
func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := ffmpeg.Find(t.Context()); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "package ffmpeg of Debian") {
		t.Error(err)
	}
}
