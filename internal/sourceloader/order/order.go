// Package order defines the order of a source's samples: its files, their division
// into chunks, the order of the chunks of an epoch, and
// the shuffle of samples inside a block.
//
// It owns the manifest with its fingerprints, the layout of chunks, the keyed
// permutation and the keys samples are sorted by. It never reads a record and
// keeps no position: an order is a pure function of seed, source and manifest,
// and memory does not grow with the number of chunks, only with that of files.
package order

import (
	"cmp"
	"slices"
	"sort"
)

// Unit is one unit of reading: a chunk of one file.
type Unit struct {
	File  int // index into the manifest's files
	Chunk int // chunk number in the file
}

// Layout maps the chunks of a source to units of its files. A chunk is one unit
// of a large file, or several whole small files read together. It is read-only
// and safe for concurrent use.
type Layout struct {
	starts []group // by first chunk
	chunks int64
}

// group is a run of chunks: `files` consecutive files from `file` on, either one
// file with any number of units, or several one-unit files in a single chunk.
type group struct {
	first int64 // its first chunk
	file  int
	files int
}

// NewLayout lays out files of the given sizes (bytes) and unit counts:
// neighbouring one-unit files are joined until they reach target bytes, so that
// a folder of small files is read in as few chunks as a large one.
func NewLayout(files []File, target int64) Layout {
	var l Layout
	for i := 0; i < len(files); {
		n, chunks := joined(files[i:], target), 1
		if n == 1 {
			chunks = files[i].Chunks
		}
		if chunks > 0 {
			l.starts = append(l.starts, group{l.chunks, i, n})
			l.chunks += int64(chunks)
		}
		i += n
	}
	return l
}

// joined counts the files, from the first on, that share a chunk.
func joined(files []File, target int64) int {
	if files[0].Chunks != 1 {
		return 1
	}
	size := files[0].Size
	n := 1
	for n < len(files) && files[n].Chunks == 1 && size+files[n].Size <= target {
		size += files[n].Size
		n++
	}
	return n
}

// Chunks returns the number of chunks in one epoch.
func (l Layout) Chunks() int64 { return l.chunks }

// Units returns the units of chunk c in file order.
func (l Layout) Units(c int64) []Unit {
	i := sort.Search(len(l.starts), func(i int) bool { return l.starts[i].first > c }) - 1
	g := l.starts[i]
	if g.files == 1 {
		return []Unit{{g.file, int(c - g.first)}}
	}
	units := make([]Unit, g.files)
	for k := range units {
		units[k] = Unit{g.file + k, 0}
	}
	return units
}

// Order is the order of one source over all epochs. It is read-only and safe
// for concurrent use.
type Order struct {
	Source  string
	Seed    uint64
	Shuffle bool
	Block   int // chunks per block
	Layout  Layout
}

// Blocks returns the number of blocks in one epoch.
func (o *Order) Blocks() int64 {
	return (o.Layout.Chunks() + int64(o.Block) - 1) / int64(o.Block)
}

// Position splits a block's sequence number into its epoch and its number
// within that epoch. The source must not be empty.
func (o *Order) Position(seq int64) (epoch, block int64) {
	return seq / o.Blocks(), seq % o.Blocks()
}

// Chunks returns the chunks of the block with sequence number seq, in the order
// they are read.
func (o *Order) Chunks(seq int64) []int64 {
	epoch, block := o.Position(seq)
	first := block * int64(o.Block)
	chunks := make([]int64, min(int64(o.Block), o.Layout.Chunks()-first))
	for i := range chunks {
		chunks[i] = first + int64(i)
	}
	if o.Shuffle {
		perm := NewPermutation(o.Layout.Chunks(), NewKey(o.Seed, o.Source, "chunks", epoch))
		for i, c := range chunks {
			chunks[i] = perm.At(c)
		}
	}
	return chunks
}

// Place is the origin of a sample: its file in the manifest, its row there,
// and its piece if the row was split.
type Place struct {
	Row   int64
	File  int32
	Piece int32
}

// Sort returns the order of the samples of block seq: a permutation
// of 0..len(places)-1. places are in reading order. Each sample has its own
// key, so that removing one does not change the order of the others.
func (o *Order) Sort(seq int64, places []Place) []int32 {
	index := make([]int32, len(places))
	for i := range index {
		index[i] = int32(i)
	}
	if !o.Shuffle {
		return index
	}
	epoch, _ := o.Position(seq)
	key := NewKey(o.Seed, o.Source, "samples", epoch)
	type keyed struct {
		key   uint64
		index int32
	}
	sorted := make([]keyed, len(places))
	for i, p := range places {
		sorted[i] = keyed{key.Hash(key.Hash(key.Hash(uint64(p.File))+uint64(p.Row)) + uint64(p.Piece)), int32(i)}
	}
	slices.SortFunc(sorted, func(a, b keyed) int {
		if a.key != b.key {
			return cmp.Compare(a.key, b.key)
		}
		return cmp.Compare(a.index, b.index)
	})
	for i, s := range sorted {
		index[i] = s.index
	}
	return index
}
