package worker

import (
	"bufio"
	"bytes"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// output is what a process prints, which goes to the log line by line. Every process has
// a pipe of its own.
type output struct {
	writer *os.File // the process's
	reader *os.File
	log    *slog.Logger
	done   chan struct{}

	mu   sync.Mutex
	tail string // the last line that was not empty
	use  []any  // whose output it is now: source and step
}

const (
	maxLine    = 4 << 10 // bytes of a line in the log; the rest is dropped
	maxLines   = 50      // in a second of one process, as someone reads them
	outputTime = time.Second
)

func newOutput(log *slog.Logger) (*output, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	o := &output{writer: writer, reader: reader, log: log, done: make(chan struct{})}
	go o.read()
	return o, nil
}

// read logs lines until all writers are gone, or end's time is up.
func (o *output) read() {
	defer close(o.done)
	defer o.reader.Close()
	lines := bufio.NewReaderSize(o.reader, maxLine)
	second, count, dropped := time.Now(), 0, 0
	for {
		line, more, err := lines.ReadLine()
		if len(bytes.TrimSpace(line)) > 0 {
			if time.Since(second) > time.Second {
				o.drops(dropped)
				second, count, dropped = time.Now(), 0, 0
			}
			if count++; count > maxLines {
				dropped++
			} else {
				o.line(string(line))
			}
		}
		for more && err == nil {
			_, more, err = lines.ReadLine()
		}
		if err != nil {
			o.drops(dropped)
			return
		}
	}
}

func (o *output) line(line string) {
	line = strings.ToValidUTF8(line, "\uFFFD")
	o.mu.Lock()
	o.tail = line
	use := o.use
	o.mu.Unlock()
	o.log.With(use...).Info("python prints", "line", line)
}

func (o *output) drops(n int) {
	if n > 0 {
		o.log.Warn("python prints too much", "lines_left_out", n)
	}
}

// uses says whose output it is from now on.
func (o *output) uses(attributes []any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.use = attributes
}

// last is the last line as the end of a message; "" if there is none.
func (o *output) last() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tail == "" {
		return ""
	}
	return "; it last printed: " + o.tail
}

// end closes our copy of the process's end, and has the reader end too, soon if
// something that the process left behind still has it.
func (o *output) end() {
	_ = o.writer.Close()
	_ = o.reader.SetReadDeadline(time.Now().Add(outputTime))
}

// wait waits for the last line.
func (o *output) wait() { <-o.done }
