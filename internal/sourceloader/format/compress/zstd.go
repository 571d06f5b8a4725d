package compress

import (
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/millrace-data/millrace/internal/fault"
)

const (
	maxWindow  = 128 << 20 // what the zstd tool allows by default
	zstdBlock  = 128 << 10 // the longest block of a frame
	zstdTables = 96 << 10  // Huffman and sequence tables, measured
)

// zstdReader reads the frames of a zstd file as one stream, in one goroutine. It
// notes the header of the first frame, which says how much memory the window takes.
type zstdReader struct {
	*zstd.Decoder
	raw   io.Reader
	head  [zstd.HeaderMaxSize]byte
	noted int
}

// NewZstd returns a reader of a zstd stream with windows of up to 128 MiB.
func NewZstd(raw io.Reader) (Reader, error) {
	z := &zstdReader{raw: raw}
	var err error
	z.Decoder, err = zstd.NewReader(note{z}, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(1<<50))
	if err != nil {
		return nil, err
	}
	return z, nil
}

// note is the compressed side of a reader.
type note struct{ z *zstdReader }

func (n note) Read(p []byte) (int, error) {
	got, err := n.z.raw.Read(p)
	n.z.noted += copy(n.z.head[n.z.noted:], p[:got])
	return got, err
}

// Held implements Reader.
func (z *zstdReader) Held() int64 {
	var h zstd.Header
	if h.Decode(z.head[:z.noted]) != nil || h.Skippable {
		return zstdTables
	}
	window := h.WindowSize
	if h.SingleSegment {
		window = h.FrameContentSize
	}
	window = min(window, maxWindow)
	return int64(window+4*min(window, zstdBlock)) + zstdTables
}

// WindowTooLong says what is wrong with a stream whose window is beyond the limit;
// nil for other errors.
func WindowTooLong(uri string, err error) error {
	if !errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return nil
	}
	return fault.Userf("decompressing %s: %w: windows of up to %d MiB are read (zstd --long=27)", uri, err, maxWindow>>20)
}
