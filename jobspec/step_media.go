package jobspec

import (
	"fmt"
	"math"
	"strconv"
)

// Pixels makes an array of the image of a column, in its place.
type Pixels struct {
	Column           string
	Resize           string // none (default), exact, shortest, within, area
	Size             []int  // pixels: height and width, or one for both sides
	MaxPixels        int    // within: of the resized image
	Area             []int  // area: percent, from and to
	Filter           string // bicubic (default), bilinear
	Crop             []int  // height and width, or one for both; none keeps all
	CropAt           string // center (default), random
	Flip             int    // percent of the images
	Channels         string // rgb (default), gray
	Layout           string // hwc (default), chw
	DType            string // uint8 (default), float32
	Mean, Std        []string
	MaxDecodedPixels int // larger images are bad records
}

var pixelsOperator = Operator{
	Name:    "pixels",
	Doc:     "Decodes, resizes and crops the image of a column, and puts the array of its pixels in the image's place, for `keep`; see [media.md](media.md).",
	Example: "[{pixels: {column: jpg, resize: shortest, size: 256, crop: 224}}, {tokenize: bytes}]",
	Takes:   []string{"the column"}, Gives: []string{"the column"},
	Rules: "It has the fields that its `resize` uses: `size` for `exact`, `shortest` (one number) and `area`, `max_pixels` for `within`; `crop` is at most `size`. `mean` and `std` are for `float32`, one number or one for each channel, and `std` is above 0.",

	step: (*Pixels)(nil), value: field{kind: objectKind, object: &pixelsObject}, repeat: true,
}

var pixelsObject = object{title: "pixels", short: "column", fields: []field{
	{key: "column", name: "Column", kind: textKind, required: true,
		doc: "The column that holds an encoded image, JPEG, PNG, GIF (its first frame), WebP, BMP or TIFF: bytes, or a list of them, whose arrays have one size and are stacked. Null stays null. Afterwards the column holds a `.npy` file: `uint8` or `float32`, [height, width, channels]."},
	{key: "resize", name: "Resize", kind: textKind, def: "none", enum: []string{"none", "exact", "shortest", "within", "area"},
		doc: "`exact`: to `size`, whatever the aspect; `shortest`: until the shorter side has `size`; `within`: down to an area of `max_pixels`; `area`: a part of the image, drawn by chance, to `size` (RandomResizedCrop)."},
	{key: "size", name: "Size", kind: countKind, list: true, one: true, min: 1, max: 1 << 13,
		doc: "Pixels: [height, width], or one number for both. `shortest` takes one."},
	{key: "max_pixels", name: "MaxPixels", kind: countKind, min: 1, max: maxImagePixels, empty: true, auto: "none",
		doc: "`within`: the area of the image at most."},
	{key: "area", name: "Area", kind: countKind, list: true, one: true, min: 1, max: 100, auto: "[8, 100]",
		doc: "`area`: percent of the image that the part has, from and to; its aspect is 3/4 to 4/3."},
	{key: "filter", name: "Filter", kind: textKind, def: "bicubic", enum: []string{"bicubic", "bilinear"},
		doc: "How images are resized, both as Pillow does: the filter widens when the image shrinks."},
	{key: "crop", name: "Crop", kind: countKind, list: true, one: true, min: 1, max: 1 << 13, auto: "all of the resized image",
		doc: "Pixels that are cut out: [height, width], or one number for both. An image with less is a bad record."},
	{key: "crop_at", name: "CropAt", kind: textKind, def: "center", enum: []string{"center", "random"},
		doc: "Where."},
	{key: "flip", name: "Flip", kind: countKind, max: 100,
		doc: "Percent of the images that are mirrored, left to right. What is left to chance follows from the seed, the source, the step and the record: it is the same in each epoch."},
	{key: "channels", name: "Channels", kind: textKind, def: "rgb", enum: []string{"rgb", "gray"},
		doc: "Three, or their luma as Pillow has it."},
	{key: "layout", name: "Layout", kind: textKind, def: "hwc", enum: []string{"hwc", "chw"},
		doc: "Channels last, or first."},
	{key: "dtype", name: "DType", kind: textKind, def: "uint8", enum: []string{"uint8", "float32"},
		doc: "Values of 0 to 255, or those divided by 255 and normalized. `float32` takes four times the memory."},
	{key: "mean", name: "Mean", kind: textKind, list: true, one: true, auto: "0",
		doc: "`float32`: what is subtracted, one number for all channels or one for each."},
	{key: "std", name: "Std", kind: textKind, list: true, one: true, auto: "1",
		doc: "`float32`: what it is then divided by."},
	{key: "max_decoded_pixels", name: "MaxDecodedPixels", kind: countKind, def: maxImagePixels, min: 1, max: maxImagePixels,
		doc: "An image whose header says more is a bad record, and is not decoded. Decoding takes 6 to 30 bytes of memory for a pixel, of `loader_buffer`: an image that takes more than half of that is decoded alone."},
}}

