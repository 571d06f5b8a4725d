package format

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// Megatron reads the .bin/.idx pairs of Megatron-LM's indexed datasets, version
// 1. The object may be the .idx, the .bin, or the prefix of both. A record is
// one document, its sequences on end; Row is its number; the one column is
// "tokens".
//
// A chunk has the documents that begin in its ChunkBytes of the .bin, so that
// long documents leave some chunks empty. The index is read by parts: a chunk
// needs the entries of its documents and those of a binary search.
//
// Only the object itself is held to the version it was listed with; its partner
// is a Companion, which the manifest holds to its own.
type Megatron struct{}

var (
	_ Format    = Megatron{}
	_ Filter    = Megatron{}
	_ Companion = Megatron{}
)

// Name implements Format.
func (Megatron) Name() string { return "megatron" }

// Accepts implements Filter: either file names the pair.
func (Megatron) Accepts(uri string) bool {
	return strings.HasSuffix(uri, ".idx") || strings.HasSuffix(uri, ".bin")
}

// Companions implements Companion: the other file of the pair.
func (Megatron) Companions(uri string) []string {
	prefix := strings.TrimSuffix(strings.TrimSuffix(uri, ".bin"), ".idx")
	return slices.DeleteFunc([]string{prefix + ".bin", prefix + ".idx"}, func(u string) bool { return u == uri })
}

// Chunks implements Format.
func (Megatron) Chunks(ctx context.Context, st store.Store, obj store.Object, opt Options) (int, error) {
	m, err := openMegatron(ctx, st, obj)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	if m.documents == 0 {
		return 0, nil
	}
	return max(1, rangeChunks(m.bin.obj.Size, opt)), nil
}

// Read implements Format.
func (Megatron) Read(ctx context.Context, st store.Store, obj store.Object, chunk int, opt Options, fn func(*Record) error) error {
	if err := onlyColumns(obj, opt.Columns, "tokens"); err != nil {
		return err
	}
	m, err := openMegatron(ctx, st, obj)
	if err != nil {
		return err
	}
	defer m.Close()
	m.limit = opt.maxRecord()
	from, to, err := m.documentsOf(chunk, opt)
	if err != nil {
		return err
	}
	docs, err := m.documentsFrom(from, to)
	if err != nil {
		return err
	}
	var rec Record
	for doc := from; doc < to; doc++ {
		rec = Record{Row: doc, Values: rec.Values[:0]}
		tokens, err := docs.next(len(opt.Columns) > 0)
		switch {
		case fault.ClassOf(err) == fault.User && docs.bad:
			rec.Values, rec.Err = nil, err
		case err != nil:
			return err
		}
		for range opt.Columns {
			if rec.Err == nil {
				rec.Values = append(rec.Values, Value{Kind: Tokens, Tokens: tokens})
			}
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("reading %s: %w", m.uri, err)
		}
		if err := fn(&rec); err != nil {
			return err
		}
	}
	return nil
}

// documentsOf returns the range of documents that begin in the chunk's bytes.
// Neighbouring chunks search for the same border, so that no document is lost
// or doubled, whatever the index holds.
func (m *megatron) documentsOf(chunk int, opt Options) (from, to int64, err error) {
	size := opt.chunkBytes()
	if chunk > 0 {
		if from, err = m.firstDocument(int64(chunk) * size); err != nil {
			return 0, 0, err
		}
	}
	if int64(chunk+1)*size >= m.bin.obj.Size {
		// The last chunk takes the empty documents at the very end as well.
		return from, m.documents, nil
	}
	to, err = m.firstDocument(int64(chunk+1) * size)
	return from, max(from, to), err
}

// firstDocument returns the first document that begins at byte at of the .bin
// or after it.
func (m *megatron) firstDocument(at int64) (int64, error) {
	lo, hi := int64(0), m.documents
	for lo < hi {
		mid := lo + (hi-lo)/2
		begin, err := m.begin(mid)
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
func (m *megatron) begin(doc int64) (int64, error) {
	sequence, err := m.index(doc)
	if err != nil || sequence == m.sequences {
		return m.bin.obj.Size, err
	}
	var entry [8]byte
	if err := m.readIndex(entry[:], m.pointersAt+8*sequence); err != nil {
		return 0, err
	}
	return int64(little.Uint64(entry[:])), nil
}

// index returns the first sequence of a document.
func (m *megatron) index(doc int64) (int64, error) {
	var entry [8]byte
	if err := m.readIndex(entry[:], m.documentsAt+8*doc); err != nil {
		return 0, err
	}
	return m.checkSequence(doc, int64(little.Uint64(entry[:])))
}

func (m *megatron) checkSequence(doc, sequence int64) (int64, error) {
	if sequence < 0 || sequence > m.sequences {
		return 0, m.damage("document_indices", m.documentsAt+8*doc, "document %d begins at sequence %d of %d", doc, sequence, m.sequences)
	}
	return sequence, nil
}
