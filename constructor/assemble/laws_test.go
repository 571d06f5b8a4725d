package assemble

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/fault"
)

// randomLayout draws a valid layout with CP up to 4 and PP up to 3.
func randomLayout(rng *rand.Rand) Layout {
	l := Layout{
		Format:    []string{Megatron, HF}[rng.IntN(2)],
		CPSlicing: []string{Zigzag, Contiguous, Whole}[rng.IntN(3)],
		PadID:     rng.Int32N(5),
		CP:        1 + rng.IntN(4),
		PP:        1 + rng.IntN(3),
		Packed:    rng.IntN(4) > 0,
	}
	l.SequenceLength = l.multiple() * (1 + rng.IntN(20))
	return l
}

// randomRows draws rows that fit l: some full, some empty, many short documents.
func randomRows(rng *rand.Rand, l Layout) []batch.Row {
	rows := make([]batch.Row, 1+rng.IntN(3))
	for i := range rows {
		left := l.SequenceLength
		if rng.IntN(3) == 0 {
			left = rng.IntN(left + 1)
		}
		for left > 0 && (l.Packed || rows[i].Segments == nil) {
			n := 1 + rng.IntN(left)
			if rng.IntN(2) == 0 {
				n = min(n, 1+rng.IntN(3))
			}
			doc := make([]int32, n)
			for j := range doc {
				doc[j] = rng.Int32()
			}
			rows[i].Segments = append(rows[i].Segments, doc)
			left -= n
		}
	}
	return rows
}

func forRandom(t *testing.T, n int, check func(t *testing.T, rng *rand.Rand, l Layout, rows []batch.Row)) {
	t.Helper()
	for seed := range uint64(n) {
		rng := rand.New(rand.NewPCG(seed, 7))
		l := randomLayout(rng)
		rows := randomRows(rng, l)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { check(t, rng, l, rows) })
		if t.Failed() {
			t.Fatalf("layout %+v", l)
		}
	}
}

func microbatch(t *testing.T, l Layout, rows []batch.Row, cp, pp int) []batch.Tensor {
	t.Helper()
	tensors, err := l.Microbatch(rows, cp, pp)
	if err != nil {
		t.Fatal(err)
	}
	return tensors
}

// cell is one position of a sequence, worked out one at a time.
type cell struct{ token, position, next, same, mask string }

// cells is the format's rules position by position, with none of the package's
// code: the reference that the fast path is compared with.
func cells(l Layout, rows []batch.Row) [][]cell {
	var lines [][]cell
	for _, row := range rows {
		var line []cell
		for _, doc := range row.Segments {
			for i, id := range doc {
				c := cell{fmt.Sprint(id), fmt.Sprint(i), "0", fmt.Sprint(id), "0"}
				if i == 0 {
					c.same = "-100"
				}
				if i+1 < len(doc) {
					c.next, c.mask = fmt.Sprint(doc[i+1]), "1"
				}
				line = append(line, c)
			}
		}
		lines = append(lines, line)
	}
	pad := cell{fmt.Sprint(l.PadID), "0", "0", "-100", "0"}
	if l.Format == Megatron {
		for i := range lines {
			for len(lines[i]) < l.SequenceLength {
				lines[i] = append(lines[i], pad)
			}
		}
		return lines
	}
	flat := slices.Concat(lines...)
	multiple := map[string]int{Zigzag: 2 * l.CP, Contiguous: l.CP, Whole: 2 * l.CP}[l.CPSlicing]
	if l.CP == 1 {
		multiple = 1
	}
	for i := 0; len(flat) == 0 || len(flat)%multiple != 0; i++ {
		pad.position = fmt.Sprint(i)
		flat = append(flat, pad)
	}
	return [][]cell{flat}
}

// cut returns what rank cp takes of line.
func cut(l Layout, line []cell, cp int) []cell {
	switch l.CPSlicing {
	case Zigzag:
		if len(line)%(2*l.CP) != 0 { // CP is 1
			return line
		}
		chunks := slices.Collect(slices.Chunk(line, len(line)/(2*l.CP)))
		return slices.Concat(chunks[cp], chunks[len(chunks)-1-cp])
	case Contiguous:
		return slices.Collect(slices.Chunk(line, len(line)/l.CP))[cp]
	default:
		return line
	}
}

