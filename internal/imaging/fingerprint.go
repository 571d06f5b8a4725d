package imaging

import (
	"crypto/sha256"
	_ "embed"
)

// probe is a JPEG of noise, 50 x 34 pixels with chroma halved on both sides, 90 percent
// quality: its many uneven coefficients expose differences in rounding.
//
//go:embed probe.jpg
var probe []byte

// revision is raised when this package takes other pictures, or makes other pixels of them, that the fixed JPEG does not
// show: 2 has no alpha in BMPs that do not say so, faxes as they were written, and refuses by the header what was
// refused, or misread, when it was decoded.
const revision = 2

// Fingerprint is the SHA-256 of the patches of a fixed JPEG, and of revision. It is part of a job's
// identity, as a tokenizer's digest is: two builds with different fingerprints
// make different pixels of the same file. All other decoders are fixed by go.mod or give
// the exact stored pixels.
func Fingerprint() [32]byte {
	p, err := Decode(probe, Geometry{Patch: 14, Merge: 2, MinPixels: 0, MaxPixels: 84 * 56})
	if err != nil {
		panic("vision: decoding the embedded probe: " + err.Error())
	}
	return sha256.Sum256(append(p.Patches, revision))
}
