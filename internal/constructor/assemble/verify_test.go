package assemble

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/fault"
)

func lengthsOf(rows []batch.Row) [][]int {
	lengths := make([][]int, len(rows))
	for i, row := range rows {
		for _, segment := range row.Segments {
			lengths[i] = append(lengths[i], len(segment))
		}
	}
	return lengths
}

// delivery is what all ranks got: by cp, then pp.
func delivery(t *testing.T, l Layout, rows []batch.Row) [][][]batch.Tensor {
	t.Helper()
	all := make([][][]batch.Tensor, l.CP)
	for cp := range all {
		for pp := range l.PP {
			all[cp] = append(all[cp], microbatch(t, l, rows, cp, pp))
		}
	}
	return all
}

func verify(l Layout, rows []batch.Row, all [][][]batch.Tensor) ([]batch.Row, error) {
	return l.VerifyImages(lengthsOf(rows), imagesIn(rows), func(cp, pp int) []batch.Tensor { return all[cp][pp] })
}

func digests(rows []batch.Row) (list [][32]byte) {
	for _, row := range rows {
		list = append(list, batch.RowDigest(row))
	}
	return list
}

func TestVerifyInverts(t *testing.T) {
	forRandom(t, 300, func(t *testing.T, _ *rand.Rand, l Layout, rows []batch.Row) {
		got, err := verify(l, rows, delivery(t, l, rows))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(digests(got), digests(rows)) {
			t.Errorf("rebuilt rows are %v, want %v", got, rows)
		}
	})
}

// No flipped bit anywhere gets past Verify and the row digests together.
func TestVerifySeesEveryBit(t *testing.T) {
	reported := 0
	forRandom(t, 150, func(t *testing.T, rng *rand.Rand, l Layout, rows []batch.Row) {
		all := delivery(t, l, rows)
		for cp := range all {
			for pp := range all[cp] {
				for _, tensor := range all[cp][pp] {
					i, bit := rng.IntN(len(tensor.Data)), byte(1)<<rng.IntN(8)
					tensor.Data[i] ^= bit
					got, err := verify(l, rows, all)
					if err == nil && slices.Equal(digests(got), digests(rows)) {
						t.Errorf("cp %d pp %d: %s: byte %d was changed and nobody saw it", cp, pp, tensor.Name, i)
					}
					if err != nil {
						reported++
					}
					tensor.Data[i] ^= bit
				}
			}
		}
	})
	if reported == 0 {
		t.Error("Verify itself reported none of the changes")
	}
}

func TestVerifyErrors(t *testing.T) {
	base := Layout{Format: Megatron, CPSlicing: Zigzag, SequenceLength: 8, PadID: 9, CP: 2, PP: 2, Packed: true}
	hf := base
	hf.Format = HF
	thd, jax := base, base
	thd.Format, thd.PadID, thd.DocumentMultiple = MegatronTHD, 0, 4
	jax.Format = JAX
	set := func(cp, pp, tensor, element int, value int64) func([][][]batch.Tensor) {
		return func(all [][][]batch.Tensor) {
			tensor := all[cp][pp][tensor]
			if tensor.DType == batch.Int64 {
				binary.LittleEndian.PutUint64(tensor.Data[8*element:], uint64(value))
			} else {
				binary.LittleEndian.PutUint32(tensor.Data[4*element:], uint32(value))
			}
		}
	}
	for _, test := range []struct {
		name   string
		layout Layout
		change func([][][]batch.Tensor)
		want   string
	}{
		{"label", base, set(0, 1, 0, 6, 77), "verifying cp 0 pp 1: tensor labels: element [1 2] (row 1 position 6): got 77, want 38"},
		{"padding", base, set(1, 0, 0, 3, 7), "verifying cp 1 pp 0: tensor tokens: element [0 3] (row 0 position 5): got 7, want 9"},
		{"mask", base, set(1, 1, 1, 0, 0x3f000000), "verifying cp 1 pp 1: tensor loss_mask: element [0 0] (row 0 position 2): got 0.5, want 0"},
		{"bounds", base, set(1, 0, 2, 17, 4), "verifying cp 1 pp 0: tensor cu_seqlens: element [1 1]: got 4, want 8"},
		{"longest", base, set(0, 0, 3, 1, 4), "verifying cp 0 pp 0: tensor max_seqlen: element [1]: got 4, want 8"},
		{"no token id", base, set(0, 0, 0, 1, 1<<31), "verifying cp 0 pp 0: tensor tokens: element [0 1] (row 0 position 1): got 2147483648, want a token id"},
		{"hf label", hf, set(1, 1, 0, 2, 5), "verifying cp 1 pp 1: tensor labels: element [0 2] (row 1 position 1): got 5, want 32"},
		{"hf padding", hf, set(0, 1, 0, 7, 5), "verifying cp 0 pp 1: tensor labels: element [0 7] (padding position 2): got 5, want -100"},
		{"hf length", hf, set(0, 1, 5, 0, 5), "verifying cp 0 pp 1: tensor max_length_k: element []: got 5, want 8"},
		{"hf shifted label", hf, set(1, 1, 1, 1, 5), "verifying cp 1 pp 1: tensor shift_labels: element [0 1] (row 1 position 0): got 5, want 32"},
		{"thd label", thd, set(1, 1, 0, 4, 5), "verifying cp 1 pp 1: tensor labels: element [4] (row 1 position 2): got 5, want 34"},
		{"thd padding", thd, set(0, 0, 0, 3, 7), "verifying cp 0 pp 0: tensor tokens: element [3] (row 0 position 7): got 7, want 0"},
		{"thd bounds", thd, set(0, 0, 3, 2, 6), "verifying cp 0 pp 0: tensor cu_seqlens_padded: element [2]: got 6, want 8"},
		{"jax segment", jax, set(1, 0, 2, 1, 1), "verifying cp 1 pp 0: tensor inputs_segmentation: element [0 1] (row 0 position 3): got 1, want 2"},
		{"no tokens", base, func(all [][][]batch.Tensor) { all[1][0] = all[1][0][1:] }, "verifying cp 1 pp 0: tensor tokens is missing"},
		{"one missing", base, func(all [][][]batch.Tensor) { all[1][1] = all[1][1][1:] }, "got the tensors [loss_mask cu_seqlens max_seqlen], want [labels loss_mask cu_seqlens max_seqlen]"},
		{"one too many", base, func(all [][][]batch.Tensor) { all[0][0] = append(all[0][0], all[0][1][0]) }, "got the tensors [tokens position_ids cu_seqlens max_seqlen labels]"},
		{"shape", base, func(all [][][]batch.Tensor) { all[0][0][0].Shape = []int{1, 8} }, "tensor tokens: got int64 of shape [1 8], want int64 of shape [2 4]"},
		{"type", base, func(all [][][]batch.Tensor) { all[0][1][1].DType = batch.Int32 }, "tensor loss_mask: got int32 of shape [2 4], want float32"},
		{"truncated", base, func(all [][][]batch.Tensor) { all[0][0][1].Data = all[0][0][1].Data[:63] }, "tensor position_ids has 63 bytes"},
		{"truncated tokens", base, func(all [][][]batch.Tensor) { all[0][0][0].Data = nil }, "tensor tokens has 0 bytes"},
	} {
		all := delivery(t, test.layout, twoRows)
		test.change(all)
		_, err := verify(test.layout, twoRows, all)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s:\ngot  %v\nwant %s", test.name, err, test.want)
		} else if fault.ClassOf(err) != fault.Bug {
			t.Errorf("%s: class %v, want bug", test.name, fault.ClassOf(err))
		}
	}
}