func TestAgainstReference(t *testing.T) {
	fields := map[string]func(cell) string{
		"megatron/tokens":       func(c cell) string { return c.token },
		"megatron/position_ids": func(c cell) string { return c.position },
		"megatron/labels":       func(c cell) string { return c.next },
		"megatron/loss_mask":    func(c cell) string { return c.mask },
		"hf/input_ids":          func(c cell) string { return c.token },
		"hf/position_ids":       func(c cell) string { return c.position },
		"hf/labels":             func(c cell) string { return c.same },
	}
	seen := map[string]bool{}
	forRandom(t, 400, func(t *testing.T, _ *rand.Rand, l Layout, rows []batch.Row) {
		for cp := range l.CP {
			for pp := range l.PP {
				for _, tensor := range microbatch(t, l, rows, cp, pp) {
					name := l.Format + "/" + tensor.Name
					field := fields[name]
					if field == nil {
						continue // bounds: see TestBounds
					}
					seen[name] = true
					checkColumn(t, l, rows, cp, tensor, field)
				}
			}
		}
	})
	if len(seen) != len(fields) {
		t.Errorf("only %v were compared", seen)
	}
}

func checkColumn(t *testing.T, l Layout, rows []batch.Row, cp int, tensor batch.Tensor, field func(cell) string) {
	t.Helper()
	want := fmt.Sprintf("\n\t%s %s ", tensor.Name, tensor.DType)
	lines := cells(l, rows)
	values := ""
	for _, line := range lines {
		for _, c := range cut(l, line, cp) {
			values += " " + field(c)
		}
	}
	want += fmt.Sprintf("[%d %d]:%s", len(lines), len(cut(l, lines[0], cp)), values)
	if got := render([]batch.Tensor{tensor}); got != want {
		t.Errorf("cp %d:\ngot%s\nwant%s", cp, got, want)
	}
}

// The bounds, looked at from outside: they cut every whole sequence at exactly
// the positions where position_ids restart or padding begins.
func TestBounds(t *testing.T) {
	forRandom(t, 200, func(t *testing.T, _ *rand.Rand, l Layout, rows []batch.Row) {
		for cp := range l.CP {
			for pp := range l.PP {
				byName := map[string]batch.Tensor{}
				for _, tensor := range microbatch(t, l, rows, cp, pp) {
					byName[tensor.Name] = tensor
				}
				for i, line := range cells(l, rows) {
					if l.Format == HF {
						checkBounds(t, byName["cu_seq_lens_q"], byName["max_length_q"], 0, ends(rows, len(line)))
						checkBounds(t, byName["cu_seq_lens_k"], byName["max_length_k"], 0, ends(rows, len(line)))
					} else if l.Packed {
						checkBounds(t, byName["cu_seqlens"], byName["max_seqlen"], i, ends(rows[i:i+1], len(line)))
					} else if _, ok := byName["cu_seqlens"]; ok {
						t.Error("cu_seqlens in a job that does not pack")
					}
				}
			}
		}
	})
}

// ends returns 0, the ends of all documents of rows and, if that is another, length.
func ends(rows []batch.Row, length int) []int {
	list := []int{0}
	for _, row := range rows {
		for _, doc := range row.Segments {
			list = append(list, list[len(list)-1]+len(doc))
		}
	}
	if list[len(list)-1] < length {
		list = append(list, length)
	}
	return list
}

func checkBounds(t *testing.T, bounds, longest batch.Tensor, line int, want []int) {
	t.Helper()
	width := bounds.Shape[len(bounds.Shape)-1]
	most := 0
	for i := range width {
		end := want[min(i, len(want)-1)]
		if got := bounds.Element(line*width + i); got != fmt.Sprint(end) {
			t.Errorf("%s: line %d entry %d is %s, want %d of %v", bounds.Name, line, i, got, end, want)
		}
		if i > 0 && i < len(want) {
			most = max(most, want[i]-want[i-1])
		}
	}
	if got := longest.Element(line); got != fmt.Sprint(most) {
		t.Errorf("%s: line %d is %s, want %d", longest.Name, line, got, most)
	}
}

