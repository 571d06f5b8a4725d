// Package imaging turns encoded pictures into the input of a vision encoder: patches
// of a grid whose size follows from the picture's size alone.
//
// It has two independent parts. Size reads the width and the
// height of a picture from its header, so that a plan can count its tokens without
// decoding it. Decoder.AppendPatches decodes it, later and maybe elsewhere, into
// the patches that were counted. Both use Geometry, the rule from a size
// to a grid: the dynamic resolution of Qwen2-VL (arXiv 2409.12191, section 2.1).
//
// # Formats
//
// JPEG (baseline and progressive, 8 bits; gray, YCbCr, RGB, CMYK, YCCK), PNG, GIF
// (the first frame, on its logical screen), WebP (not animated), BMP (uncompressed)
// and TIFF (the first page; gray, RGB, RGBA and palettes, in one plane). Anything else is refused with the list, and
// kinds of these formats that are not decoded by their headers. A picture's
// orientation in EXIF is applied: sizes and patches are those of the picture as
// displayed. Orientation in XMP, color profiles and gamma are not used.
//
// # Pixels
//
// Every picture becomes RGB with 8 bits a channel. Gray is three equal channels; a
// palette is looked up; CMYK is converted without a profile; the high byte of 16
// bits is kept; alpha is blended over white. The chroma of a JPEG or WebP that has
// less of it than luma is interpolated between its samples, as libjpeg and libwebp
// do by default, and WebP has the narrow range of ITU-R BT.601.
//
// The picture is then resized by a bicubic filter (Keys, a = -1/2) that widens when
// it shrinks, so that nothing aliases: the width first, then the height. On the same RGB picture
// the result is, byte for byte, that of Image.resize with BICUBIC in Pillow up to version
// 12, which image processors of Hugging Face use (version 13 chooses which side comes
// first). JPEG pictures themselves differ from Pillow's by a level here and there, 3 at
// most and 0.05 on average in our tests, since the inverse transforms round differently.
//
// # Determinism
//
// A picture's patches are a function of its bytes and the geometry, the same on every
// architecture: nothing here computes in floating point, nor do the decoders used. The
// JPEG decoder is that of Go's standard library, which may round differently in
// another release. Fingerprint tells builds that do apart.
//
// # Damage
//
// Sizes are checked before memory is allocated: pictures above MaxPicturePixels,
// and headers that claim more pixels than the data can hold, are refused. Damaged and
// truncated data is an error of class fault.User that describes the damage; the caller
// adds the picture's name.
//
// The package owns no file, no goroutine and no policy about bad pictures. It does not
// normalize: means and deviations belong to the trainer's model.
package imaging
