package ffmpeg_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/imaging"
	"github.com/millrace-data/millrace/internal/media/ffmpeg"
	"github.com/millrace-data/millrace/internal/testdata"
)

func findBoth(t testing.TB) *ffmpeg.Tool {
	t.Helper()
	find(t)
	if _, err := exec.LookPath("ffprobe"); err != nil {
		t.Skip("ffprobe is not in PATH (apt-get install ffmpeg)")
	}
	tool, err := ffmpeg.FindBoth(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

func seconds(text string) *big.Rat {
	v, _ := new(big.Rat).SetString(text)
	return v
}

// grays are the numbers of the frames that a choice takes of a video whose frame n is gray, 16 + 7 * n.
func grays(t testing.TB, tool *ffmpeg.Tool, video []byte, c ffmpeg.Choice) (numbers []int, err error) {
	t.Helper()
	err = tool.Clip(t.Context(), video, c, limits, func(number, times int, bmp []byte) error {
		var d imaging.Decoder
		values, _, _, err := d.AppendArray(nil, bmp, &imaging.Shape{Gray: true}, 0)
		if number == 0 {
			numbers = nil
		}
		for range times {
			numbers = append(numbers, (int(values[100])*219/255+3)/7)
		}
		return err
	})
	return numbers, err
}

const gray = ",geq=lum='16+7*N':cb=128:cr=128"

// TestClip takes frames by number, by time, and by how they are coded, of containers that say when a frame is
// shown in several ways: what is expected follows from the numbers alone.
func TestClip(t *testing.T) {
	tool := findBoth(t)
	all := "color=c=black:s=64x48:r=10:d=3" + gray
	key := []int{0, 12, 24}
	for name, video := range map[string][]byte{
		"mkv":                   made(t, tool, "v.mkv", "-i", all, "-c:v", "mpeg4", "-g", "12", "-qscale:v", "1"),
		"mp4 with B-frames":     made(t, tool, "v.mp4", "-i", all, "-c:v", "mpeg4", "-g", "12", "-bf", "2", "-qscale:v", "1"),
		"avi, without times":    made(t, tool, "v.avi", "-i", all, "-c:v", "mpeg4", "-g", "12", "-qscale:v", "1"),
		"ts, from 1.4 s on":     made(t, tool, "v.ts", "-i", all, "-c:v", "mpeg2video", "-g", "12", "-qscale:v", "1"),
		"mp4 from 100 s on":     made(t, tool, "v.mp4", "-i", all, "-c:v", "mpeg4", "-g", "12", "-qscale:v", "1", "-output_ts_offset", "100"),
		"rational rate, no end": made(t, tool, "v.mkv", "-i", strings.Replace(all, "r=10", "r=10000/1001", 1), "-frames:v", "30", "-c:v", "mpeg4", "-g", "12", "-qscale:v", "1"),
	} {
		for i, c := range []struct {
			choice ffmpeg.Choice
			want   []int
		}{
			{ffmpeg.Choice{Most: 100}, key},
			{ffmpeg.Choice{Most: 2}, key[:2]},
			{ffmpeg.Choice{Most: 9, From: seconds("0.5")}, key[1:]},
			{ffmpeg.Choice{Every: 7, Most: 100}, []int{0, 7, 14, 21, 28}},
			{ffmpeg.Choice{Every: 7, Most: 3}, []int{0, 7, 14}},
			{ffmpeg.Choice{Every: 4, Most: 100, From: seconds("1.21"), To: seconds("2.2")}, []int{13, 17, 21}},
			{ffmpeg.Choice{Every: 1, Most: 100, From: seconds("2.6"), Duration: seconds("9")}, []int{26, 27, 28, 29}},
			{ffmpeg.Choice{Uniform: 3}, []int{5, 15, 25}},
			{ffmpeg.Choice{Uniform: 5, From: seconds("1.31"), Duration: seconds("0.19")}, []int{13, 13, 14, 14, 14}},
			{ffmpeg.Choice{Rate: seconds("5/2"), Most: 100}, []int{0, 4, 8, 12, 16, 20, 24, 28}},
			{ffmpeg.Choice{Rate: seconds("20"), Most: 5, From: seconds("2.01")}, []int{20, 20, 21, 21, 22}},
		} {
			if name != "mp4 with B-frames" && i%4 != len(name)%4 {
				continue // a process takes its time to start: the others try some
			}
			if strings.HasPrefix(name, "rational") && (c.choice.Rate != nil || c.choice.Uniform > 0 || c.choice.From != nil) {
				continue // by other times
			}
			got, err := grays(t, tool, video, c.choice)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%s: %+v: frames %v, %v; want %v", name, c.choice, got, err, c.want)
			}
		}
	}
}

// TestClipTimes: frames that are shown for times of their own, against a search through all of them.
func TestClipTimes(t *testing.T) {
	tool := findBoth(t)
	video := made(t, tool, "v.mkv", "-i", "color=c=black:s=64x48:r=100:d=0.3"+gray+",settb=1/1000,setpts='floor(N*N*10/3)'", "-vsync", "vfr", "-enc_time_base", "1/1000", "-c:v", "mpeg4", "-qscale:v", "1")
	shown := func(ms int) (n int) {
		for n = 29; n*n*10/3 > ms; n-- {
		}
		return n
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		from, parts := rng.IntN(2500), 1+rng.IntN(40)
		got, err := grays(t, tool, video, ffmpeg.Choice{Uniform: parts, From: big.NewRat(int64(from), 1000), Duration: seconds("0.1")})
		var want []int
		for k := range parts {
			want = append(want, shown(from+(2*k+1)*100/(2*parts)))
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%d frames from %d ms: %v, %v; want %v", parts, from, got, err, want)
		}
	}
}

// TestClipOfFiles: what is taken from the middle of real videos is what decoding all of them gives there.
func TestClipOfFiles(t *testing.T) {
	tool := findBoth(t)
	dir := filepath.Join(testdata.Dir(t), "audio-video")
	for _, name := range []string{"data-juicer/video1.mp4", "lhotse/big_buck_bunny_small.mp4", "llama-factory/mllm_demo_data/2.avi", "energon/sync_test.mp4"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		all, err := tool.Frames(t.Context(), data, 1, 130, ffmpeg.Limits{Output: 256 << 20, Pixels: 1 << 22, Memory: 512 << 20, Time: limits.Time})
		if err != nil {
			t.Fatal(name, err)
		}
		for _, from := range []string{"0", "2.5"} {
			facts, err := tool.Facts(t.Context(), data, limits)
			at, _ := seconds(from).Float64()
			number := int(math.Ceil(at * facts.Rate))
			if err != nil {
				t.Fatal(err)
			}
			c := ffmpeg.Choice{Every: 9, Most: 4, From: seconds(from)}
			var taken [][]byte
			if err := tool.Clip(t.Context(), data, c, limits, func(_, _ int, bmp []byte) error {
				taken = append(taken, bytes.Clone(bmp))
				return nil
			}); err != nil || len(taken) != 4 {
				t.Errorf("%s from %s: %d frames, %v", name, from, len(taken), err)
				continue
			}
			for i, bmp := range taken {
				if at := number + 9*i; at >= len(all) || !bytes.Equal(all[at], bmp) {
					t.Errorf("%s from %s: frame %d is not number %d of the video", name, from, i, at)
				}
			}
		}
	}
}

// TestClipMemory: of thousands of frames only the wanted ones come here, one at a time.
func TestClipMemory(t *testing.T) {
	tool := findBoth(t)
	video := made(t, tool, "v.mkv", "-i", "testsrc=s=160x120:r=100:d=40", "-c:v", "mpeg4")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	frames := 0
	err := tool.Clip(t.Context(), video, ffmpeg.Choice{Uniform: 16}, limits, func(int, int, []byte) error { frames++; return nil })
	runtime.ReadMemStats(&after)
	all := uint64(4000 * 160 * 120 * 3)
	if took := after.TotalAlloc - before.TotalAlloc; err != nil || frames != 16 || took > all/20 {
		t.Errorf("%d frames, %v; %d bytes were allocated, the frames of the video have %d", frames, err, took, all)
	}
}

// TestClipRefused: videos that are cut off or damaged, clips that are not there, and an error of the caller.
func TestClipRefused(t *testing.T) {
	tool := findBoth(t)
	whole := made(t, tool, "v.mp4", "-i", "testsrc=s=160x120:r=25:d=4", "-c:v", "mpeg4", "-movflags", "faststart")
	mkv := made(t, tool, "v.mkv", "-i", "testsrc=s=160x120:r=25:d=4", "-c:v", "mpeg4")
	damaged := bytes.Clone(whole)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := len(damaged) / 3; i < len(damaged)/3+20000; i++ {
		damaged[i] = byte(rng.Uint32())
	}
	every := ffmpeg.Choice{Every: 1, Most: 1000}
	for _, c := range []struct {
		name string
		data []byte
		c    ffmpeg.Choice
		want string
	}{
		{"a sound", made(t, tool, "s.wav", "-i", "sine=d=1"), every, "it has no video"},
		{"text", []byte("no video at all"), every, "ffmpeg refuses it"},
		{"cut off", whole[:len(whole)/2], every, "the file is cut off"},
		{"cut off, mkv", mkv[:len(mkv)/2], every, "the file is cut off"},
		{"damaged", damaged, every, "ffmpeg refuses it"},
		{"too long", whole, ffmpeg.Choice{Every: 1, Most: 9, Seconds: 3}, "a video of 4.00 seconds is longer than 3"},
		{"no such clip", whole, ffmpeg.Choice{Every: 1, Most: 9, From: seconds("4")}, "the clip begins at 4.00 seconds, and the video has 4.00"},
		{"no key frame", whole, ffmpeg.Choice{Most: 9, From: seconds("0.01"), To: seconds("0.2")}, "no such frame is shown from 0.01 to 0.20 seconds"},
	} {
		for range 2 {
			err := tool.Clip(t.Context(), c.data, c.c, limits, func(int, int, []byte) error { return nil })
			if fault.ClassOf(err) != fault.User || err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "@ 0x") {
				t.Errorf("%s: class %v: %v", c.name, fault.ClassOf(err), err)
			}
		}
	}
	enough := fault.Userf("enough")
	if err := tool.Clip(t.Context(), whole, every, limits, func(int, int, []byte) error { return enough }); err != enough {
		t.Error(err)
	}
	small := limits
	small.Pixels = 1000
	if err := tool.Clip(t.Context(), whole, every, small, func(int, int, []byte) error { return nil }); fault.ClassOf(err) != fault.User || err == nil {
		t.Error(err)
	}
	corrupt, err := filepath.Glob(filepath.Join(testdata.Dir(t), "corrupt", "mp4", "*"))
	if err != nil || len(corrupt) < 20 {
		t.Fatal(len(corrupt), err)
	}
	for i, name := range corrupt {
		if i%4 > 0 {
			continue // a process takes its time to start
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		err = tool.Clip(t.Context(), data, ffmpeg.Choice{Uniform: 2}, limits, func(int, int, []byte) error { return nil })
		if err != nil && fault.ClassOf(err) != fault.User {
			t.Errorf("%s: class %v: %v", name, fault.ClassOf(err), err)
		}
	}
}

// TestMost takes as many frames as an array may have, by one argument.
func TestMost(t *testing.T) {
	tool := findBoth(t)
	video := made(t, tool, "v.mkv", "-i", "color=s=16x16:r=1000:d=3", "-c:v", "mpeg4", "-output_ts_offset", "10000000")
	frames := 0
	err := tool.Clip(t.Context(), video, ffmpeg.Choice{Every: 2, Most: 1024}, limits, func(int, int, []byte) error { frames++; return nil })
	if err != nil || frames != 1024 {
		t.Errorf("%d frames, %v", frames, err)
	}
}

func TestFacts(t *testing.T) {
	tool := findBoth(t)
	dir := filepath.Join(testdata.Dir(t), "audio-video")
	for name, want := range map[string]ffmpeg.Facts{
		"data-juicer/video1.mp4":    {Seconds: 11.764, Video: "h264", Sound: "aac", Width: 640, Height: 360, Rate: 24, Samples: 44100, Channels: 2},
		"lhotse/stereo.opus":        {Seconds: 0.0, Sound: "opus", Samples: 48000, Channels: 2},
		"whisper/jfk.flac":          {Seconds: 11, Sound: "flac", Samples: 44100, Channels: 2},
		"energon/sync_test.mp4":     {Seconds: 63.069, Video: "h264", Sound: "aac", Width: 192, Height: 108, Rate: 30, Samples: 0, Channels: 0},
		"lhotse/LJ002-0020.wav":     {Sound: "pcm_s16le", Samples: 22050, Channels: 1},
		"nemo-curator/audio_1.opus": {Sound: "opus", Samples: 48000, Channels: 2},
	} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := tool.Facts(t.Context(), data, limits)
		if want.Seconds == 0 && got.Seconds > 0.5 {
			want.Seconds = got.Seconds
		}
		if want.Samples == 0 && got.Samples > 8000 && got.Channels > 0 {
			want.Samples, want.Channels = got.Samples, got.Channels
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
	}
	if _, err := tool.Facts(t.Context(), []byte("hello"), limits); fault.ClassOf(err) != fault.User || err == nil {
		t.Error(err)
	}
}

// ExampleTool_Clip takes two frames of a video.
func ExampleTool_Clip() {
	tool, err := ffmpeg.FindBoth(context.Background())
	if err == nil {
		err = tool.Clip(context.Background(), []byte("this is no video"), ffmpeg.Choice{Uniform: 2}, limits, func(number, times int, bmp []byte) error {
			fmt.Println(number, len(bmp))
			return nil
		})
	}
	fmt.Println(fault.ClassOf(err) == fault.User)
	// Output: true
}
