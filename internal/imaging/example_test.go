package imaging_test

import (
	"bytes"
	"fmt"
	"image"
	"image/jpeg"

	"github.com/millrace-data/millrace/internal/imaging"
)

// A plan counts a picture's tokens from its header. Decoding it later gives the
// patches that were counted.
func ExampleDecoder_AppendPatches() {
	var file bytes.Buffer
	if err := jpeg.Encode(&file, image.NewGray(image.Rect(0, 0, 640, 480)), nil); err != nil {
		fmt.Println(err)
	}
	qwen := imaging.Geometry{Patch: 14, Merge: 2, MinPixels: 56 * 56, MaxPixels: 28 * 28 * 1280}

	info, err := imaging.Size(file.Bytes())
	fmt.Println(info.Format, info.Width, info.Height, err)
	grid, err := qwen.Grid(info.Width, info.Height)
	fmt.Println(grid.H, grid.W, grid.Patches(), qwen.Tokens(grid), err)

	var d imaging.Decoder
	patches, grid, err := d.AppendPatches(nil, file.Bytes(), qwen)
	fmt.Println(grid.H, grid.W, len(patches) == grid.Patches()*qwen.PatchBytes(), err)
	// Output:
	// jpeg 640 480 <nil>
	// 34 46 1564 391 <nil>
	// 34 46 true <nil>
}
