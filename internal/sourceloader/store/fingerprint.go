package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/millrace-data/millrace/internal/fault"
)

const (
	fingerprintEnd    = 64 << 10 // bytes hashed at each end: where headers, footers and indexes are
	fingerprintProbe  = 4 << 10  // bytes of each probe between: one page of a disk
	fingerprintProbes = 16       // probes: a manifest of 10^5 files can afford 18 ranged reads a file
)

// Fingerprint returns the SHA-256 over the size of obj (8 bytes, little-endian),
// its first and last 64 KiB, and 16 evenly spaced probes of 4 KiB between. A
// file of up to 192 KiB is hashed whole.
//
// It detects every change of size, every change in the hashed ranges (so any
// rewrite by a Parquet, Arrow, gzip or zstd writer, whose footers or checksums
// follow the content) and, with high probability, a file that was shifted,
// sorted or regenerated. It cannot detect an equally long change that lies
// wholly between the probes, such as one flipped byte of a big JSONL file.
func Fingerprint(ctx context.Context, st Store, obj Object) (sum [32]byte, err error) {
	h, err := st.Open(ctx, obj)
	if err != nil {
		return sum, err
	}
	defer h.Close()
	hash := sha256.New()
	hash.Write(binary.LittleEndian.AppendUint64(nil, uint64(obj.Size)))
	buf := make([]byte, min(max(obj.Size, 1), 32<<10)) // many files are small
	for _, r := range fingerprintRanges(obj.Size) {
		n, err := io.CopyBuffer(hash, io.NewSectionReader(h, r.off, r.len), buf)
		if err != nil {
			return sum, fmt.Errorf("fingerprinting %s: %w", obj.URI, err)
		}
		if n != r.len {
			return sum, fault.Userf("fingerprinting %s: it ends at byte %d but was listed with %d: %w",
				obj.URI, r.off+n, obj.Size, ErrChanged)
		}
	}
	return [32]byte(hash.Sum(nil)), nil
}

type byteRange struct{ off, len int64 }

// fingerprintRanges returns the hashed ranges of a file, by offset and
// without overlap.
func fingerprintRanges(size int64) []byteRange {
	if size <= 2*fingerprintEnd+fingerprintProbes*fingerprintProbe {
		return []byteRange{{0, size}}
	}
	ranges := []byteRange{{0, fingerprintEnd}}
	middle := size - 2*fingerprintEnd
	gap := middle / fingerprintProbes
	for i := range int64(fingerprintProbes) {
		ranges = append(ranges, byteRange{fingerprintEnd + i*gap + (gap-fingerprintProbe)/2, fingerprintProbe})
	}
	return append(ranges, byteRange{size - fingerprintEnd, fingerprintEnd})
}
