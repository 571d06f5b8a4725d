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
		Format:    Formats()[rng.IntN(len(Formats()))],
		CPSlicing: []string{Zigzag, Contiguous, Whole}[rng.IntN(3)],
		PadID:     rng.Int32N(5),
		CP:        1 + rng.IntN(4),
		PP:        1 + rng.IntN(3),
		Packed:    rng.IntN(4) > 0,
		Masks:     rng.IntN(2) > 0,
	}
	unit := l.multiple()
	switch l.Format {
	case MegatronTHD:
		l.CPSlicing, l.PadID = []string{Zigzag, Whole}[rng.IntN(2)], 0
		l.DocumentMultiple = l.multiple() * (1 + rng.IntN(3))
		unit = l.DocumentMultiple
	case Torchtitan:
		l.CPSlicing = Whole
	}
	l.SequenceLength = unit * (1 + rng.IntN(20))
	return l
}

// randomRows draws rows that fit l: some full, some empty, many short documents.
func randomRows(rng *rand.Rand, l Layout) []batch.Row {
	rows := make([]batch.Row, 1+rng.IntN(3))
	for i := range rows {
		left := l.SequenceLength
		if rng.IntN(3) == 0 {
			left = rng.IntN(left/l.room(1)+1) * l.room(1)
		}
		for left > 0 && (l.Packed || rows[i].Segments == nil) {
			n := 1 + rng.IntN(left) // left is a multiple of what documents are padded to
			if rng.IntN(2) == 0 {
				n = min(n, 1+rng.IntN(3))
			}
			doc := make([]int32, n)
			for j := range doc {
				doc[j] = rng.Int32()
			}
			rows[i].Segments = append(rows[i].Segments, doc)
			rows[i].Images = append(rows[i].Images, randomImages(rng, len(rows[i].Segments)-1, n)...)
			left -= l.room(n)
		}
		if l.Masks {
			rows[i].Masked = randomMasks(rng, &rows[i])
		}
	}
	return rows
}

// randomImages gives a document of n tokens up to two images, most often none.
func randomImages(rng *rand.Rand, document, n int) (images []batch.Image) {
	at := 0
	for rng.IntN(3) == 0 && len(images) < 2 && at < n {
		at += rng.IntN(n - at)
		tokens := 1 + rng.IntN(n-at)
		images = append(images, batch.Image{Document: document, At: at, Tokens: tokens, H: 2 * tokens, W: 2, SHA: [32]byte{byte(at)}})
		at += tokens
	}
	return images
}

// randomMasks gives the documents of a row tokens without loss, apart from placeholders and
// first tokens; most often none.
func randomMasks(rng *rand.Rand, row *batch.Row) (masked [][]int32) {
	for k, doc := range row.Segments {
		var bounds []int32
		if rng.IntN(2) == 0 {
			for i := 1; i < len(doc); i++ {
				switch n := len(bounds); {
				case rng.IntN(3) > 0 || placeholder(*row, k, i):
				case n > 0 && int(bounds[n-1]) == i:
					bounds[n-1]++
				default:
					bounds = append(bounds, int32(i), int32(i)+1)
				}
			}
		}
		if bounds != nil {
			masked = append(masked, make([][]int32, k+1-len(masked))...)
			masked[k] = bounds
		}
	}
	return masked
}

