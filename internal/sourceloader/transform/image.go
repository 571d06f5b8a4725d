package transform

import (
	"crypto/sha256"
	"fmt"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/imaging"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/jobspec"
)

// Image is one image of a sample.
type Image struct {
	At   int32        // place of its first placeholder in Sample.Tokens
	Grid imaging.Grid // in patches; Geometry.Tokens of it is the number of placeholders
	Data []byte       // encoded, as in the record
	SHA  [32]byte     // SHA-256 of Data
	span span         // of its placeholders, with the tokens around them: places in the tokens of the record, and once the sample is emitted in Sample.Tokens
}

// span is a range of tokens.
type span struct{ from, to int }

// Geometry is the rule of an image step from sizes to grids.
func Geometry(step *jobspec.Image) imaging.Geometry {
	return imaging.Geometry{Patch: step.Patch, Merge: step.Merge, MinPixels: step.MinPixels, MaxPixels: step.MaxPixels}
}

// imageStep is a compiled image step.
type imageStep struct {
	*jobspec.Image
	geometry imaging.Geometry
	places   []int // of its columns
	inText   bool  // placeholders take the places of markers
	marker   int32 // the token that is one
}

func (c *compiler) image(label string, spec *jobspec.Image) error {
	step := &imageStep{Image: spec, geometry: Geometry(spec)}
	switch {
	case !c.hasTokens:
		return fault.Userf("an image step needs tokens to stand before: put it after the tokenize or tokens step")
	case c.chain.pictures != ([32]byte{}):
		return fault.Userf("an earlier step takes the images; a chain has one image step")
	case c.hasEnd:
		return fault.Userf("an image step comes before append_eod: a record may have images and no other token")
	case len(spec.Columns) == 0:
		return fault.Userf("an image step names the columns that hold the images")
	}
	if err := step.geometry.Check(); err != nil {
		return err
	}
	for _, path := range spec.Columns {
		place, err := c.column(path)
		if err == nil {
			err = c.takes(path, imagesNeed)
		}
		if err != nil {
			return err
		}
		step.places = append(step.places, place)
	}
	if err := c.inPlace(step); err != nil {
		return err
	}
	c.chain.pictures = imaging.Fingerprint()
	c.add(label, func(w *Worker, rec *format.Record) (bool, error) { return true, w.takeImages(step, rec) })
	return nil
}

// takeImages adds the record's images, and their placeholders, to the worker.
func (w *Worker) takeImages(step *imageStep, rec *format.Record) error {
	if err := w.findImages(step, rec); err != nil {
		return err
	}
	if step.inText {
		return w.placeImages(step)
	}
	for i := range w.images {
		w.prefix = step.appendFramed(w.prefix, &w.images[i])
	}
	return nil
}

// findImages adds the record's images to the worker.
func (w *Worker) findImages(step *imageStep, rec *format.Record) error {
	for i, place := range step.places {
		if err := w.takeValue(step, &rec.Values[place]); err != nil {
			return fmt.Errorf("column %q: %w", step.Columns[i], err)
		}
	}
	return nil
}

func (w *Worker) takeValue(step *imageStep, v *format.Value) error {
	switch v.Kind {
	case format.Null:
		return nil
	case format.Bytes:
		return w.takeImage(step, v.Bytes)
	case format.List:
		for i := range v.List {
			if err := w.takeValue(step, &v.List[i]); err != nil {
				return fmt.Errorf("element %d: %w", i, err)
			}
		}
		return nil
	}
	return noBytes(v, "an image")
}

func (w *Worker) takeImage(step *imageStep, data []byte) error {
	if len(w.images) == step.MaxImages {
		return fault.Userf("the record has more than %d images; leave some out, or raise max_images", step.MaxImages)
	}
	info, err := imaging.Size(data)
	if err != nil {
		return err
	}
	grid, err := step.geometry.Grid(info.Width, info.Height)
	if err != nil {
		return err
	}
	if step.Verify {
		if err := w.decoder.Verify(data); err != nil {
			return err
		}
	}
	w.images = append(w.images, Image{Grid: grid, Data: data, SHA: sha256.Sum256(data)})
	return nil
}

// appendPlaceholders appends the placeholders of an image, and notes where they are.
func (step *imageStep) appendPlaceholders(tokens []int32, x *Image) []int32 {
	x.At = int32(len(tokens))
	for range step.geometry.Tokens(x.Grid) {
		tokens = append(tokens, step.Token)
	}
	return tokens
}

// appendFramed is appendPlaceholders with the tokens around them.
func (step *imageStep) appendFramed(tokens []int32, x *Image) []int32 {
	x.span.from = len(tokens)
	if step.Begin != 0 {
		tokens = append(tokens, step.Begin)
	}
	tokens = step.appendPlaceholders(tokens, x)
	if step.End != 0 {
		tokens = append(tokens, step.End)
	}
	x.span.to = len(tokens)
	return tokens
}
