package samples_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/millrace-data/millrace/internal/samples"
)

func TestImages(t *testing.T) {
	with := samples.Set{
		Tokens: []int32{1, 7, 7, 2, 3}, Offsets: []int32{0, 4, 4, 5},
		Images: [][]samples.Image{
			{
				{At: 1, H: 2, W: 4, SHA: [32]byte{1, 31: 2}, Origin: "a.tar row 7", Data: []byte("jpeg")},
				{At: 2, H: 2, W: 2, SHA: [32]byte{3}},
			},
			nil,
			{{H: 4, W: 6, SHA: [32]byte{4}, Origin: "b", Data: bytes.Repeat([]byte{9}, 1000), Decoded: true}},
		},
	}
	without := samples.Set{Tokens: []int32{5}, Offsets: []int32{0, 1}, Images: make([][]samples.Image, 1)}
	data, err := samples.Encode([]samples.Set{with, {Tokens: []int32{5}, Offsets: []int32{0, 1}}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := samples.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []samples.Set{with, without} {
		if !reflect.DeepEqual(got[i].Images, want.Images) {
			t.Errorf("set %d: %+v, want %+v", i, got[i].Images, want.Images)
		}
		check(t, &got[i], &want)
	}
}

// TestDamagedImages flips bytes of the values of an answer with images: an error or
// a set that can be read, no panic.
func TestDamagedImages(t *testing.T) {
	data, err := samples.Encode([]samples.Set{{
		Tokens: []int32{0x01020304, 2}, Offsets: []int32{0, 2}, Kept: [][][]byte{{[]byte("k")}},
		Images: [][]samples.Image{{{At: 1, H: 2, W: 2, Origin: "a", Data: []byte("xyz")}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	first, end := bytes.Index(data, []byte{4, 3, 2, 1}), bytes.LastIndex(data, []byte("xyz"))
	for at := first; at < end; at++ {
		damaged := bytes.Clone(data)
		damaged[at] ^= 0xff
		sets, err := samples.Decode(damaged)
		if err != nil {
			refused++
			continue
		}
		for i := range sets {
			for _, images := range sets[i].Images {
				for k := range images {
					_ = bytes.Clone(images[k].Data)
				}
			}
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
}