// Operator implements Transform.
func (*Pixels) Operator() string { return pixelsOperator.Name }

// Words implements Transform.
func (p *Pixels) Words() string { return "pixels of " + p.Column }

func (p *Pixels) check(c *checker, at string) {
	if !c.sound(at) {
		return
	}
	c.column(at+".column", p.Column)
	needs := p.Resize == "exact" || p.Resize == "shortest" || p.Resize == "area"
	switch {
	case needs && len(p.Size) == 0:
		c.error(at+".size", "is missing: resize "+p.Resize+" needs it", "give [height, width] or one number, such as 224")
	case !needs && len(p.Size) > 0:
		c.error(at+".size", "is not used by resize "+p.Resize, "say resize: exact, shortest or area, or remove it")
	case p.Resize == "shortest" && len(p.Size) > 1, len(p.Size) > 2:
		c.error(at+".size", fmt.Sprintf("has %d numbers", len(p.Size)), "resize shortest takes one, the others [height, width] or one")
	case p.Resize == "within" && p.MaxPixels == 0:
		c.error(at+".max_pixels", "is missing: resize within needs it", "give the area in pixels, such as 512Ki")
	case p.Resize != "within" && p.MaxPixels > 0:
		c.error(at+".max_pixels", "is not used by resize "+p.Resize, "say resize: within, or remove it")
	case len(p.Area) > 0 && p.Resize != "area":
		c.error(at+".area", "is not used by resize "+p.Resize, "say resize: area, or remove it")
	case len(p.Area) == 1 || len(p.Area) > 2 || len(p.Area) == 2 && p.Area[0] > p.Area[1]:
		c.error(at+".area", "is not a range", "give two percentages, the lower one first: [8, 100]")
	}
	if len(p.Crop) > 2 {
		c.error(at+".crop", fmt.Sprintf("has %d numbers", len(p.Crop)), "give [height, width], or one number for both")
	} else if h, w := Sides(p.Size); needs && len(p.Size) < 3 && len(p.Crop) > 0 {
		if ch, cw := Sides(p.Crop); ch > h && h > 0 || cw > w && w > 0 {
			c.error(at+".crop", fmt.Sprintf("is %d x %d pixels, more than size, %d x %d", ch, cw, h, w), "crop at most what resize gives")
		}
	}
	p.levels(c, at, "mean", p.Mean)
	p.levels(c, at, "std", p.Std)
}

// levels checks the numbers of mean or std.
func (p *Pixels) levels(c *checker, at, key string, texts []string) {
	at += "." + key
	values, err := Numbers(texts)
	want := 3
	if p.Channels == "gray" {
		want = 1
	}
	switch {
	case len(texts) == 0:
	case p.DType != "float32":
		c.error(at, "is given for whole numbers", "say dtype: float32, or normalize on the trainer's side")
	case err != nil:
		c.error(at, err.Error(), "give decimal numbers, such as 0.485")
	case len(values) != 1 && len(values) != want:
		c.error(at, fmt.Sprintf("has %d numbers for %d channels", len(values), want), "give one, or one for each channel")
	case key == "std":
		for _, v := range values {
			if v <= 0 {
				c.error(at, "has a number that is not above 0", "give the deviations of values from 0 to 1, such as 0.229")
				return
			}
		}
	}
}

// Waveform makes an array of the sound of a column, in its place, and may put placeholders
// for it before the tokens.
type Waveform struct {
	Column          string
	Rate            int    // samples a second
	Channels        string // mono (default), all
	DType           string // float32 (default), int16
	MaxSeconds      int    // longer files are bad records
	Token           int32  // the placeholder; 0 = none
	Begin, End      int32  // around them; 0 = none
	SamplesPerToken int    // that one placeholder stands for
}

