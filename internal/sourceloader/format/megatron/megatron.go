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

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/formats"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// Format reads the .bin/.idx pairs of Megatron-LM's indexed datasets, version
// 1. The object may be the .idx, the .bin, or the prefix of both. A record is
// one document, its sequences one after the other; Row is its number. Its column is
// "tokens". Any other column, such as a loss mask, is a dataset beside it with as many
// documents and a value for each token: STEM_COLUMN_document beside STEM_text_document, as
// Megatron-LM writes it, else PREFIX_COLUMN.
//
// A chunk has the documents that begin in its ChunkBytes of the .bin, so that
// long documents leave some chunks empty. The index is read by parts: a chunk
// needs the entries of its documents and those of a binary search.
//
// Only the object itself is held to the version it was listed with; its partner and the
// datasets of other columns are Companions, which the manifest holds to their own.
type Format struct{}

var _ format.Companion = Format{}

// Name implements format.Format.
func (Format) Name() string { return formats.Megatron }

// Companions implements format.Companion: the other file of the pair, and the pairs of
// other columns.
func (Format) Companions(uri string, columns []string) (files []string) {
	for _, prefix := range datasets(uri, columns) {
		files = append(files, prefix+".bin", prefix+".idx")
	}
	slices.Sort(files)
	return slices.DeleteFunc(files, func(u string) bool { return u == uri })
}

// Chunks implements format.Format.
func (Format) Chunks(ctx context.Context, st store.Store, obj store.Object, opt format.Options) (int, error) {
	pairs, err := openAll(ctx, st, obj, opt.Columns)
	if err != nil {
		return 0, err
	}
	defer closeAll(pairs)
	p := pairs[0]
	if p.documents == 0 {
		return 0, nil
	}
	return max(1, opt.Ranges(p.bin.Object.Size)), nil
}

// Open implements format.Format.
func (Format) Open(ctx context.Context, st store.Store, obj store.Object, chunk int, from format.Position, opt format.Options) (_ format.Reader, err error) {
	pairs, err := openAll(ctx, st, obj, opt.Columns)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll(pairs))
		}
	}()
	begin, end, err := pairs[0].documentsOf(chunk, opt)
	if err != nil {
		return nil, err
	}
	begin = max(begin, int64(from))
	r := &reader{ctx: ctx, pairs: pairs, end: max(begin, end), values: make([]format.Value, len(opt.Columns))}
	prefixes := datasets(obj.URI, opt.Columns)
	for _, column := range opt.Columns {
		r.of = append(r.of, slices.Index(prefixes, datasetOf(obj.URI, column)))
	}
	for _, p := range pairs {
		p.limit = opt.RecordLimit()
		if begin < end {
			d, err := p.documentsFrom(begin, end)
			if err != nil {
				return nil, err
			}
			r.documents = append(r.documents, d)
		}
	}
	return r, nil
}

// reader reads the documents of a chunk.
type reader struct {
	ctx       context.Context
	pairs     []*pair           // that of the tokens first
	documents []*documentReader // of each; none if there are no documents
	end       int64
	of        []int // the pair of each value
	values    []format.Value
	rec       format.Record
}

// Next implements format.Reader.
func (r *reader) Next() (*format.Record, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", r.pairs[0].uri, err)
	}
	if len(r.documents) == 0 || r.documents[0].doc == r.end {
		return nil, io.EOF
	}
	r.rec = format.Record{Row: r.documents[0].doc}
	for _, d := range r.documents {
		bad, err := r.advance(d)
		if err != nil {
			return nil, err
		}
		if r.rec.Err == nil {
			r.rec.Err = bad
		}
	}
	if r.rec.Err != nil {
		return &r.rec, nil
	}
	for i := range r.values {
		r.values[i] = format.Value{Kind: format.Tokens, Tokens: r.documents[r.of[i]].tokens}
	}
	r.rec.Values = r.values
	return &r.rec, nil
}

// advance reads the next document of a dataset. bad is what is wrong with the record, err
// with the file.
func (r *reader) advance(d *documentReader) (bad, err error) {
	values, err := d.next(len(r.values) > 0)
	main := r.documents[0]
	switch {
	case err != nil && !d.bad:
		return nil, err
	case d == main:
		return err, nil
	case err != nil:
		return fmt.Errorf("%s: document %d: %w", main.pair.uri, r.rec.Row, err), nil
	case len(values) != len(main.tokens):
		return fault.Userf("%s: document %d has %d tokens, and %s %d values: it has one for each token",
			main.pair.uri, r.rec.Row, len(main.tokens), d.pair.uri, len(values)), nil
	}
	return nil, nil
}

// Held implements format.Reader.
func (r *reader) Held() (bytes int64) {
	for _, d := range r.documents {
		bytes += d.held()
	}
	return bytes
}

// Close implements format.Reader.
func (r *reader) Close() error { return closeAll(r.pairs) }

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
