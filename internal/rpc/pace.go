package rpc

import "time"

// A body goes in pieces: who receives hears whole pieces only, and takes one who says nothing for as long as
// three rounds for stopped. On links that are fast pieces are as large as frames may be, which costs the least. Until a link has
// shown what it carries, and on those that carry little, they have pieceBytes: at 10 KB/s these take 3 s, of the 12 that a
// caller waits at most.
//
// A sender sees only what the transport takes, and that takes some at once, however slow the link is: windows
// of HTTP/2, which begin with 64 KiB and grow, and what gRPC keeps for them. So a piece is a small part of what has gone before it,
// or of what the receiver says to have.
const (
	pieceBytes = 32_000
	pieceShare = 8                      // of what has gone of a body
	pieceTime  = 100 * time.Millisecond // that a piece takes at the most, as the link was
	// pieceLook is how much is sent between two looks at how fast the link is.
	pieceLook = 128_000
	// pieceProof is how much of a body has to go, at last as fast as frames need, for the next body to go in frames from its
	// beginning.
	pieceProof = 1_000_000
)

// Pace is how large the pieces of the bodies of a stream are. The zero value is ready; it is for one goroutine.
type Pace struct {
	most   int       // bytes that take pieceTime; 0: not known
	proven bool      // by a body as large as pieceProof
	shown  int       // bytes that took pieceTime at the most, as the receiver says; 0: it has not said
	gone   int       // bytes of the body
	mark   int       // of them, when the link was looked at last
	since  time.Time // when that was
}

// begin begins a body.
func (p *Pace) begin() { p.gone, p.mark, p.since = 0, 0, time.Now() }

// piece is the size of the next piece.
func (p *Pace) piece() int {
	if p.proven {
		return frameBytes
	}
	return max(min(p.most, p.gone/pieceShare), min(p.shown, frameBytes), pieceBytes)
}

// Arrived says that the receiver had a body of a number of bytes a time after it began to go.
func (p *Pace) Arrived(bytes int, took time.Duration) {
	p.shown = int(min(float64(bytes)*float64(pieceTime)/float64(max(took, 1)), frameBytes))
}

// sent notes that the transport took a piece.
func (p *Pace) sent(n int) {
	p.gone += n
	if p.gone-p.mark < pieceLook {
		return
	}
	now, bytes := time.Now(), float64(p.gone-p.mark)*float64(pieceTime)
	p.most = frameBytes
	if took := float64(now.Sub(p.since)); bytes < frameBytes*took {
		p.most = int(bytes / took)
	}
	p.proven = p.most == frameBytes && (p.proven || p.gone >= pieceProof)
	p.mark, p.since = p.gone, now
}
