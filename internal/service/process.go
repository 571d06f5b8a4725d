package service

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
)

func hostOf(address string) (string, bool) {
	host, _, err := net.SplitHostPort(address)
	if err != nil || strings.HasPrefix(address, "unix:") {
		return "", false
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host, true
}

// firstLine calls found with the first line written to it and drops the rest.
type firstLine struct {
	found func(string)
	buf   bytes.Buffer
	done  bool
}

func (f *firstLine) Write(p []byte) (int, error) {
	if f.done {
		return len(p), nil
	}
	f.buf.Write(p)
	if line, _, ok := bytes.Cut(f.buf.Bytes(), []byte("\n")); ok {
		f.done = true
		f.found(string(line))
	}
	return len(p), nil
}

// tail passes a process's stderr on and keeps its last line for the error.
type tail struct {
	to io.Writer

	mu  sync.Mutex
	end []byte
}

// tailBytes is enough for the longest message of ours.
const tailBytes = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.end = append(t.end, p...)
	t.end = t.end[max(len(t.end)-tailBytes, 0):]
	t.mu.Unlock()
	return t.to.Write(p)
}

// last returns the last line as the end of a message; "" if there is none.
func (t *tail) last() string {
	if line := t.lines(1); line != "" {
		return ": " + line
	}
	return ""
}

// lines returns the last n lines.
func (t *tail) lines(n int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.end)), "\n")
	return strings.Join(lines[max(len(lines)-n, 0):], "\n")
}
