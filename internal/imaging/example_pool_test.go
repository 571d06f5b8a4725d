package imaging_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"image"
	"image/color"
	"image/png"

	"github.com/millrace-data/millrace/internal/imaging"
)

func ExamplePool() {
	var buf bytes.Buffer
	m := image.NewGray(image.Rect(0, 0, 8, 4))
	m.SetGray(0, 0, color.Gray{255})
	if err := png.Encode(&buf, m); err != nil {
		fmt.Println(err)
		return
	}
	g := imaging.Geometry{Patch: 4, Merge: 1, MinPixels: 0, MaxPixels: 64}
	grid := imaging.Grid{H: 1, W: 2}
	list := []imaging.Picture{{
		Data: buf.Bytes(), SHA: sha256.Sum256(buf.Bytes()), Grid: grid, Origin: "a.png",
		Patches: make([]byte, 0, grid.Patches()*g.PatchBytes()),
	}}
	err := imaging.NewPool(2, nil).Decode(context.Background(), list, g)
	fmt.Println(len(list[0].Patches), list[0].Patches[:3], err)
	// Output: 96 [255 0 0] <nil>
}