// The slices of all CP ranks, put back in their places, are the whole sequence.
func TestSlicesJoin(t *testing.T) {
	forRandom(t, 200, func(t *testing.T, _ *rand.Rand, l Layout, rows []batch.Row) {
		uncut := l
		uncut.CPSlicing, uncut.PP = Whole, 1
		l.PP = 1
		for i, whole := range microbatch(t, uncut, rows, 0, 0) {
			var parts []batch.Tensor
			for cp := range l.CP {
				parts = append(parts, microbatch(t, l, rows, cp, 0)[i])
			}
			if !columns(l.Format)[i].perToken {
				continue
			}
			// HF pads a contiguous cut less than an uncut sequence.
			lines, joined := whole.Shape[0], join(l, parts)
			length := len(joined) / lines
			for line := range lines {
				want := whole.Data[line*len(whole.Data)/lines:][:length]
				if got := joined[line*length:][:length]; !bytes.Equal(got, want) {
					t.Errorf("%s: line %d: joined slices are %v, the whole is %v", whole.Name, line, got, want)
				}
			}
		}
	})
}

// join is the inverse of the cut, for a tensor of every CP rank.
func join(l Layout, parts []batch.Tensor) []byte {
	if l.CPSlicing == Whole || l.CP == 1 {
		return parts[0].Data
	}
	var joined []byte
	for line := range parts[0].Shape[0] {
		var head, tail []byte
		for _, part := range parts {
			n := len(part.Data) / part.Shape[0]
			data := part.Data[line*n:][:n]
			if l.CPSlicing == Contiguous {
				head = append(head, data...)
				continue
			}
			head = append(head, data[:n/2]...)
			tail = slices.Concat(data[n/2:], tail)
		}
		joined = slices.Concat(joined, head, tail)
	}
	return joined
}

// The stages together receive what a rank without stages does, and nothing else.
func TestStagesJoin(t *testing.T) {
	forRandom(t, 200, func(t *testing.T, _ *rand.Rand, l Layout, rows []batch.Row) {
		single := l
		single.PP = 1
		for cp := range l.CP {
			all := microbatch(t, single, rows, cp, 0)
			seen := map[string]bool{}
			for pp := range l.PP {
				for _, tensor := range microbatch(t, l, rows, cp, pp) {
					seen[tensor.Name] = true
					i := slices.IndexFunc(all, func(a batch.Tensor) bool { return a.Name == tensor.Name })
					if i < 0 || !reflect.DeepEqual(all[i], tensor) {
						t.Errorf("cp %d pp %d: %s differs from that of a single stage", cp, pp, tensor.Name)
					}
				}
			}
			if len(seen) != len(all) {
				t.Errorf("cp %d: the stages receive %v of %d tensors", cp, seen, len(all))
			}
		}
	})
}

