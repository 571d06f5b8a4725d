package functions

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/big"
	"slices"
	"sync/atomic"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/imaging"
	"github.com/millrace-data/millrace/internal/media/ffmpeg"
	"github.com/millrace-data/millrace/internal/media/npy"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// framer makes arrays of frames of videos. A video takes the memory of its array and of one
// frame: each frame is resized as it comes.
type framer struct {
	tool   *ffmpeg.Tool
	spec   *jobspec.Frames
	choice ffmpeg.Choice
	shape  imaging.Shape
	chance [32]byte // of the job, the source and the step
}

func (s *Set) framer(seed uint64, src *jobspec.Source, step int, spec *jobspec.Frames) (*transform.Function, error) {
	tool, err := ffmpeg.FindBoth(context.Background())
	if err != nil {
		return nil, err
	}
	f := &framer{tool: tool, spec: spec, chance: transform.ChanceOf(seed, src.Name, fmt.Sprintf("transforms[%d].frames", step))}
	if f.shape, err = transform.ShapeOf(&spec.Pixels); err != nil {
		return nil, err
	}
	if f.choice, err = choiceOf(spec); err != nil {
		return nil, err
	}
	limits := limitsOf(spec.MaxBytes, spec.MaxDecodedPixels, spec.Memory, spec.Timeout)
	decoders := imaging.Fingerprint()
	column := transform.Column{Name: spec.Column, Kind: format.Bytes, Null: true}
	return s.program(tool, column, []transform.Column{column}, sha256.Sum256(append(tool.Digest[:], decoders[:]...)), limits, f.frames), nil
}

// choiceOf is the choice of frames of a step.
func choiceOf(spec *jobspec.Frames) (c ffmpeg.Choice, err error) {
	c = ffmpeg.Choice{Uniform: spec.Uniform, Every: spec.Every, Most: spec.MaxFrames, Seconds: spec.MaxSeconds}
	for _, of := range []struct {
		name, text string
		to         **big.Rat
	}{{"from", spec.From, &c.From}, {"to", spec.To, &c.To}, {"duration", spec.Duration, &c.Duration}, {"fps", spec.FPS, &c.Rate}} {
		if of.text == "" {
			continue
		}
		if *of.to, err = jobspec.Seconds(of.text); err != nil {
			return c, fault.Userf("%s: %w", of.name, err)
		}
	}
	return c, nil
}

// arrayRoom is room for the header of an array.
const arrayRoom = 128

// frames puts the array of its frames in the place of a video.
func (f *framer) frames(ctx context.Context, data []byte, l ffmpeg.Limits) ([]format.Value, error) {
	var d imaging.Decoder
	h := sha256.New()
	h.Write(f.chance[:])
	h.Write(data)
	chance := imaging.Chance(binary.LittleEndian.Uint64(h.Sum(nil)))
	var out []byte
	var height, width, frames int
	var held atomic.Int64 // of the array
	l.Beside = held.Load
	err := f.tool.Clip(ctx, data, f.choice, l, func(number, times int, bmp []byte) (err error) {
		if number == 0 {
			out, frames = slices.Grow(out[:0], arrayRoom)[:arrayRoom], 0
		}
		at, h, w := len(out), 0, 0
		if out, h, w, err = d.AppendArray(out, bmp, &f.shape, chance); err != nil {
			return fmt.Errorf("frame %d: %w", number, err)
		}
		if number == 0 {
			height, width = h, w
		}
		if h != height || w != width {
			return fault.Userf("frame %d has %d x %d pixels, the ones before have %d x %d: resize: exact gives them one size", number, w, h, width, height)
		}
		if size := int64(len(out) - at); int64(len(out))+size*int64(times-1) > f.spec.MaxBytes {
			return fault.Userf("the array of its frames has more than %d bytes: take fewer or smaller ones, or raise max_bytes", f.spec.MaxBytes)
		}
		for one := out[at:len(out):len(out)]; times > 1; times-- {
			out, frames = append(out, one...), frames+1
		}
		frames++
		held.Store(int64(cap(out)))
		return nil
	})
	if err != nil {
		return nil, err
	}
	kind := npy.Uint8
	if f.shape.Float {
		kind = npy.Float32
	}
	var room [2 * arrayRoom]byte
	header := npy.AppendHeader(room[:0], kind, append([]int{frames}, f.shape.Dims(height, width)...)...)
	out = out[arrayRoom-len(header):]
	copy(out, header)
	return []format.Value{{Kind: format.Bytes, Bytes: out}}, nil
}

// prober gives columns with what the headers of a file say.
func (s *Set) prober(spec *jobspec.Probe) (*transform.Function, error) {
	tool, err := ffmpeg.FindBoth(context.Background())
	if err != nil {
		return nil, err
	}
	limits := limitsOf(0, maxProbed, spec.Memory, spec.Timeout)
	var out []transform.Column
	for _, c := range []struct {
		name string
		kind format.Kind
	}{
		{"seconds", format.Float}, {"video", format.String}, {"width", format.Int}, {"height", format.Int}, {"fps", format.Float},
		{"sound", format.String}, {"rate", format.Int}, {"channels", format.Int},
	} {
		out = append(out, transform.Column{Name: spec.Column + "." + c.name, Kind: c.kind, Null: true})
	}
	in := transform.Column{Name: spec.Column, Kind: format.Bytes, Null: true}
	return s.program(tool, in, out, tool.Digest, limits, func(ctx context.Context, data []byte, l ffmpeg.Limits) ([]format.Value, error) {
		f, err := tool.Facts(ctx, data, l)
		return []format.Value{
			number(f.Seconds), word(f.Video), count(f.Width), count(f.Height), number(f.Rate), word(f.Sound), count(f.Samples), count(f.Channels),
		}, err
	}), nil
}

// maxProbed bounds the pixels of a frame that ffprobe decodes to learn of a stream: 8K video.
const maxProbed = 1 << 26

// number, word and count are values of a column: what there is none of is null.
func number(x float64) format.Value {
	if x == 0 {
		return format.Value{}
	}
	return format.Value{Kind: format.Float, Float: x}
}

func word(s string) format.Value {
	if s == "" {
		return format.Value{}
	}
	return format.Value{Kind: format.String, Bytes: []byte(s)}
}

func count(n int) format.Value {
	if n == 0 {
		return format.Value{}
	}
	return format.Value{Kind: format.Int, Int: int64(n)}
}
