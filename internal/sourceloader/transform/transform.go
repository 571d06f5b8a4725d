// Package transform turns records into samples: it picks and joins fields,
// filters, tokenizes, appends the end-of-document token and applies the
// source's rule for long samples.
//
// A Chain is compiled once from a source of the job spec and applied record by
// record, by one Worker for each goroutine. It is a pure function of the
// record: no randomness, no clock, no memory of earlier records. The package
// owns the steps and their templates; the language of filters is in
// transform/filter. It never reads data files (sourceloader/format) and never
// orders samples (sourceloader/order).
//
// # Text
//
// A text step is a template: {path} stands for a field, {{ and }} for braces.
// A record without the field is a bad one, unless the template says {path?}; so is one
// without the column of a tokens step. A backslash before the question mark makes it part
// of the name. To filters, images and kept columns, a field that is absent is null.
//
// Null is the empty string; numbers and bools have their shortest form that
// reads back the same (1.0 as 1); a list is its elements with line breaks
// between; bytes must be UTF-8. {text} is the current text, which is the column
// text until a text step sets it.
//
// # Long samples
//
// split cuts the tokens into pieces of Max, the last one shorter; truncate
// keeps the first Max; drop gives no sample. All see the end-of-document token
// as an ordinary token: it ends the last piece, and truncate cuts it off.
//
// # Loss
//
// A token without loss is no target: the label that is it is ignored, as batches write
// that (docs/bytes.md). A loss_mask step takes this from a column; append_eod's token
// carries loss if the one before it does.
//
// # Images
//
// An image step puts the placeholders of the record's images, sized by their
// headers, before all other tokens, whatever follows it in the
// chain; filters and append_eod see the other tokens only. Placeholders are never
// separated from their images: a record whose placeholders, with the tokens around
// them, are longer than Max is too long by every rule, and the pieces of a split
// record after the first have no image.
//
// With a marker the placeholders of each image take the place of a marker in the text. Then a piece
// ends before an image that it has no room for, truncate cuts there, and a record with an
// image that is longer than Max by itself is too long by every rule.
package transform

// Sample is one training sample. Tokens, Masked, Extras and Images belong to the Worker and are
// valid only until the emit function that received them returns; copy what is
// kept.
type Sample struct {
	Row    int64    // format.Record.Row it came from
	Piece  int32    // 0.. for the pieces of a split record
	Tokens []int32  // never empty
	Masked []int32  // bounds of the runs of tokens without loss: from, to, from, to; see mask.go
	Extras [][]byte // the source's kept columns, in spec order; on piece 0 only, nil after
	Images []Image  // in the order of their placeholders
}

// Outcome is the outcome of a record, so that none is dropped silently.
type Outcome uint8

const (
	Kept     Outcome = iota // gave at least one sample
	Filtered                // refused by a filter
	TooLong                 // dropped by long: drop, or its images alone are too long
	Empty                   // no token left
)

// String returns the word used in counters and logs.
func (o Outcome) String() string {
	switch o {
	case Kept:
		return "kept"
	case Filtered:
		return "filtered"
	case TooLong:
		return "too long"
	case Empty:
		return "empty"
	default:
		return "unknown"
	}
}
