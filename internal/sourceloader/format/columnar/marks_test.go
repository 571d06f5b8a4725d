package columnar

import "testing"

// TestMarks: the mark near a chunk is of that or of one not far before it, and marks take bounded memory.
func TestMarks(t *testing.T) {
	for _, n := range []int{1, 2, mostMarks, mostMarks + 1, 5*mostMarks + 3} {
		var m Marks
		for i := range n {
			m.Add(Mark{At: int64(10 * i), Row: int64(3 * i)})
		}
		if m.Len() != n || m.Bytes() > 32*mostMarks {
			t.Fatalf("%d chunks: %d, in %d bytes", n, m.Len(), m.Bytes())
		}
		for chunk := 0; chunk < n; chunk += 1 + n/1000 {
			first, mark := m.Near(chunk)
			if first > chunk || chunk-first > 2*n/mostMarks || mark != (Mark{int64(10 * first), int64(3 * first)}) {
				t.Fatalf("chunk %d of %d: mark %v of chunk %d", chunk, n, mark, first)
			}
			next, mark := m.Behind(chunk, Mark{int64(10 * n), int64(3 * n)})
			if next <= chunk || next-chunk > 1+2*n/mostMarks || mark != (Mark{int64(10 * next), int64(3 * next)}) {
				t.Fatalf("chunk %d of %d: mark %v of chunk %d is behind it", chunk, n, mark, next)
			}
		}
	}
}