// Wrong lengths come from the caller and are reported before anything is read.
func TestVerifyLengths(t *testing.T) {
	l := Layout{Format: Megatron, CPSlicing: Whole, SequenceLength: 8, CP: 1, PP: 1, Packed: true}
	for _, lengths := range [][][]int{nil, {{9}}, {{0}}, {{-1, 3}}, {{3}, {4, 5}}, {{1, 1<<63 - 1}}} {
		if _, err := l.Verify(lengths, func(cp, pp int) []batch.Tensor { return nil }); err == nil {
			t.Errorf("lengths %v: no error", lengths)
		}
	}
	all := delivery(t, l, twoRows)
	_, err := l.Verify([][]int{{2, 3}, {8}}, func(cp, pp int) []batch.Tensor { return all[cp][pp] })
	if err == nil || !strings.Contains(err.Error(), "position_ids: element [0 2] (row 0 position 2): got 2, want 0") {
		t.Errorf("other lengths than delivered: %v", err)
	}
}

// FuzzVerify gives Verify parts that are arbitrary bytes in one place. It must
// never panic, and only accept what assembling the rows it returns gives again.
func FuzzVerify(f *testing.F) {
	f.Add(uint64(1), uint8(0), uint16(0), []byte{1, 2, 3})
	f.Add(uint64(2), uint8(1), uint16(9), []byte("\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Add(uint64(3), uint8(5), uint16(300), []byte{})
	f.Fuzz(func(t *testing.T, seed uint64, which uint8, at uint16, data []byte) {
		rng := rand.New(rand.NewPCG(seed, 11))
		l := randomLayout(rng)
		rows := randomRows(rng, l)
		all := delivery(t, l, rows)
		tensors := all[int(which)%l.CP][int(which/16)%l.PP]
		if len(tensors) == 0 {
			return
		}
		tensor := &tensors[int(which/4)%len(tensors)]
		if len(data) == 0 {
			tensor.Data = tensor.Data[:min(int(at), len(tensor.Data))]
		} else {
			copy(tensor.Data[int(at)%len(tensor.Data):], data)
		}
		got, err := verify(l, rows, all)
		if err != nil {
			return
		}
		for cp, stages := range delivery(t, l, got) {
			if !reflect.DeepEqual(stages, all[cp]) {
				t.Errorf("accepted a delivery to cp %d that its rows do not give", cp)
			}
		}
	})
}

// A delivery that lies in one body per rank, as it does on the wire, is the same.
func TestVerifyBody(t *testing.T) {
	l := Layout{Format: HF, CPSlicing: Contiguous, SequenceLength: 8, CP: 2, PP: 1, Packed: true}
	var body []byte
	parts := func(cp, pp int) []batch.Tensor {
		var wire []batch.WireTensor
		var err error
		if body, wire, err = l.Append(bytes.Clone(body), twoRows, cp, pp); err != nil {
			t.Fatal(err)
		}
		_, tensors := batch.Widen(nil, wire)
		return tensors
	}
	if _, err := l.Verify(lengthsOf(twoRows), parts); err != nil {
		t.Error(err)
	}
}
