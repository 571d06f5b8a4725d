package cli

import (
	"errors"
	"io/fs"
	"os"
	"sync"

	"github.com/millrace-data/millrace/internal/fault"
)

// stdout is where verbs print what they have to give. They need not look at its errors: the first
// one ends the verb, and run reports it.
var stdout = new(printer)

// printer writes to standard output until an error, and nothing after it. To a pipe that nobody reads any
// more the program ends of SIGPIPE, without a word, as programs do. It is safe for concurrent use.
type printer struct {
	mu  sync.Mutex
	err error
	end func() // ends the verb
}

// ends sets what ends the verb.
func (p *printer) ends(end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end = end
}

// Write implements io.Writer.
func (p *printer) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	n, err := os.Stdout.Write(text)
	if err == nil {
		return n, nil
	}
	if at, ok := errors.AsType[*fs.PathError](err); ok { // the name of standard output says nothing
		err = at.Err
	}
	p.err = fault.Lostf("writing to standard output: %w; what was printed is not complete: make room there, or send the output elsewhere", err)
	if p.end != nil {
		p.end()
	}
	return n, p.err
}

// failed is the error that standard output had.
func (p *printer) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}