// Append writes every byte itself: old contents of the body do not matter.
func TestAppend(t *testing.T) {
	forRandom(t, 100, func(t *testing.T, rng *rand.Rand, l Layout, rows []batch.Row) {
		size, err := l.Size(rows, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		head := rng.IntN(200)
		body := bytes.Repeat([]byte{0xaa}, batch.Aligned(head)+size)
		got, tensors, err := l.Append(body[:head], rows, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(body) || &got[0] != &body[0] {
			t.Errorf("body grew to %d bytes in new memory = %v, want %d in place", len(got), &got[0] != &body[0], len(body))
		}
		rebuilt, at := bytes.Repeat([]byte{0xaa}, head), 0
		for i, want := range microbatch(t, l, rows, 0, 0) {
			rebuilt = append(rebuilt, make([]byte, batch.Aligned(len(rebuilt))-len(rebuilt))...)
			at = len(rebuilt)
			rebuilt = append(rebuilt, want.Data...)
			if !reflect.DeepEqual(tensors[i], want) {
				t.Errorf("%s differs in a used body", want.Name)
			}
			if &tensors[i].Data[0] != &got[at] {
				t.Errorf("%s does not alias the body at %d", want.Name, at)
			}
		}
		if !bytes.Equal(got, rebuilt) {
			t.Errorf("gaps or head of the body were changed:\ngot  %x\nwant %x", got, rebuilt)
		}
	})
}

func TestErrors(t *testing.T) {
	valid := Layout{Format: Megatron, CPSlicing: Zigzag, SequenceLength: 8, CP: 2, PP: 2, Packed: true}
	one := batch.Row{Segments: [][]int32{{1, 2, 3}}}
	for _, test := range []struct {
		name   string
		change func(l *Layout)
		rows   []batch.Row
		cp, pp int
		class  fault.Class
		want   string
	}{
		{"format", func(l *Layout) { l.Format = "jax" }, []batch.Row{one}, 0, 0, fault.User, "write megatron or hf"},
		{"slicing", func(l *Layout) { l.CPSlicing = "" }, []batch.Row{one}, 0, 0, fault.User, "zigzag, contiguous or none"},
		{"cp", func(l *Layout) { l.CP = 0 }, []batch.Row{one}, 0, 0, fault.User, "at least 1"},
		{"pp", func(l *Layout) { l.PP = -1 }, []batch.Row{one}, 0, 0, fault.User, "at least 1"},
		{"length", func(l *Layout) { l.SequenceLength = 0 }, []batch.Row{one}, 0, 0, fault.User, "from 1 to"},
		{"pad id", func(l *Layout) { l.PadID = -1 }, []batch.Row{one}, 0, 0, fault.User, "output.pad_id"},
		{"odd zigzag", func(l *Layout) { l.SequenceLength = 10 }, []batch.Row{one}, 0, 0, fault.User, "a multiple of 4, such as 12"},
		{"odd contiguous", func(l *Layout) { l.CPSlicing, l.SequenceLength = Contiguous, 9 }, []batch.Row{one}, 0, 0, fault.User, "a multiple of 2, such as 10"},
		{"rank", func(*Layout) {}, []batch.Row{one}, 2, 0, fault.User, "cp 0 to 1 and pp 0 to 1"},
		{"stage", func(*Layout) {}, []batch.Row{one}, 0, -1, fault.User, "no rank has cp 0 and pp -1"},
		{"no rows", func(*Layout) {}, nil, 0, 0, fault.Bug, "no row"},
		{"long row", func(*Layout) {}, []batch.Row{one, {Segments: [][]int32{make([]int32, 6), make([]int32, 3)}}}, 0, 0, fault.Bug, "row 1 of a microbatch: 9 tokens"},
		{"empty segment", func(*Layout) {}, []batch.Row{{Segments: [][]int32{{1}, {}}}}, 0, 0, fault.Bug, "segment 1 has no token"},
		{"not packed", func(l *Layout) { l.Packed = false }, []batch.Row{{Segments: [][]int32{{1}, {2}}}}, 0, 0, fault.Bug, "does not pack"},
	} {
		l := valid
		test.change(&l)
		_, err := l.Microbatch(test.rows, test.cp, test.pp)
		if err == nil || !strings.Contains(err.Error(), test.want) || fault.ClassOf(err) != test.class {
			t.Errorf("%s: got %v of class %v, want %q of class %v", test.name, err, fault.ClassOf(err), test.want, test.class)
		}
		if _, err := l.Size(test.rows, test.cp, test.pp); err == nil {
			t.Errorf("%s: Size has no error", test.name)
		}
	}
	// Lengths that only another layout could not cut.
	for _, l := range []Layout{
		{Format: Megatron, CPSlicing: Whole, SequenceLength: 7, CP: 2, PP: 1},
		{Format: Megatron, CPSlicing: Zigzag, SequenceLength: 7, CP: 1, PP: 1},
		{Format: HF, CPSlicing: Zigzag, SequenceLength: 7, CP: 2, PP: 1},
	} {
		if err := l.Validate(); err != nil {
			t.Errorf("%+v: %v", l, err)
		}
	}
}
