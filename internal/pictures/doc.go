// Package pictures decodes many images at a time, for whoever delivers pixels: a
// loader or a constructor, as the job spec says.
//
// It owns the decoders, with their memory, and the words for an image that turns out
// to be damaged after it was planned. What pixels are is package vision's; which
// images are decoded, and where the pixels go, is the caller's.
package pictures
