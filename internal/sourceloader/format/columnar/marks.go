package columnar

import "cmp"

// mostMarks bounds the memory of Marks: 1 MiB of them.
const mostMarks = 1 << 16

// Mark is where a chunk of a file begins.
type Mark struct {
	At  int64 // a place that its decoder knows it by
	Row int64 // number in the file of its first row
}

// Marks are where chunks begin: every one in files of up to 65,536, in others every second, fourth and so on.
// The zero value has none.
type Marks struct {
	Most  int // of marks, an even number; 0: 65,536
	marks []Mark
	shift int // of each 2^shift chunks, the first has a mark
	n     int
}

// Len is the number of chunks that were added.
func (m *Marks) Len() int { return m.n }

// Add adds the next chunk.
func (m *Marks) Add(mark Mark) {
	if m.n&(1<<m.shift-1) == 0 {
		if most := cmp.Or(m.Most, mostMarks); len(m.marks) == most {
			for i := range most / 2 {
				m.marks[i] = m.marks[2*i]
			}
			m.marks = m.marks[:most/2]
			m.shift++
		}
		m.marks = append(m.marks, mark)
	}
	m.n++
}

// Near returns the last chunk with a mark up to one that was added, and its mark.
func (m *Marks) Near(chunk int) (first int, mark Mark) {
	i := chunk >> m.shift
	return i << m.shift, m.marks[i]
}

// Behind returns the first chunk with a mark behind one that was added, and its mark; behind the last one, all of
// them and what ends them.
func (m *Marks) Behind(chunk int, end Mark) (next int, mark Mark) {
	if i := chunk>>m.shift + 1; i < len(m.marks) {
		return i << m.shift, m.marks[i]
	}
	return m.n, end
}

// Bytes is their memory.
func (m *Marks) Bytes() int64 { return 16 * int64(cap(m.marks)) }
