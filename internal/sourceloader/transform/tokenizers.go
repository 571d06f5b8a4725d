package transform

import (
	"cmp"
	"path/filepath"
	"sync"

	"github.com/millrace-data/millrace/internal/sourceloader/tokenize"
	"github.com/millrace-data/millrace/jobspec"
)

// Tokenizers holds the encodings that the sources of a job use, so that sources
// with the same rank file share one in memory. It is safe for concurrent use.
type Tokenizers struct {
	mu     sync.Mutex
	loaded map[encodingKey]*loading
}

// encodingKey is what decides an encoding: a name and its rank file, or a tokenizer.json.
type encodingKey struct {
	name, rankFile, file, sha256 string
	post                         bool
}

// loading is one encoding, read by the first caller while others wait for it.
type loading struct {
	once sync.Once
	enc  *tokenize.Encoding
	err  error
}

// NewTokenizers returns an empty registry.
func NewTokenizers() *Tokenizers {
	return &Tokenizers{loaded: make(map[encodingKey]*loading)}
}

// Load returns the encoding of a tokenize step, whose file is read the first
// time; an empty name means bytes. Errors are not cached: the next Load
// reads again.
func (t *Tokenizers) Load(step jobspec.Tokenize) (*tokenize.Encoding, error) {
	key := encodingKey{name: cmp.Or(step.Encoding, tokenize.Bytes().Name()), sha256: step.SHA256, post: step.PostProcessor != "skip"}
	switch {
	case step.File != "":
		key.name, key.file = "", filepath.Clean(step.File)
	case step.Ranks != "":
		key.rankFile = filepath.Clean(step.Ranks)
	}
	l := t.entry(key)
	l.once.Do(func() {
		if step.File != "" {
			l.enc, l.err = tokenize.LoadFile(step.File, step.SHA256, key.post)
		} else {
			l.enc, l.err = tokenize.Load(key.name, step.Ranks, step.SHA256)
		}
	})
	if l.err != nil {
		t.forget(key, l)
	}
	return l.enc, l.err
}

func (t *Tokenizers) entry(key encodingKey) *loading {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.loaded[key]
	if l == nil {
		l = new(loading)
		t.loaded[key] = l
	}
	return l
}

// forget drops l unless a newer attempt has taken its place.
func (t *Tokenizers) forget(key encodingKey, l *loading) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.loaded[key] == l {
		delete(t.loaded, key)
	}
}
