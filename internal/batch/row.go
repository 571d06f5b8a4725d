// Package batch is the content of a global batch: its rows, their digests, and
// the named dense tensors that a rank receives.
//
// It defines "the same batch": a row is its documents, a step is its
// rows in global order, and a run is the chain of its steps, so that two runs
// that delivered the same bytes in the same order end with the same 32 bytes.
// It never reads, packs, pads or sends anything, and knows nothing of ranks:
// padding and slicing depend on the mesh, so they are not part of a digest.
//
// All functions are pure and safe for concurrent use.
package batch

// Row is one packed row of a global batch: whole documents end to end. The
// sum of their lengths is at most the sequence length of the job; the rest
// of the row is padding and is not stored.
type Row struct {
	// Segments holds the token ids of each document, in the row's order. No
	// segment is empty. The maker of a Row owns the tokens; readers never
	// write them.
	Segments [][]int32
	// Kept holds the values of a source's `keep` columns, such as
	// the bytes of an image, by document, then by column.
	Kept []Kept
	// Masked has, for each segment, the bounds of the runs of tokens without loss: from,
	// to, from, to. They rise, and no run has the first token, which no label is. It is nil
	// if all tokens carry loss.
	Masked [][]int32
	// Images holds the images whose placeholders are among the tokens, by document,
	// then by place.
	Images []Image
}

// Image is an image of a document.
type Image struct {
	Document int      // which of the row's segments
	At       int      // place of its first placeholder in the segment
	Tokens   int      // placeholders, which are masked in labels
	H, W     int      // patches along the sides
	SHA      [32]byte // SHA-256 of the encoded image
	// Data is the encoded image, or its pixels, by the maker's choice. It is nil
	// in a row without image data. No digest depends on it.
	Data []byte
}

// Kept is the value of one kept column of one document.
type Kept struct {
	Document int    // which of the row's segments
	Column   string // such as "jpg"
	Data     []byte
}

// Tokens returns the number of tokens of the row, padding not counted.
func (r Row) Tokens() int {
	n := 0
	for _, segment := range r.Segments {
		n += len(segment)
	}
	return n
}
