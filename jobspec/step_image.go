package jobspec

import (
	"fmt"
	"math"
	"strings"
)

// Image puts the placeholders of images before the tokens, or where the text says.
type Image struct {
	Columns              []string // that hold encoded images
	Token                int32    // the placeholder
	Begin, End           int32    // around each image's placeholders; 0 = none
	Patch, Merge         int      // pixels along a side of a patch, patches along a side of a placeholder's block
	MinPixels, MaxPixels int      // bounds on the area of resized images
	MaxImages            int      // of a record
	Marker               string   // text in whose places the placeholders go; "" = before the tokens
	MarkerID             int32    // token in whose places they go, if the tokens come from a column; 0 = none
	Decode               string   // constructor (default) or loader
	Verify               bool     // decode once at reading
}

var imageOperator = Operator{
	Name:    "image",
	Doc:     "Puts the placeholders of the record's images before its tokens, or where the text has a marker, and has the images encoded by the ranks that `strategy` says.",
	Example: "[{tokenize: bytes}, {image: {columns: jpg, token: 300}}]",
	Takes:   []string{"`columns`", "tokens"}, Gives: []string{"images", "tokens"},
	Rules: "One of a chain, after the tokens and before `append_eod`. `marker` is for tokens of a `tokenize` step, `marker_id` for those of a column. All `image` steps of a job have the same `patch` and `merge`; `max_pixels` is at least the area of one block of `merge` x `merge` patches, and `min_pixels`.",

	step: (*Image)(nil), value: field{kind: objectKind, object: &imageObject},
	place: func(has func(...string) bool) (message, valid string) {
		switch {
		case !has("tokens", "tokenize"):
			return "comes before there are tokens", "move it after tokenize or tokens"
		case has("append_eod"):
			return "comes after append_eod", "move it before: a record may have an image and no other token, and its end needs a mark too"
		}
		return "", ""
	},
}

var imageObject = object{title: "image", fields: []field{
	{key: "columns", name: "Columns", kind: textKind, list: true, one: true, required: true,
		doc: "The columns that hold encoded images, JPEG, PNG, GIF, WebP, BMP or TIFF: bytes, or a list of them (`images[].bytes`). A record's images come in the order of the columns, then of the list; a null is no image."},
	{key: "token", name: "Token", kind: countKind, required: true, max: math.MaxInt32,
		doc: "The placeholder's id: one for each `merge` x `merge` patches. Labels that are placeholders carry no loss."},
	{key: "begin", name: "Begin", kind: countKind, max: math.MaxInt32, empty: true, auto: "none",
		doc: "The id of a token before the placeholders of each image."},
	{key: "end", name: "End", kind: countKind, max: math.MaxInt32, empty: true, auto: "none",
		doc: "The id of a token after them."},
	{key: "marker", name: "Marker", kind: textKind, empty: true, auto: "placeholders come before all tokens",
		doc: "A text such as `<image>` or `<|image_pad|>` that stands for an image: the placeholders of the record's first image, with `begin` and `end`, take the place of the first marker, and so on. To the `tokenize` step it is a special token, whether its vocabulary has it or not. A record with another number of markers than images is a bad one."},
	{key: "marker_id", name: "MarkerID", kind: countKind, max: math.MaxInt32, empty: true, auto: "none",
		doc: "The id that stands for an image in a column of tokens, in place of `marker`."},
	{key: "patch", name: "Patch", kind: countKind, def: 14, min: 1, max: 1024,
		doc: "Pixels along a side of a patch; the same in all sources."},
	{key: "merge", name: "Merge", kind: countKind, def: 2, min: 1, max: 64,
		doc: "Patches along a side of the block that one placeholder stands for; the same in all sources."},
	{key: "min_pixels", name: "MinPixels", kind: countKind, def: 56 * 56, max: maxImagePixels,
		doc: "Smaller images are enlarged to this area."},
	{key: "max_pixels", name: "MaxPixels", kind: countKind, def: 28 * 28 * 1280, min: 1, max: maxImagePixels,
		doc: "Larger images are reduced to this area."},
	{key: "max_images", name: "MaxImages", kind: countKind, def: 16, min: 1, max: maxAxis,
		doc: "A record with more images is a bad one."},
	{key: "decode", name: "Decode", kind: textKind, def: "constructor", enum: []string{"constructor", "loader"}, free: freeDecode,
		doc: "Where images become pixels. Between loader and constructor encoded images take a tenth of the bytes."},
	{key: "verify", name: "Verify", kind: flagKind, def: false,
		doc: "Decode every image once when it is read, so that damaged pixels are found there, and `bad_records` applies to them; else they stop the job when they are to be delivered."},
}}

// Operator implements Transform.
func (*Image) Operator() string { return imageOperator.Name }

// Words implements Transform.
func (s *Image) Words() string {
	return fmt.Sprintf("images of %s as placeholders %d, in patches of %d pixels", strings.Join(s.Columns, ", "), s.Token, s.Patch)
}

// check compares the step with the first one of the job, too.
func (s *Image) check(c *checker, at string) {
	if !c.sound(at) {
		return
	}
	if c.image == nil {
		c.image = s
	}
	side, first := s.Patch*s.Merge, c.image
	switch {
	case s.Marker != "" && s.MarkerID != 0:
		c.error(at+".marker_id", "is given beside marker", "keep one of them: marker for text, marker_id for a column of tokens")
	case s.MinPixels > s.MaxPixels:
		c.error(at+".min_pixels", fmt.Sprintf("%d is more than max_pixels %d", s.MinPixels, s.MaxPixels), fmt.Sprintf("valid is at most %d", s.MaxPixels))
	case s.MaxPixels < side*side:
		c.error(at+".max_pixels", fmt.Sprintf("%d is less than one block of %d x %d pixels (patch * merge)", s.MaxPixels, side, side), fmt.Sprintf("valid is %d or more", side*side))
	case s.Patch != first.Patch:
		c.error(at+".patch", fmt.Sprintf("is %d here and %d in an earlier source", s.Patch, first.Patch), "one encoder takes the images of all sources: write the same")
	case s.Merge != first.Merge:
		c.error(at+".merge", fmt.Sprintf("is %d here and %d in an earlier source", s.Merge, first.Merge), "one encoder takes the images of all sources: write the same")
	}
	c.columns(at+".columns", s.Columns)
}
