package transform

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/imaging"
	"github.com/millrace-data/millrace/internal/media/audio"
	"github.com/millrace-data/millrace/internal/media/npy"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/jobspec"
)

// Steps that decode put an array, as a .npy file, in the place of what a column held:
// later steps and keep find it there. Each has memory of its own in a Worker, which holds
// the array until the next record.

// arrayRoom is room for the header of an array.
const arrayRoom = 128

// pixelsStep is a compiled pixels step.
type pixelsStep struct {
	place, memory int
	shape         imaging.Shape
	kind          string   // of the array's values
	chance        [32]byte // of the job, the source and the step
}

func (c *compiler) pixels(label string, spec *jobspec.Pixels) (err error) {
	step := &pixelsStep{memory: c.chain.arrays, kind: npy.Uint8, chance: c.chance()}
	if step.shape, err = ShapeOf(spec); err != nil {
		return err
	}
	if step.place, err = c.replaces(spec.Column, imagesNeed); err != nil {
		return err
	}
	if step.shape.Float {
		step.kind = npy.Float32
	}
	c.chain.arrays++
	c.chain.beyond = append(c.chain.beyond, imaging.Fingerprint())
	c.add(label, func(w *Worker, rec *format.Record) (bool, error) {
		if err := w.takePixels(step, &rec.Values[step.place]); err != nil {
			return false, fmt.Errorf("column %q: %w", spec.Column, err)
		}
		return true, nil
	})
	return nil
}

// replaces returns the place of a column that a step takes, and puts an array in.
func (c *compiler) replaces(path string, n need) (int, error) {
	place, err := c.column(path)
	if err == nil {
		err = c.takes(path, n)
	}
	c.replaced = append(c.replaced, path)
	return place, err
}

// chance is what the chance of a step follows from, beside the record.
func (c *compiler) chance() [32]byte {
	return ChanceOf(c.shared.Seed, c.source.Name, c.place)
}

// ChanceOf is what the chance of a step follows from: seed is the job's, place the step's in the whole
// chain, such as transforms[0].pixels.
func ChanceOf(seed uint64, source, place string) [32]byte {
	text := binary.LittleEndian.AppendUint64([]byte("millrace chance\x00"), seed)
	text = append(append(text, source...), 0)
	return sha256.Sum256(append(text, place...))
}

// ShapeOf is the shape that a step of a job spec means.
func ShapeOf(spec *jobspec.Pixels) (s imaging.Shape, err error) {
	s = imaging.Shape{
		Resize: spec.Resize, MaxPixels: spec.MaxPixels, MinArea: 8, MaxArea: 100, Filter: spec.Filter,
		Flip: spec.Flip, Gray: spec.Channels == "gray", Planar: spec.Layout == "chw", Float: spec.DType == "float32", Largest: spec.MaxDecodedPixels,
		Std: [3]float64{1, 1, 1},
	}
	s.Height, s.Width = jobspec.Sides(spec.Size)
	if len(spec.Area) > 0 {
		s.MinArea, s.MaxArea = jobspec.Sides(spec.Area)
	}
	if len(spec.Crop) > 0 {
		s.Crop = spec.CropAt
		s.CropHeight, s.CropWidth = jobspec.Sides(spec.Crop)
	}
	if err := levels(&s.Mean, spec.Mean); err != nil {
		return s, fmt.Errorf("mean: %w", err)
	}
	if err := levels(&s.Std, spec.Std); err != nil {
		return s, fmt.Errorf("std: %w", err)
	}
	return s, s.Check()
}

// levels sets the numbers of all channels: of each its own, or of all the same.
func levels(to *[3]float64, texts []string) error {
	values, err := jobspec.Numbers(texts)
	if err != nil {
		return fault.As(fault.User, err)
	}
	for i := range to {
		if len(values) > 0 {
			to[i] = values[min(i, len(values)-1)]
		}
	}
	return nil
}

// takePixels puts the array of a column's image, or images, in their place.
func (w *Worker) takePixels(step *pixelsStep, v *format.Value) error {
	encoded, stacked, err := images(v)
	if err != nil || len(encoded) == 0 {
		*v = format.Value{Kind: format.Null, Absent: v.Absent}
		return err
	}
	out := w.memory(step.memory)
	chance := step.chanceOf(encoded)
	var height, width int
	for i, data := range encoded {
		var h, n int
		if out, h, n, err = w.decoder.AppendArray(out, data, &step.shape, chance); err != nil {
			return element(stacked, i, err)
		}
		if i == 0 {
			height, width = h, n
		}
		if h != height || n != width {
			return element(stacked, i, fault.Userf("an image of %d x %d pixels beside one of %d x %d: those of a list have one size; resize: exact gives them one", n, h, width, height))
		}
		if len(out)*len(encoded)/(i+1) > maxArray {
			return fault.Userf("arrays of %d images of %d x %d pixels are too large: %d MiB are the most", len(encoded), width, height, maxArray>>20)
		}
	}
	dims := step.shape.Dims(height, width)
	if stacked {
		dims = append([]int{len(encoded)}, dims...)
	}
	*v = w.array(step.memory, out, step.kind, dims...)
	return nil
}

// maxArray bounds the arrays of a record, as of one column. The decoder of sounds bounds theirs below it.
const (
	maxArray = 1 << 30
	_        = uint(maxArray - 4*audio.MaxSamples)
)

