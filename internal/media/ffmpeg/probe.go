package ffmpeg

import (
	"bytes"
	"context"
	"crypto/sha256"
	"math/big"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
)

// FindBoth is Find, and looks for ffprobe, too. The digest is of both.
func FindBoth(ctx context.Context) (*Tool, error) {
	t, err := Find(ctx)
	if err != nil {
		return nil, err
	}
	if t.Prober, err = exec.LookPath("ffprobe"); err != nil {
		return nil, fault.Userf("ffprobe is not in PATH: install it beside ffmpeg (package ffmpeg of Debian and Ubuntu), the same version on every machine that runs loaders")
	}
	out, err := exec.CommandContext(ctx, t.Prober, "-version").Output()
	if err != nil {
		return nil, fault.Lostf("asking %s for its version: %w", t.Prober, err)
	}
	t.Digest = sha256.Sum256(append(t.Digest[:], out...))
	return t, nil
}

// cutOff is what FFmpeg says of a file that ends before its end, of MP4 and Matroska. It is no error to it.
var cutOff = regexp.MustCompile(`(?m)^.*(ended prematurely|partial file).*$`)

// early is an error if a child said that the file ends before its end.
func early(said []byte) error {
	if line := cutOff.Find(said); line != nil {
		return fault.Userf("the file is cut off: %s", words(line))
	}
	return nil
}

// Facts are what the headers of a file say. What it does not have is zero.
type Facts struct {
	Seconds       float64 // of the longest stream
	Video, Sound  string  // codecs of the first ones: h264, aac
	Width, Height int     // pixels, as shown
	Rate          float64 // frames a second, on average
	Samples       int     // of the sound, a second
	Channels      int
}

// Facts reads the headers of a file.
func (t *Tool) Facts(ctx context.Context, data []byte, l Limits) (f Facts, err error) {
	entries := "format=duration:stream=codec_type,codec_name,width,height,avg_frame_rate,sample_rate,channels:stream_disposition=attached_pic:stream_side_data=rotation"
	said := &limited{most: maxWords, drop: true}
	err = t.probe(ctx, data, []string{"-show_entries", entries}, l, said, func(kind string, field func(string) string) error {
		f.take(kind, field)
		return nil
	})
	if err == nil && f.Video+f.Sound == "" {
		err = fault.Userf("it has neither a video nor a sound")
	}
	return f, err
}

// take takes in a line of what ffprobe shows.
func (f *Facts) take(kind string, field func(string) string) {
	number := func(name string) (n int) {
		n, _ = strconv.Atoi(field(name))
		return n
	}
	switch {
	case kind == "format":
		f.Seconds, _ = strconv.ParseFloat(field("duration"), 64)
	case field("codec_type") == "video" && f.Video == "" && field("disposition:attached_pic") != "1":
		f.Video, f.Width, f.Height = field("codec_name"), number("width"), number("height")
		if number("rotation")%180 != 0 {
			f.Width, f.Height = f.Height, f.Width
		}
		if rate, ok := new(big.Rat).SetString(field("avg_frame_rate")); ok {
			f.Rate, _ = rate.Float64()
		}
	case field("codec_type") == "audio" && f.Sound == "":
		f.Sound, f.Samples, f.Channels = field("codec_name"), number("sample_rate"), number("channels")
	}
}

// probe has ffprobe show entries of a file, and calls each for every line: its kind, and its
// fields by name, "" where there is none.
func (t *Tool) probe(ctx context.Context, data []byte, show []string, l Limits, said *limited, each func(kind string, field func(name string) string) error) error {
	args := append([]string{"-hide_banner", "-v", "error"}, t.input(l)...)
	out := &lines{each: func(line []byte) error {
		fields := strings.Split(string(line), "|")
		return each(fields[0], func(name string) string {
			for _, f := range fields[1:] {
				if value, ok := strings.CutPrefix(f, name+"="); ok {
					return value
				}
			}
			return ""
		})
	}}
	return t.run(ctx, t.Prober, data, append(append(args, show...), "-of", "compact", "-i", "file:"+inputPath), out, said, l)
}

// lines is a Writer that takes its input line by line.
type lines struct {
	rest []byte
	each func(line []byte) error
}

// maxLine bounds a line: a packet's has some hundred bytes.
const maxLine = 64 << 10

func (w *lines) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		line, rest, found := bytes.Cut(w.rest, []byte("\n"))
		if !found {
			break
		}
		if err := w.each(line); err != nil {
			return 0, err
		}
		w.rest = rest
	}
	if len(w.rest) > maxLine {
		return 0, fault.Userf("ffprobe gave a line of more than %d bytes", maxLine)
	}
	return len(p), nil
}
