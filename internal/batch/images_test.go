package batch

import (
	"bytes"
	"encoding/hex"
	"testing"
)

func sha(b byte) [32]byte { return [32]byte(bytes.Repeat([]byte{b}, 32)) }

// TestImageDigest: the digest of a row with images, computed independently, and the
// fields it depends on.
func TestImageDigest(t *testing.T) {
	make := func() Row {
		return Row{Segments: [][]int32{{1, 2, 3}}, Images: []Image{
			{At: 1, Tokens: 1, H: 4, W: 2, SHA: sha(1), Data: []byte("x")}, {At: 2, Tokens: 1, H: 2, W: 2, SHA: sha(2)},
		}}
	}
	const want = "6d9e97f0dcbcab39058bbdd2ac378cba40a802a9c5f16f11f03bf1a74040b455"
	golden := RowDigest(make())
	if hex.EncodeToString(golden[:]) != want {
		t.Errorf("got %x, want %s", golden, want)
	}
	for name, change := range map[string]func(x *Image){
		"document": func(x *Image) { x.Document++ }, "at": func(x *Image) { x.At++ }, "height": func(x *Image) { x.H++ },
		"width": func(x *Image) { x.W++ }, "sha": func(x *Image) { x.SHA[31]++ },
	} {
		row := make()
		if change(&row.Images[1]); RowDigest(row) == golden {
			t.Errorf("another %s has the same digest", name)
		}
	}
	row := make()
	row.Images[0].Data, row.Images[0].Tokens = nil, 9
	if RowDigest(row) != golden {
		t.Error("the digest depends on where images are decoded")
	}
	row.Images = row.Images[:1]
	if RowDigest(row) == golden {
		t.Error("an image less has the same digest")
	}
}