// images are the encoded images of a column, without nulls, and whether it has a list of them.
func images(v *format.Value) (encoded [][]byte, stacked bool, err error) {
	switch v.Kind {
	case format.Null:
		return nil, false, nil
	case format.Bytes:
		return [][]byte{v.Bytes}, false, nil
	case format.List:
		for i := range v.List {
			switch x := &v.List[i]; x.Kind {
			case format.Bytes:
				encoded = append(encoded, x.Bytes)
			case format.Null:
			default:
				return nil, true, element(true, i, noBytes(x, "an image"))
			}
		}
		return encoded, true, nil
	}
	return nil, false, noBytes(v, "an image")
}

// noBytes is the error of a value that is neither bytes nor null, of which a step would make something. In formats
// that do not tell texts from bytes, such as a plain binary column of Parquet, bytes that are UTF-8 are a text.
func noBytes(v *format.Value, of string) error {
	switch {
	case v.Kind == format.String && len(v.Bytes) == 0:
		return fault.Userf("it is empty, not the bytes of %s", of)
	case v.Kind == format.String:
		return fault.Userf("its bytes are a text, not %s", of)
	}
	return fault.Userf("it is %s, not the bytes of %s", kindWords(v.Kind), of)
}

func element(stacked bool, i int, err error) error {
	if !stacked {
		return err
	}
	return fmt.Errorf("element %d: %w", i, err)
}

// chanceOf is the chance of the images of a record, the same for each of them, such as the
// frames of a video: what is drawn is the same wherever and whenever they are read.
func (s *pixelsStep) chanceOf(encoded [][]byte) imaging.Chance {
	h := sha256.New()
	h.Write(s.chance[:])
	for _, data := range encoded {
		h.Write(data)
	}
	return imaging.Chance(binary.LittleEndian.Uint64(h.Sum(nil)))
}

// memory is that of an array, with room for its header.
func (w *Worker) memory(step int) []byte {
	w.arrays = slices.Grow(w.arrays, w.chain.arrays)[:w.chain.arrays]
	return slices.Grow(reuse(w.arrays[step], maxScratch), arrayRoom)[:arrayRoom]
}

// array is the value of an array whose data is behind arrayRoom bytes.
func (w *Worker) array(step int, data []byte, kind string, dims ...int) format.Value {
	var room [2 * arrayRoom]byte
	header := npy.AppendHeader(room[:0], kind, dims...)
	w.arrays[step] = data
	data = data[arrayRoom-len(header):]
	copy(data, header)
	return format.Value{Kind: format.Bytes, Bytes: data}
}

// waveformStep is a compiled waveform step.
type waveformStep struct {
	*jobspec.Waveform
	place, memory int
	form          audio.Form
}

func (c *compiler) waveform(label string, spec *jobspec.Waveform) (err error) {
	step := &waveformStep{Waveform: spec, memory: c.chain.arrays, form: audio.Form{
		Rate: spec.Rate, Mono: spec.Channels != "all", Int16: spec.DType == "int16", Seconds: spec.MaxSeconds,
	}}
	switch {
	case spec.Token != 0 && !c.hasTokens:
		return fault.Userf("the placeholders of a waveform step need tokens to stand before: put it after the tokenize or tokens step")
	case spec.Token != 0 && c.hasEnd:
		return fault.Userf("a waveform step with placeholders comes before append_eod: a record may have a sound and no other token")
	case spec.Token != 0 && spec.SamplesPerToken < 1:
		return fault.Userf("samples_per_token is %d; at least 1 is needed", spec.SamplesPerToken)
	}
	if err := step.form.Check(); err != nil {
		return err
	}
	if step.place, err = c.replaces(spec.Column, soundNeed); err != nil {
		return err
	}
	c.chain.arrays++
	c.chain.beyond = append(c.chain.beyond, audio.Fingerprint())
	c.add(label, func(w *Worker, rec *format.Record) (bool, error) {
		if err := w.takeWaveform(step, &rec.Values[step.place]); err != nil {
			return false, fmt.Errorf("column %q: %w", spec.Column, err)
		}
		return true, nil
	})
	return nil
}

// takeWaveform puts the array of a column's sound in its place, and its placeholders
// before the tokens.
func (w *Worker) takeWaveform(step *waveformStep, v *format.Value) error {
	if v.Kind == format.Null {
		return nil
	}
	if v.Kind != format.Bytes {
		return noBytes(v, "a sound")
	}
	defer w.sound.Done()
	wave, err := w.sound.Decode(v.Bytes, step.form)
	if err != nil {
		return err
	}
	dims := []int{wave.Samples}
	if step.Channels == "all" {
		dims = append(dims, wave.Channels)
	}
	if out := w.memory(step.memory); step.form.Int16 {
		*v = w.array(step.memory, wave.AppendInt16(out), npy.Int16, dims...)
	} else {
		*v = w.array(step.memory, wave.AppendFloat32(out), npy.Float32, dims...)
	}
	if step.Token != 0 && wave.Samples > 0 {
		w.placeholders(step, (wave.Samples+step.SamplesPerToken-1)/step.SamplesPerToken)
	}
	return nil
}

func (w *Worker) placeholders(step *waveformStep, n int) {
	if step.Begin != 0 {
		w.prefix = append(w.prefix, step.Begin)
	}
	w.muted = appendRun(w.muted, int32(len(w.prefix)), int32(len(w.prefix)+n))
	for range n {
		w.prefix = append(w.prefix, step.Token)
	}
	if step.End != 0 {
		w.prefix = append(w.prefix, step.End)
	}
}
