// Package tokenize turns text into token ids and back: the byte-pair encodings
// r50k_base, p50k_base, cl100k_base and o200k_base, token for token as
// published, "bytes", which needs no file, those of Hugging Face tokenizer.json
// files, as the tokenizers library gives them, and those of SentencePiece models, as SentencePiece does.
//
// An [Encoding] is the read-only table, shared by all goroutines; an [Encoder]
// belongs to one of them, or is lent to one by [Encoding.Append]. The package owns the splitters, the Unicode classes
// they use (pinned to version 16.0) and the reading of rank files, tokenizer.json and models. It
// never ships or fetches rank files, never emits a special token that was not allowed
// (see [Encoding.Specials]) and keeps no global state.
//
// The ids of a text depend on the text and the rank file only: not on what was
// encoded before, on the Go version, or on the cache.
package tokenize

import (
	"crypto/sha256"
	"slices"
	"sync"

	"github.com/millrace-data/millrace/internal/fault"
)

const (
	bytesName  = "bytes"
	bytesEOT   = 256
	bytesVocab = 257
)

// Encoding is one encoding. It is read-only and safe for concurrent use.
type Encoding struct {
	name    string
	eot     int32
	size    int
	special map[int32]string // ids of special tokens, with their names
	digest  [sha256.Size]byte

	split splitter // nil for bytes and files
	vocab *vocab   // nil for bytes
	file  *fileModel
	idle  sync.Pool // of *Encoder
}

// Bytes returns the encoding whose token ids are the byte values 0..255, with
// 256 for end of text.
func Bytes() *Encoding {
	return &Encoding{name: bytesName, eot: bytesEOT, size: bytesVocab,
		special: map[int32]string{bytesEOT: endOfText}}
}

// Load returns an encoding by name (see [Names]) with the ranks of rankFile,
// which holds a line "base64-of-token rank" for each token. For bytes rankFile
// is empty. Every call reads the file again, about 0.1 s (o200k_base: 0.3 s);
// callers keep encodings that they share.
//
// The file must be the one published under the name, by its SHA-256. declared is
// the SHA-256, in lower-case hex, of another file with as many ranks to accept
// instead, or "".
//
// All errors are of class fault.User.
func Load(name, rankFile, declared string) (*Encoding, error) {
	if name == bytesName {
		if rankFile != "" {
			return nil, fault.Userf("encoding bytes takes no rank file, but %s is given; remove ranks", rankFile)
		}
		return Bytes(), nil
	}
	spec, err := specOf(name)
	if err != nil {
		return nil, err
	}
	data, err := readRankFile(spec, rankFile)
	if err != nil {
		return nil, err
	}
	e, err := newEncoding(spec, rankFile, data)
	if err != nil {
		return nil, err
	}
	if err := checkDigest(spec, rankFile, declared, e.digest); err != nil {
		return nil, err
	}
	return e, nil
}

// newEncoding builds an encoding from the content of its rank file.
func newEncoding(spec encodingSpec, path string, data []byte) (*Encoding, error) {
	tokens, err := parseRanks(spec, path, data)
	if err != nil {
		return nil, err
	}
	needClasses()
	e := &Encoding{
		name:    spec.name,
		eot:     spec.special[endOfText],
		size:    spec.vocab,
		special: make(map[int32]string, len(spec.special)),
		digest:  sha256.Sum256(data),
		split:   spec.split,
		vocab:   newVocab(tokens),
	}
	for name, id := range spec.special {
		e.special[id] = name
	}
	return e, nil
}

// Name returns the name the encoding was loaded by.
func (e *Encoding) Name() string { return e.name }

// EOT returns the id of the end-of-text token, -1 for a tokenizer.json or SentencePiece model, which do not say.
func (e *Encoding) EOT() int32 { return e.eot }

// VocabSize returns the size of an embedding for this encoding: all ids, those
// of special tokens included, are below it. Some below it may not be in use.
func (e *Encoding) VocabSize() int { return e.size }

// Digest returns the SHA-256 of the file, which together with the name decides
// every id; it is zero for bytes. Of a file of which earlier builds made other ids it is another one. A resumed job compares it.
func (e *Encoding) Digest() [sha256.Size]byte { return e.digest }

// Decode returns the bytes of ids, as a new slice. A special token
// gives its name, such as <|endoftext|>. Tokens may end inside a character, so
// that a part of a text need not be valid UTF-8. An id that is not in use is
// an error of class fault.User.
func (e *Encoding) Decode(ids []int32) ([]byte, error) {
	text := make([]byte, 0, 4*len(ids)) // about 4 bytes a token in English
	for i, id := range ids {
		token := e.bytesOf(id)
		if len(token) == 0 {
			return nil, fault.Userf("token %d of %d has id %d, which encoding %s does not use; its ids are 0..%d",
				i, len(ids), id, e.name, e.size-1)
		}
		text = append(text, token...)
	}
	return text, nil
}

// bytesOf returns the bytes of an id, nil if unused.
func (e *Encoding) bytesOf(id int32) []byte {
	switch {
	case id < 0 || int(id) >= e.size:
		return nil
	case e.special[id] != "":
		return []byte(e.special[id])
	case e.vocab == nil:
		return []byte{byte(id)}
	case int(id) >= len(e.vocab.offsets)-1:
		return nil
	case e.file != nil:
		return e.file.readable(e.vocab.token(id))
	default:
		return e.vocab.token(id)
	}
}

