package assemble

import "encoding/binary"

// minBounds is the least width of Megatron's cu_seqlens: rows of up to 14
// documents, the usual case, have one shape.
const minBounds = 16

// boundsWidth returns the width of cu_seqlens for lines: a power of two that
// holds the leading 0, the end of every document of the fullest line and the
// end of its padding. Shapes thus change rarely, and a model that is compiled
// for each shape is compiled a few times in a run at most.
func boundsWidth(lines []sequence) int {
	width := minBounds
	for i := range lines {
		for width < len(lines[i].docs)+2 {
			width *= 2
		}
	}
	return width
}

// fillPaddedBounds writes, for each line, 0 and the ends of its documents, then
// the sequence length in all places left. The first of those ends the padding.
func fillPaddedBounds(dst []byte, p *part) {
	width := 4 * boundsWidth(p.lines)
	for i := range p.lines {
		line := &p.lines[i]
		rest := putBounds(dst[:width], line.docs)
		for len(rest) > 0 {
			rest = putInt32(rest, line.length)
		}
		dst = dst[width:]
	}
}

// fillBounds writes 0, the ends of all documents, and that of the padding if
// there is any.
func fillBounds(dst []byte, p *part) {
	line := &p.lines[0]
	rest := putBounds(dst, line.docs)
	if line.pad() > 0 {
		putInt32(rest, line.length)
	}
}

// boundsCount returns the number of entries that fillBounds writes.
func boundsCount(line *sequence) int {
	return len(line.docs) + 1 + min(line.pad(), 1)
}

// fillLongest writes the longest segment of each line.
func fillLongest(dst []byte, p *part) {
	for i := range p.lines {
		dst = putInt32(dst, p.lines[i].longest())
	}
}

// fillTokenBounds writes 0 and, after each segment, the tokens so far.
func fillTokenBounds(dst []byte, p *part) {
	fillSums(dst, p, func(line *sequence) int { return line.used })
}

// fillSegmentBounds writes 0 and the end of each segment.
func fillSegmentBounds(dst []byte, p *part) {
	fillSums(dst, p, func(line *sequence) int { return line.length })
}

// fillSums writes 0 and, after each line, the sum of count over it and those before.
func fillSums(dst []byte, p *part, count func(*sequence) int) {
	sum := 0
	dst = putInt32(dst, sum)
	for i := range p.lines {
		sum += count(&p.lines[i])
		dst = putInt32(dst, sum)
	}
}

// fillLongestSegment writes the length of the longest line.
func fillLongestSegment(dst []byte, p *part) {
	longest := 0
	for i := range p.lines {
		longest = max(longest, p.lines[i].length)
	}
	putInt32(dst, longest)
}

// fillRanks writes the number of ranks that the microbatch is cut over.
func fillRanks(dst []byte, p *part) { putInt32(dst, p.layout.CP) }

// putBounds writes 0 and the ends of docs and returns what is left of dst.
func putBounds(dst []byte, docs [][]int32) []byte {
	end := 0
	dst = putInt32(dst, end)
	for _, doc := range docs {
		end += len(doc)
		dst = putInt32(dst, end)
	}
	return dst
}

func putInt32(dst []byte, value int) []byte {
	binary.LittleEndian.PutUint32(dst, uint32(int32(value)))
	return dst[4:]
}
