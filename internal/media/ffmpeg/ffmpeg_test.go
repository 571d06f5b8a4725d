package ffmpeg_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
