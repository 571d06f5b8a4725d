package functions_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/functions"
	"github.com/millrace-data/millrace/internal/imaging"
	"github.com/millrace-data/millrace/internal/media/ffmpeg"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/internal/testdata"
	"github.com/millrace-data/millrace/jobspec"
)

// opened is the function of a step that runs FFmpeg.
func opened(t *testing.T, seed uint64, step jobspec.Transform) *transform.Function {
	t.Helper()
	for _, name := range []string{"ffmpeg", "ffprobe"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not in PATH (apt-get install ffmpeg)", name)
		}
	}
	set := &functions.Set{Workers: 2}
	t.Cleanup(set.Close)
	f, err := set.Open(seed, &jobspec.Source{Name: "videos", Transforms: []jobspec.Transform{step}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// called is what a function makes of values, a record each.
func called(t *testing.T, f *transform.Function, values ...format.Value) (made []format.Record) {
	t.Helper()
	in := &format.Batch{}
	for i, v := range values {
		in.Add(&format.Record{Row: int64(i), Values: []format.Value{v}})
	}
	out, _, err := f.Caller.Call(t.Context(), in)
	if err != nil || out.Len() != len(values) {
		t.Fatal(out, err)
	}
	made = make([]format.Record, out.Len())
	for i := range made {
		out.Record(i, &made[i])
	}
	return made
}

func video(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testdata.Dir(t), "audio-video", "lhotse", "big_buck_bunny_small.mp4"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestFrames: the array is what Decoder.AppendArray makes of each frame that FFmpeg gives, with one chance for all.
func TestFrames(t *testing.T) {
	data := video(t) // 25 frames a second
	file := format.Value{Kind: format.Bytes, Bytes: data}
	step := &jobspec.Frames{
		Pixels: jobspec.Pixels{Column: "mp4", Resize: "shortest", Size: []int{40}, Crop: []int{32, 38}, CropAt: "center", Filter: "bicubic", MaxDecodedPixels: 1 << 20},
		Every:  10, From: "1", To: "2.5", MaxFrames: 3, MaxSeconds: 60, MaxBytes: 1 << 20, Timeout: 60, Memory: 512 << 20,
	}
	f := opened(t, 1, step)
	made := called(t, f, file, format.Value{}, format.Value{Kind: format.Bytes, Bytes: data[:len(data)/2]}, format.Value{Kind: format.String, Bytes: data})
	tool, err := ffmpeg.FindBoth(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all, err := tool.Frames(t.Context(), data, 1, 60, ffmpeg.Limits{Output: 64 << 20, Pixels: 1 << 20, Memory: 512 << 20, Time: 60e9})
	if err != nil {
		t.Fatal(err)
	}
	var d imaging.Decoder
	var want []byte
	for _, at := range []int{25, 35, 45} {
		if want, _, _, err = d.AppendArray(want, all[at], &imaging.Shape{Resize: "shortest", Height: 40, Width: 40, Crop: "center", CropHeight: 32, CropWidth: 38, Std: [3]float64{1, 1, 1}}, 0); err != nil {
			t.Fatal(err)
		}
	}
	got := made[0].Values[0].Bytes
	if header := string(got[:128]); !strings.Contains(header, "'descr': '|u1', 'fortran_order': False, 'shape': (3, 32, 38, 3), }") || !bytes.Equal(got[128:], want) {
		t.Errorf("%.128q, and other values", got)
	}
	if made[1].Values[0].Kind != format.Null || fault.ClassOf(made[2].Err) != fault.User || !strings.Contains(fmt.Sprint(made[3].Err), "holds no bytes") {
		t.Errorf("null, cut off, text: %v, %v, %v", made[1].Values, made[2].Err, made[3].Err)
	}
	step.MaxBytes = 2*32*38*3 + 200
	if made := called(t, opened(t, 1, step), file); made[0].Err == nil || !strings.Contains(made[0].Err.Error(), "raise max_bytes") {
		t.Error(made[0].Err)
	}
	step.MaxBytes, step.Every, step.Uniform, step.To, step.Duration, step.CropAt = 1<<20, 0, 9, "", "0.1", "random"
	seen := map[string]bool{}
	for seed := range uint64(4) {
		got := called(t, opened(t, seed, step), file)[0].Values[0].Bytes
		frames := got[128:]
		if n := len(frames) / 9; !strings.Contains(string(got[:128]), "(9, 32, 38, 3)") || !bytes.Equal(frames[:n], frames[n:2*n]) || bytes.Equal(frames[:n], frames[8*n:]) {
			t.Errorf("%.128q: a clip of three frames, in nine parts", got)
		}
		seen[string(frames)] = true
	}
	if len(seen) == 1 {
		t.Error("no chance in the crop")
	}
}

func TestProbe(t *testing.T) {
	f := opened(t, 1, &jobspec.Probe{Column: "mp4", Timeout: 60, Memory: 512 << 20})
	made := called(t, f, format.Value{Kind: format.Bytes, Bytes: video(t)}, format.Value{}, format.Value{Kind: format.Bytes, Bytes: []byte("hello")})
	var got []string
	for i, v := range made[0].Values {
		got = append(got, fmt.Sprint(f.Out[i].Name, " ", v.Int, v.Float, string(v.Bytes)))
	}
	if text := strings.Join(got, ", "); text != "mp4.seconds 0 5.312, mp4.video 0 0h264, mp4.width 320 0, mp4.height 240 0, mp4.fps 0 25, mp4.sound 0 0aac, mp4.rate 48000 0, mp4.channels 6 0" {
		t.Error(text)
	}
	if len(made[1].Values) != 8 || made[1].Values[0].Kind != format.Null || fault.ClassOf(made[2].Err) != fault.User {
		t.Error(made[1].Values, made[2].Err)
	}
}
