package samples_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/millrace-data/millrace/internal/samples"
)

func TestMasked(t *testing.T) {
	with := samples.Set{
		Tokens: []int32{1, 7, 7, 2, 3, 4, 5}, Offsets: []int32{0, 4, 4, 7}, Kept: [][][]byte{{[]byte("a"), nil, {}}},
		Masked: [][]int32{{1, 2, 3, 4}, nil, {1, 3}},
	}
	plain := samples.Set{Tokens: []int32{5}, Offsets: []int32{0, 1}}
	data, err := samples.Encode([]samples.Set{with, plain})
	if err != nil {
		t.Fatal(err)
	}
	got, err := samples.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	check(t, &got[0], &with)
	if !reflect.DeepEqual(got[0].Masked, with.Masked) || !reflect.DeepEqual(got[1].Masked, make([][]int32, 1)) {
		t.Errorf("%v and %v", got[0].Masked, got[1].Masked)
	}
	if data, err = samples.Encode([]samples.Set{plain}); err != nil || bytes.Contains(data, []byte("masked")) {
		t.Errorf("samples that all carry loss have a column for it: %v", err)
	}
}

// TestDamagedMasks flips bytes of an answer with loss masks: an error, or bounds that lie in
// their samples.
func TestDamagedMasks(t *testing.T) {
	data, err := samples.Encode([]samples.Set{{Tokens: make([]int32, 40), Offsets: []int32{0, 40}, Masked: [][]int32{{0x11, 0x12, 0x13, 0x14}}}})
	if err != nil {
		t.Fatal(err)
	}
	refused, at := 0, bytes.Index(data, []byte{0x11, 0, 0, 0, 0x12})
	for i := at; i < at+16; i++ {
		damaged := bytes.Clone(data)
		damaged[i] ^= 0x41
		sets, err := samples.Decode(damaged)
		if err != nil {
			refused++
			continue
		}
		if err := samples.CheckMasked(sets[0].Masked[0], 40); err != nil {
			t.Error(err)
		}
	}
	if refused < 12 {
		t.Errorf("%d damaged bytes were refused", refused)
	}
}
