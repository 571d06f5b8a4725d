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

// blocks are decoders of blocks that are not in use, one for each core of a large
// machine. A sync.Pool would lose them at every collection, and they are costly to make.
var blocks = make(chan *zstd.Decoder, 64)

// blockDecoder returns one for the caller alone. Its limit makes it refuse a frame that
// is longer than the buffer it is given.
func blockDecoder() (*zstd.Decoder, error) {
	select {
	case d := <-blocks:
		return d, nil
	default:
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecodeAllCapLimit(true))
	}
}

// emptyFrame is a frame of no bytes: magic, single segment of length 0, last block.
var emptyFrame = []byte{0x28, 0xb5, 0x2f, 0xfd, 0x20, 0, 1, 0, 0}

// DecodeZstd decompresses a block into buf, as far as its capacity goes.
func DecodeZstd(buf, src []byte) ([]byte, error) {
	d, err := blockDecoder()
	if err != nil {
		return nil, err
	}
	out, err := d.DecodeAll(src, buf[:0])
	// A decoder refers to its last output until the next one, which is the caller's.
	if _, again := d.DecodeAll(emptyFrame, nil); again == nil {
		select {
		case blocks <- d:
		default:
		}
	}
	return out, err
}

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
