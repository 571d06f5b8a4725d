// Package megatron is the decoder of Megatron-LM's indexed datasets, pairs of .bin
// and .idx.
//
// It owns the layout of the index and its checks. It never gives text: such a
// dataset holds token ids only.
package megatron

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/formats"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// Format reads the .bin/.idx pairs of Megatron-LM's indexed datasets, version
// 1. The object may be the .idx, the .bin, or the prefix of both. A record is
// one document, its sequences one after the other; Row is its number; the one column is
// "tokens".
//
// A chunk has the documents that begin in its ChunkBytes of the .bin, so that
// long documents leave some chunks empty. The index is read by parts: a chunk
// needs the entries of its documents and those of a binary search.
//
// Only the object itself is held to the version it was listed with; its partner
// is a Companion, which the manifest holds to its own.
type Format struct{}

var _ format.Companion = Format{}

// Name implements format.Format.
func (Format) Name() string { return formats.Megatron }

// Companions implements format.Companion: the other file of the pair.
func (Format) Companions(uri string) []string {
	prefix := strings.TrimSuffix(strings.TrimSuffix(uri, ".bin"), ".idx")
	return slices.DeleteFunc([]string{prefix + ".bin", prefix + ".idx"}, func(u string) bool { return u == uri })
}

// Chunks implements format.Format.
func (Format) Chunks(ctx context.Context, st store.Store, obj store.Object, opt format.Options) (int, error) {
	p, err := openPair(ctx, st, obj)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	if p.documents == 0 {
		return 0, nil
	}
	return max(1, opt.Ranges(p.bin.Object.Size)), nil
}

// Open implements format.Format.
func (Format) Open(ctx context.Context, st store.Store, obj store.Object, chunk int, from format.Position, opt format.Options) (_ format.Reader, err error) {
	if err := format.OnlyColumns(obj, opt.Columns, "tokens"); err != nil {
		return nil, err
	}
	p, err := openPair(ctx, st, obj)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	p.limit = opt.RecordLimit()
	begin, end, err := p.documentsOf(chunk, opt)
	if err != nil {
		return nil, err
	}
	begin = max(begin, int64(from))
	r := &reader{ctx: ctx, pair: p, end: max(begin, end), values: make([]format.Value, len(opt.Columns))}
	if begin < end {
		r.documents, err = p.documentsFrom(begin, end)
	}
	return r, err
}

// reader reads the documents of a chunk.
type reader struct {
	ctx       context.Context
	pair      *pair
	documents *documentReader // nil if there are none
	end       int64
	values    []format.Value
	rec       format.Record
}

// Next implements format.Reader.
func (r *reader) Next() (*format.Record, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", r.pair.uri, err)
	}
	if r.documents == nil || r.documents.doc == r.end {
		return nil, io.EOF
	}
	r.rec = format.Record{Row: r.documents.doc}
	tokens, err := r.documents.next(len(r.values) > 0)
	switch {
	case fault.ClassOf(err) == fault.User && r.documents.bad:
		r.rec.Err = err
		return &r.rec, nil
	case err != nil:
		return nil, err
	}
	for i := range r.values {
		r.values[i] = format.Value{Kind: format.Tokens, Tokens: tokens}
	}
	r.rec.Values = r.values
	return &r.rec, nil
}

// Held implements format.Reader.
func (r *reader) Held() int64 {
	if r.documents == nil {
		return 0
	}
	return r.documents.held()
}

// Close implements format.Reader.
func (r *reader) Close() error { return r.pair.Close() }

// documentsOf returns the range of documents that begin in the chunk's bytes.
// Neighbouring chunks search for the same border, so that no document is lost
// or doubled, whatever the index holds.
func (p *pair) documentsOf(chunk int, opt format.Options) (from, to int64, err error) {
	size := opt.ChunkSize()
	if chunk > 0 {
		if from, err = p.firstDocument(int64(chunk) * size); err != nil {
			return 0, 0, err
		}
	}
	if int64(chunk+1)*size >= p.bin.Object.Size {
		// The last chunk takes the empty documents at the very end as well.
		return from, p.documents, nil
	}
	to, err = p.firstDocument(int64(chunk+1) * size)
	return from, max(from, to), err
}

// firstDocument returns the first document that begins at byte at of the .bin
// or after it.
func (p *pair) firstDocument(at int64) (int64, error) {
	lo, hi := int64(0), p.documents
	for lo < hi {
		mid := lo + (hi-lo)/2
		begin, err := p.begin(mid)
		if err != nil {
			return 0, err
		}
		if begin < at {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, nil
}

// begin returns where a document begins in the .bin.
func (p *pair) begin(doc int64) (int64, error) {
	sequence, err := p.index(doc)
	if err != nil || sequence == p.sequences {
		return p.bin.Object.Size, err
	}
	var entry [8]byte
	if err := p.readIndex(entry[:], p.pointersAt+8*sequence); err != nil {
		return 0, err
	}
	return int64(little.Uint64(entry[:])), nil
}

// index returns the first sequence of a document.
func (p *pair) index(doc int64) (int64, error) {
	var entry [8]byte
	if err := p.readIndex(entry[:], p.documentsAt+8*doc); err != nil {
		return 0, err
	}
	return p.checkSequence(doc, int64(little.Uint64(entry[:])))
}

func (p *pair) checkSequence(doc, sequence int64) (int64, error) {
	if sequence < 0 || sequence > p.sequences {
		return 0, p.damage("document_indices", p.documentsAt+8*doc, "document %d begins at sequence %d of %d", doc, sequence, p.sequences)
	}
	return sequence, nil
}
