package cli

import (
	"bytes"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// logWriter passes text on to standard error without ever waiting for it: a planner that
// waits for whoever reads its log would hold up a whole training job. What comes while
// the queue is full is left out, and how much that was is said once there is room.
type logWriter struct {
	to      io.Writer
	queue   chan []byte
	dropped atomic.Int64
	end     chan struct{} // closed when nothing more is to come
	ended   chan struct{}
}

const (
	linesQueued = 1024            // a second of a very talkative log; some 200 KiB
	flushTime   = 2 * time.Second // what is queued may take at the end
)

func newLogWriter(to io.Writer) *logWriter {
	l := &logWriter{to: to, queue: make(chan []byte, linesQueued), end: make(chan struct{}), ended: make(chan struct{})}
	go l.pass()
	return l
}

func (l *logWriter) pass() {
	defer close(l.ended)
	for {
		select {
		case p := <-l.queue:
			l.print(p)
		case <-l.end:
			for len(l.queue) > 0 {
				l.print(<-l.queue)
			}
			return
		}
	}
}

func (l *logWriter) print(p []byte) {
	l.to.Write(p) // what cannot be written has nowhere else to go
	if n := l.dropped.Swap(0); n > 0 {
		fmt.Fprintf(l.to, "millrace: %d lines of the log were left out: standard error was not read fast enough\n", n)
	}
}

// Write takes p, which may be used again at once. It is safe for concurrent use.
func (l *logWriter) Write(p []byte) (int, error) {
	select {
	case l.queue <- bytes.Clone(p):
	default:
		l.dropped.Add(1)
	}
	return len(p), nil
}

// close waits a moment for what is queued; what is written after it may be lost.
func (l *logWriter) close() {
	close(l.end)
	select {
	case <-l.ended:
	case <-time.After(flushTime):
	}
}
