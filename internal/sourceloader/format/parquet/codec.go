package parquet

import (
	"bytes"
	"encoding/binary"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	pq "github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format/compress"
)

// decompress writes the content of src, which must be exactly size bytes long,
// to buf (grown if needed) and returns it. It never writes more than size.
func decompress(codec pq.CompressionCodec, buf, src []byte, size int) ([]byte, error) {
	buf, err := decode(codec, buf, src, size)
	if err != nil && fault.ClassOf(err) != fault.User {
		err = fault.Userf("decompressing %s: %w", codec, err)
	}
	if err == nil && len(buf) != size {
		err = fault.Userf("decompressing %s gives %d bytes, the header claims %d", codec, len(buf), size)
	}
	return buf, err
}

func decode(codec pq.CompressionCodec, buf, src []byte, size int) ([]byte, error) {
	switch codec {
	case pq.Snappy:
		if n, err := snappy.DecodedLen(src); err != nil || n != size {
			return nil, fault.Userf("decompressing SNAPPY: the block claims %d bytes, the header %d", n, size)
		}
		return snappy.Decode(compress.Sized(buf, size), src)
	case pq.Zstd:
		return compress.DecodeZstd(compress.Sized(buf, size)[:0:size], src)
	case pq.Gzip:
		r, err := gzip.NewReader(bytes.NewReader(src))
		if err != nil {
			return nil, err
		}
		return compress.Inflate(r, buf, len(src), size)
	case pq.Brotli:
		return compress.Inflate(brotli.NewReader(bytes.NewReader(src)), buf, len(src), size)
	case pq.Lz4Raw:
		return lz4Block(compress.Sized(buf, size), src)
	case pq.Lz4:
		if out, ok := hadoopLZ4(compress.Sized(buf, size), src); ok {
			return out, nil
		}
		return lz4Block(compress.Sized(buf, size), src)
	}
	return nil, fault.Userf("the codec %s is not supported; write the file with zstd, snappy, gzip, brotli, lz4 or none", codec)
}

func lz4Block(buf, src []byte) ([]byte, error) {
	n, err := lz4.UncompressBlock(src, buf)
	return buf[:max(n, 0)], err
}

// hadoopLZ4 decodes the framing that Hadoop puts around LZ4 blocks: two
// big-endian lengths, uncompressed and compressed, before each. It reports
// whether src has that form.
func hadoopLZ4(buf, src []byte) ([]byte, bool) {
	n := 0
	for len(src) >= 8 {
		raw, packed := int(binary.BigEndian.Uint32(src)), int(binary.BigEndian.Uint32(src[4:]))
		src = src[8:]
		if packed > len(src) || raw > len(buf)-n {
			return nil, false
		}
		m, err := lz4.UncompressBlock(src[:packed], buf[n:n+raw])
		if err != nil || m != raw {
			return nil, false
		}
		n, src = n+m, src[packed:]
	}
	return buf[:n], len(src) == 0 && n == len(buf)
}