// NewEncoder returns an encoder for one goroutine. It takes 2 MiB for its
// cache and at most 2 MiB of scratch memory (4 MiB with a tokenizer.json), less for bytes.
func (e *Encoding) NewEncoder() *Encoder {
	if e.vocab == nil {
		return &Encoder{}
	}
	return e.newEncoder(cacheSlots)
}

func (e *Encoding) newEncoder(slots int) *Encoder {
	return &Encoder{
		split:  e.split,
		vocab:  e.vocab,
		file:   e.file,
		cache:  newCache(slots),
		merger: merger{v: e.vocab},
	}
}

// Encoder encodes texts, one at a time. It is not safe for concurrent use.
type Encoder struct {
	split   splitter // nil for bytes and files
	vocab   *vocab   // nil for bytes
	file    *fileModel
	cache   cache
	merger  merger
	divided divided
	scratch pieceScratch
	batch   [batchPieces]lookup
}

// batchPieces are looked up together: their cache misses overlap, because no
// branch depends on them. Values from 16 to 128 make no difference.
const batchPieces = 32

// lookup is a piece of a text during its look-up.
type lookup struct {
	n         int // bytes
	key, hash uint64
	slot      wordSlot // the first that may hold it
}

// bytesPerToken is above that of most texts.
const bytesPerToken = 5

// Append is Encoder.Append, with an idle encoder. It is safe for concurrent
// use: each concurrent call has its own encoder.
func (e *Encoding) Append(dst []int32, text []byte) []int32 {
	encoder := e.lend()
	defer e.idle.Put(encoder)
	return encoder.Append(dst, text)
}

// lend takes an idle encoder, or makes one.
func (e *Encoding) lend() *Encoder {
	if encoder, ok := e.idle.Get().(*Encoder); ok {
		return encoder
	}
	return e.NewEncoder()
}

// Append appends the tokens of text to dst and returns it. The text is shorter
// than 2 GiB and borrowed for the call. Nothing is added before or after,
// and names of special tokens in the text are ordinary text.
//
// Every text has an encoding and Decode restores it byte for byte, even if
// it is not valid UTF-8: a stray byte counts as a symbol when the text is split
// (so it never joins a word or a number), and keeps its value.
//
// It allocates only to grow dst, and for a piece without a split of more than
// 64 KiB. Time is O(n log n) in the longest such piece.
func (e *Encoder) Append(dst []int32, text []byte) []int32 {
	if e.file != nil {
		return e.appendFile(dst, text, func(*addedToken) bool { return false })
	}
	if e.split == nil {
		from := len(dst)
		dst = slices.Grow(dst, len(text))[:from+len(text)]
		for i, b := range text {
			dst[from+i] = int32(b)
		}
		return dst
	}
	dst = slices.Grow(dst, len(text)/bytesPerToken) // a book in one go
	for i := 0; i < len(text); {
		batch := e.lookUp(text, i)
		for k := range batch {
			dst = e.appendPiece(dst, text[i:], &batch[k])
			i += batch[k].n
		}
	}
	return dst
}

// lookUp splits the next pieces off text[i:] and fetches their slots.
func (e *Encoder) lookUp(text []byte, i int) []lookup {
	n := 0
	for ; n < batchPieces && i < len(text); n++ {
		j := e.split(text, i)
		e.batch[n].key = wordKey(text, i, j)
		e.batch[n].piece(j - i)
		i = j
	}
	batch := e.batch[:n]
	e.slots(batch)
	return batch
}

// piece sets the length of the piece that has the key.
func (l *lookup) piece(n int) {
	l.n = n
	l.hash = wordHash(l.key, n)
}

// slots fetches the slots of a batch, all before any is looked at.
func (e *Encoder) slots(batch []lookup) {
	for k := range batch {
		l := &batch[k]
		l.slot = e.vocab.words[l.hash>>e.vocab.wordShift]
	}
}

// appendPiece encodes the piece that t begins with.
func (e *Encoder) appendPiece(dst []int32, t []byte, l *lookup) []int32 {
	if l.slot.key == l.key && int(l.slot.n) == l.n && l.n <= 8 {
		return append(dst, l.slot.id)
	}
	piece := t[:l.n]
	if l.slot.n != 0 {
		if id := e.vocab.word(l.key, l.hash, piece); id != none {
			return append(dst, id)
		}
	}
	set := e.cache.set(l.hash, l.n)
	if set == nil {
		return e.appendUncached(dst, t, l.n)
	}
	last := uint64(0)
	if l.n > 8 {
		last = tail(piece)
	}
	if slot := set.find(l.key, last, l.n); slot != nil {
		return slot.append(dst)
	}
	before := len(dst)
	dst = e.appendUncached(dst, t, l.n)
	set.put(l.key, last, l.n, dst[before:])
	return dst
}

// appendUncached encodes the piece t[:n].
func (e *Encoder) appendUncached(dst []int32, t []byte, n int) []int32 {
	if e.file != nil && e.file.model != nil {
		return e.file.model.appendPiece(dst, t[:n], &e.scratch)
	}
	return e.merger.appendMerged(dst, t, n)
}
