package rpc

import (
	"sync"

	"google.golang.org/grpc/mem"
)

// framePool lends gRPC the memory that it reads HTTP/2 frames into. gRPC's own
// pool clears every buffer before it is read into; this one does not.
type framePool struct{ pool sync.Pool }

// frameMemory is the longest frame that gRPC sends.
const frameMemory = 16 << 10

var frameBuffers mem.BufferPool = &framePool{sync.Pool{New: func() any {
	b := make([]byte, frameMemory)
	return &b
}}}

func (p *framePool) Get(n int) *[]byte {
	if n > frameMemory {
		b := make([]byte, n)
		return &b
	}
	b := p.pool.Get().(*[]byte)
	*b = (*b)[:n]
	return b
}

func (p *framePool) Put(b *[]byte) {
	if cap(*b) == frameMemory {
		p.pool.Put(b)
	}
}
