package dgraph

import "fmt"

// Buffer is the metadata of a step's samples, a column for each field: sample i is
// entry i of all of them. It is read-only once a graph uses it.
type Buffer struct {
	Source []int32 // of the job's sources
	Seq    []int64 // block of the source
	Index  []int32 // place in the block
	Tokens []int32 // length, 1 or more

	// ImageOffsets has one entry more than samples: the images of sample i
	// are ImageOffsets[i] to ImageOffsets[i+1]. It is nil if samples have none.
	ImageOffsets []int32
	Patches      []int32 // of each image, as its encoder sees them; 0 or more

	// Carried is the number of leading samples that were drawn in earlier steps.
	Carried int
}

// Ref names a sample: a block of a source and the place in it.
type Ref struct {
	Source int32
	Seq    int64
	Index  int32
}

// String returns the sample as in "2:17:3".
func (r Ref) String() string { return fmt.Sprintf("%d:%d:%d", r.Source, r.Seq, r.Index) }

// Len returns the number of samples.
func (b *Buffer) Len() int { return len(b.Tokens) }

// Images returns the number of images.
func (b *Buffer) Images() int { return len(b.Patches) }

// Ref returns the name of a sample.
func (b *Buffer) Ref(sample int) Ref {
	return Ref{b.Source[sample], b.Seq[sample], b.Index[sample]}
}

// ImagesOf returns the images of a sample: from first to before end.
func (b *Buffer) ImagesOf(sample int) (first, end int32) {
	if b.ImageOffsets == nil {
		return 0, 0
	}
	return b.ImageOffsets[sample], b.ImageOffsets[sample+1]
}

// PatchesOf returns the patches of all images of a sample.
func (b *Buffer) PatchesOf(sample int) int64 {
	patches := int64(0)
	first, end := b.ImagesOf(sample)
	for _, n := range b.Patches[first:end] {
		patches += int64(n)
	}
	return patches
}

// Check returns an error for an invalid buffer: columns of unequal length, a sample
// without tokens, offsets of images that do not rise from 0 to their number, or
// negative patches. It takes one pass over the columns.
func (b *Buffer) Check() error {
	n := len(b.Tokens)
	if len(b.Source) != n || len(b.Seq) != n || len(b.Index) != n {
		return fmt.Errorf("dgraph: the columns of a buffer have %d sources, %d blocks, %d places and %d lengths; each sample has one of each",
			len(b.Source), len(b.Seq), len(b.Index), n)
	}
	if b.Carried < 0 || b.Carried > n {
		return fmt.Errorf("dgraph: %d samples of a buffer are carried, and it has %d", b.Carried, n)
	}
	for i, tokens := range b.Tokens {
		if tokens < 1 {
			return fmt.Errorf("dgraph: sample %d (%v) has %d tokens; a sample has 1 or more", i, b.Ref(i), tokens)
		}
	}
	return b.checkImages()
}

func (b *Buffer) checkImages() error {
	n, at := len(b.Tokens), b.ImageOffsets
	switch {
	case at == nil && len(b.Patches) == 0:
		return nil
	case len(at) != n+1:
		return fmt.Errorf("dgraph: a buffer of %d samples has %d offsets of images; it needs %d", n, len(at), n+1)
	case at[0] != 0 || int(at[n]) != len(b.Patches):
		return fmt.Errorf("dgraph: the offsets of images go from %d to %d; they go from 0 to %d, the number of images", at[0], at[n], len(b.Patches))
	}
	for i := range n {
		if at[i] > at[i+1] {
			return fmt.Errorf("dgraph: the images of sample %d go from %d to %d; offsets never fall", i, at[i], at[i+1])
		}
	}
	for i, patches := range b.Patches {
		if patches < 0 {
			return fmt.Errorf("dgraph: image %d has %d patches; an image has 0 or more", i, patches)
		}
	}
	return nil
}
