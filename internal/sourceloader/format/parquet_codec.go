package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	pq "github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"

	"github.com/millrace-data/millrace/internal/fault"
)

// zstdDecoder is shared by all reads: it is safe for concurrent use, and the
// limit makes it refuse a frame that is longer than the buffer it is given.
var zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderLowmem(true), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(err) // the options above are constants
	}
	return d
})

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
		return snappy.Decode(sized(buf, size), src)
	case pq.Zstd:
		return zstdDecoder().DecodeAll(src, sized(buf, size)[:0:size])
	case pq.Gzip:
		r, err := gzip.NewReader(bytes.NewReader(src))
		if err != nil {
			return nil, err
		}
		return inflate(r, buf, len(src), size)
	case pq.Brotli:
		return inflate(brotli.NewReader(bytes.NewReader(src)), buf, len(src), size)
	case pq.Lz4Raw:
		return lz4Block(sized(buf, size), src)
	case pq.Lz4:
		if out, ok := hadoopLZ4(sized(buf, size), src); ok {
			return out, nil
		}
		return lz4Block(sized(buf, size), src)
	}
	return nil, fault.Userf("the codec %s is not supported; write the file with zstd, snappy, gzip, brotli, lz4 or none", codec)
}

// sized returns buf with size bytes, in new memory if it is too short.
func sized(buf []byte, size int) []byte {
	if cap(buf) < size {
		return make([]byte, size)
	}
	return buf[:size]
}

// inflate reads r to its end. The buffer grows with what is really there, so
// that a claimed size alone allocates little.
func inflate(r io.Reader, buf []byte, compressed, size int) ([]byte, error) {
	buf = sized(buf, min(size, 16*compressed+4096))
	n := 0
	for {
		m, err := io.ReadFull(r, buf[n:])
		n += m
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return buf[:n], notTruncated(r, err)
		case err != nil:
			return nil, err
		case n < size:
			grown := make([]byte, min(size, 2*n))
			copy(grown, buf)
			buf = grown
			continue
		}
		var more [1]byte
		switch m, err := io.ReadFull(r, more[:]); {
		case m > 0:
			return nil, fault.Userf("the compressed data is longer than the %d bytes that its header claims", size)
		case !errors.Is(err, io.EOF):
			return nil, err
		}
		return buf[:n], nil
	}
}

// notTruncated tells the end of the data from a stream that was cut: ReadFull
// reports both as an unexpected end, the reader itself does not.
func notTruncated(r io.Reader, err error) error {
	var more [1]byte
	if _, again := r.Read(more[:]); again != nil && !errors.Is(again, io.EOF) {
		return err
	}
	return nil
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