func imagesIn(rows []batch.Row) (images [][]batch.Image) {
	for _, row := range rows {
		images = append(images, row.Images)
	}
	return images
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
				lines := cells(l, rows)
				switch {
				case l.Format == HF:
					checkBounds(t, byName["cu_seq_lens_q"], byName["max_length_q"], 0, ends(rows, len(lines[0])))
					checkBounds(t, byName["cu_seq_lens_k"], byName["max_length_k"], 0, ends(rows, len(lines[0])))
				case l.Format == MegatronTHD:
					checkSegments(t, byName, lines)
				case l.Format == Megatron && l.Packed:
					for i, line := range lines {
						checkBounds(t, byName["cu_seqlens"], byName["max_seqlen"], i, ends(rows[i:i+1], len(line)))
					}
				case byName["cu_seqlens"].Name != "":
					t.Error("cu_seqlens in a job that does not pack, or in a format without it")
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

// checkSegments compares the bounds of a MegatronTHD microbatch with its lines.
func checkSegments(t *testing.T, got map[string]batch.Tensor, lines [][]cell) {
	t.Helper()
	tokens, end, longest := 0, 0, 0
	wantTokens, wantEnds := " 0", " 0"
	for _, line := range lines {
		for _, c := range line {
			if c.segment != "0" {
				tokens++
			}
		}
		end, longest = end+len(line), max(longest, len(line))
		wantTokens, wantEnds = fmt.Sprint(wantTokens, " ", tokens), fmt.Sprint(wantEnds, " ", end)
	}
	n := len(lines) + 1
	for name, want := range map[string]string{
		"cu_seqlens":        fmt.Sprintf("\n\tcu_seqlens int32 [%d]:%s", n, wantTokens),
		"cu_seqlens_padded": fmt.Sprintf("\n\tcu_seqlens_padded int32 [%d]:%s", n, wantEnds),
		"max_seqlen":        fmt.Sprintf("\n\tmax_seqlen int32 [1]: %d", longest),
	} {
		if text := render([]batch.Tensor{got[name]}); text != want {
			t.Errorf("got%s\nwant%s", text, want)
		}
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
			if k := slices.IndexFunc(columns(l.Format), func(c column) bool { return c.Name == whole.Name }); !columns(l.Format)[k].perToken {
				continue
			}
			if l.Format == MegatronTHD {
				if got := joinSegments(l, rows, parts); !bytes.Equal(got, whole.Data) {
					t.Errorf("%s: joined slices are %v, the whole is %v", whole.Name, got, whole.Data)
				}
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

// joinSegments is join for slices of one segment after the other: of each, rank r
// of n holds chunks r and 2n-1-r. It looks at nothing but the bounds.
func joinSegments(l Layout, rows []batch.Row, parts []batch.Tensor) []byte {
	size := parts[0].DType.Size()
	joined := []byte{}
	at := 0
	for _, line := range cells(l, rows) {
		n := len(line) / l.CP * size
		if l.CPSlicing == Whole {
			n = len(line) * size
		}
		var slices []batch.Tensor
		for _, part := range parts {
			slices = append(slices, batch.Tensor{Shape: []int{1}, Data: part.Data[at : at+n]})
		}
		joined = append(joined, join(l, slices)...)
		at += n
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
		_, delivered := batch.Widen(nil, tensors)
		rebuilt, at := bytes.Repeat([]byte{0xaa}, head), 0
		for i, want := range microbatch(t, l, rows, 0, 0) {
			if !reflect.DeepEqual(delivered[i], want) {
				t.Errorf("%s differs in a used body", want.Name)
			}
			if err := tensors[i].Check(); err != nil {
				t.Error(err)
			}
			rebuilt = append(rebuilt, make([]byte, batch.Aligned(len(rebuilt))-len(rebuilt))...)
			at = len(rebuilt)
			rebuilt = append(rebuilt, tensors[i].Data...)
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
		{"format", func(l *Layout) { l.Format = "flax" }, []batch.Row{one}, 0, 0, fault.User, "write one of megatron, megatron-thd, hf, torchtitan, jax"},
		{"slicing", func(l *Layout) { l.CPSlicing = "" }, []batch.Row{one}, 0, 0, fault.User, "zigzag, contiguous or none"},
		{"cp", func(l *Layout) { l.CP = 0 }, []batch.Row{one}, 0, 0, fault.User, "at least 1"},
		{"pp", func(l *Layout) { l.PP = -1 }, []batch.Row{one}, 0, 0, fault.User, "at least 1"},
		{"length", func(l *Layout) { l.SequenceLength = 0 }, []batch.Row{one}, 0, 0, fault.User, "from 1 to"},
		{"pad id", func(l *Layout) { l.PadID = -1 }, []batch.Row{one}, 0, 0, fault.User, "output.pad_id"},
		{"odd zigzag", func(l *Layout) { l.SequenceLength = 10 }, []batch.Row{one}, 0, 0, fault.User, "a multiple of 4, such as 12"},
		{"odd contiguous", func(l *Layout) { l.CPSlicing, l.SequenceLength = Contiguous, 9 }, []batch.Row{one}, 0, 0, fault.User, "a multiple of 2, such as 10"},
		{"multiple", func(l *Layout) { l.DocumentMultiple = 4 }, []batch.Row{one}, 0, 0, fault.User, "write format megatron-thd"},
		{"cut twice", func(l *Layout) { l.Format = Torchtitan }, []batch.Row{one}, 0, 0, fault.User, "torchtitan cuts the sequence itself: write none"},
		{"thd uncut", func(l *Layout) { l.Format, l.DocumentMultiple = MegatronTHD, 2 }, []batch.Row{one}, 0, 0, fault.User, "a document of 2 tokens cannot be cut over cp 2: write a multiple of 4"},
		{"thd length", func(l *Layout) { l.Format, l.DocumentMultiple, l.SequenceLength = MegatronTHD, 4, 10 }, []batch.Row{one}, 0, 0, fault.User, "write such as 12"},
		{"thd padding", func(l *Layout) { l.Format, l.PadID = MegatronTHD, 1 }, []batch.Row{one}, 0, 0, fault.User, "holds 0: write 0"},
		{"thd contiguous", func(l *Layout) { l.Format, l.CPSlicing = MegatronTHD, Contiguous }, []batch.Row{one}, 0, 0, fault.User, "write zigzag or none"},
		{"thd long row", func(l *Layout) { l.Format, l.DocumentMultiple = MegatronTHD, 4 }, []batch.Row{{Segments: [][]int32{{1}, {2}, {3}}}}, 0, 0, fault.Bug, "12 tokens do not fit"},
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