var waveformOperator = Operator{
	Name:    "waveform",
	Doc:     "Decodes and resamples the sound of a column, and puts the array of its samples in the sound's place, for `keep`. Placeholders that stand for it may come before the tokens. See [media.md](media.md).",
	Example: "[{tokenize: bytes}, {waveform: {column: flac, token: 300}}]",
	Takes:   []string{"the column", "tokens"}, Gives: []string{"the column", "tokens", "loss"},
	Rules: "With a `token` after the tokens and before `append_eod`, one of a chain. `begin` and `end` have a `token`.",

	step: (*Waveform)(nil), value: field{kind: objectKind, object: &waveformObject}, repeat: true,
}

var waveformObject = object{title: "waveform", short: "column", fields: []field{
	{key: "column", name: "Column", kind: textKind, required: true,
		doc: "The column that holds an encoded sound, WAV or FLAC, as bytes. Null stays null. Afterwards the column holds a `.npy` file: [samples] with `mono`, else [samples, channels]."},
	{key: "rate", name: "Rate", kind: countKind, def: 16_000, min: 1, max: 384_000,
		doc: "Samples a second: files of another rate are resampled."},
	{key: "channels", name: "Channels", kind: textKind, def: "mono", enum: []string{"mono", "all"},
		doc: "The mean of the channels, or each of them."},
	{key: "dtype", name: "DType", kind: textKind, def: "float32", enum: []string{"float32", "int16"},
		doc: "Full scale is 1, or 32768."},
	{key: "max_seconds", name: "MaxSeconds", kind: countKind, def: 600, min: 1, max: 86_400,
		doc: "A longer file is a bad record. Decoding takes 8 to 20 bytes of memory for a sample of the file, of `loader_buffer`: a file that takes more than half of that is decoded alone."},
	{key: "token", name: "Token", kind: countKind, max: math.MaxInt32, empty: true, auto: "none",
		doc: "The id of a placeholder: one for each `samples_per_token` samples begun, before the tokens of the record, so that a record takes as much of a row as its sound does. Labels that are placeholders carry no loss."},
	{key: "begin", name: "Begin", kind: countKind, max: math.MaxInt32, empty: true, auto: "none",
		doc: "The id of a token before the placeholders."},
	{key: "end", name: "End", kind: countKind, max: math.MaxInt32, empty: true, auto: "none",
		doc: "The id of a token after them."},
	{key: "samples_per_token", name: "SamplesPerToken", kind: countKind, def: 640, min: 1, max: maxRow,
		doc: "Samples of `rate` that a placeholder stands for: 640 at 16 kHz are 40 ms, as Qwen2-Audio has it."},
}}

// Operator implements Transform.
func (*Waveform) Operator() string { return waveformOperator.Name }

// Words implements Transform.
func (w *Waveform) Words() string {
	words := fmt.Sprintf("waveform of %s at %d Hz", w.Column, w.Rate)
	if w.Token != 0 {
		words += fmt.Sprintf(", as placeholders %d for %d samples each", w.Token, w.SamplesPerToken)
	}
	return words
}

// check looks at the steps before, too: only placeholders have a place of their own.
func (w *Waveform) check(c *checker, at string) {
	if !c.sound(at) {
		return
	}
	c.column(at+".column", w.Column)
	if w.Token == 0 {
		if w.Begin != 0 || w.End != 0 {
			c.error(at+".token", "is missing beside begin or end", "give the placeholder's id, or remove both")
		}
		return
	}
	var tokens, end, second bool
	c.job.each(func(_ int, chain []Transform, k int, where string) {
		if where != at {
			return
		}
		for _, t := range chain[:k] {
			name := t.Operator()
			other, sound := t.(*Waveform)
			tokens = tokens || name == "tokens" || name == "tokenize"
			end, second = end || name == "append_eod", second || sound && other.Token != 0
		}
	})
	switch {
	case !tokens:
		c.error(at, "comes before there are tokens", "move it after tokenize or tokens")
	case end:
		c.error(at, "comes after append_eod", "move it before: a record may have a sound and no other token, and its end needs a mark too")
	case second:
		c.error(at+".token", "is that of the second waveform of the chain", "one gives placeholders: remove it, or that of the other")
	}
}

// Sides are a height and a width, of [height, width] or one number for both; 0 if there is none.
func Sides(list []int) (height, width int) {
	if len(list) == 0 {
		return 0, 0
	}
	return list[0], list[len(list)-1]
}

// Numbers reads decimal numbers.
func Numbers(texts []string) (values []float64, err error) {
	for _, text := range texts {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("%q is not a number", text)
		}
		values = append(values, v)
	}
	return values, nil
}
