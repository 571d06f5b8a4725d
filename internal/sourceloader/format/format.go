// Package format is what bytes mean: it reads the records of a file, chunk by
// chunk, in the file formats that training data comes in.
//
// A chunk is the unit of reading (a Parquet row group, a byte range of JSONL, a
// tar shard, a document range of Megatron's .bin/.idx). The package owns
// decoding and the naming of places inside a file; it never shuffles, filters
// or tokenizes, keeps no state between calls but Indexes, and reads no column that was not
// asked for. All formats pass the conformance suite in formattest.
package format

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// Kind is the type of a Value.
type Kind uint8

const (
	Null   Kind = iota // absent or null
	String             // UTF-8 text in Bytes
	Bytes              // raw bytes in Bytes
	Int                // Int
	Float              // Float
	Bool               // Int is 0 or 1
	Tokens             // token ids in Tokens
	List               // List of values: a path through a list, such as messages[].content
)

// Value is one field of one record. Bytes, Tokens and List are borrowed from
// the reader and valid only until the callback returns; copy what is kept.
type Value struct {
	Kind Kind
	// Absent says that the record does not have the field, which is then Null; or
	// that an element of a list on the path to it does not, which is Null in the List.
	// Columnar files have every field of their schema in every record.
	Absent bool
	Int    int64
	Float  float64
	Bytes  []byte
	Tokens []int32
	List   []Value
}

// ValueBytes is the memory of a Value without what it refers to.
const ValueBytes = 96

// Record is one record as read.
type Record struct {
	// Row places the record in its file: row number for Parquet and Arrow,
	// byte offset of the (uncompressed) line for JSONL, element number for a
	// JSON array, index of the sample for a tar, document number for Megatron,
	// 0 for a text file. Rows rise within a file and are unique in it.
	Row int64
	// Part is the number of the record among those that one record of the file became,
	// from 0, in order. Readers leave it at 0.
	Part int32
	// Values holds one value per requested column, in Options.Columns' order.
	Values []Value
	// Err is set instead of Values when this one record is bad (invalid JSON
	// line, invalid UTF-8, wrong type) and reading can go on after it. It is
	// of class fault.User, names file, place and what would be valid, and is
	// deterministic.
	Err error
	// Types are nil, or those of the columns as the file has them. They are read-only, and
	// outlive the record.
	Types []Type
	// Lacks is nil, or says more of a column whose value is Absent: which part of its
	// path is missing, and what the record has in that place. It may be called while
	// the record is valid.
	Lacks func(column int) (missing string, has []string)
}

// Type is what the schema of a file says of a column.
type Type struct {
	Name    string // as Arrow writes it: list<struct<role: string, content: string>>; a long one is cut
	Objects bool   // the values, or the elements of their lists, are groups of fields or maps: JSON text
}

// Options select what is read. The zero value reads no columns.
type Options struct {
	// Columns are the field paths wanted: dots for nesting, [] for lists
	// ("text", "meta.title", "messages[].content"). Megatron files have the
	// one column "tokens"; text files "text" (whole file) and "path";
	// WebDataset one per member extension ("txt", "json", "jpg",
	// "json.caption" reaches into a JSON member) and "__key__".
	Columns []string
	// ChunkBytes is the target size of a chunk in formats that have no units
	// of their own (JSONL ranges, Megatron document ranges). 0 means
	// DefaultChunkBytes.
	ChunkBytes int64
	// MaxRecord bounds one record in bytes: a JSON line or element with the white space
	// before it, a tar member, a text file, a Megatron document, the JSON text of the groups in
	// one column of a columnar file. A longer one is an
	// ErrTooLong, found before more than that is held: a bad record where the next one
	// can be found, else an error of the file. 0 means DefaultMaxRecord.
	MaxRecord int64
	// MaxElements bounds the elements of the lists in one column of a record, of lists in
	// lists as well, and in groups of a columnar file; token ids do not count. Each takes some 200 bytes of memory, however
	// few it has in the file. More of them are ErrTooMany, a bad record, found before
	// more than that is held. 0 means DefaultMaxElements.
	MaxElements int
	// Indexes keep where chunks are, for those that are opened next; nil keeps nothing. It is no part
	// of what is read.
	Indexes *Indexes
}

// DefaultChunkBytes is one ranged read: long enough that an object store's
// latency is small beside it, short enough that a block of four fits anywhere.
const DefaultChunkBytes = 1 << 20

// DefaultMaxRecord: the longest real document in the shared corpora is 3.3 MB, and what
// becomes of a record takes ten times its bytes.
const DefaultMaxRecord = 64 << 20

// MaxRecordBytes is the largest MaxRecord, and the most that is read over in search of the
// end of a record that is too long: 1 GiB is a broken file.
const MaxRecordBytes = 1 << 30

// ErrTooLong is what is wrong with a record that is longer than Options.MaxRecord.
var ErrTooLong = errors.New("longer than max_record")

// DefaultMaxElements: a record is a text, and few texts are lists of a million parts, which
// take a few hundred MiB.
const DefaultMaxElements = 1 << 20

// ErrTooMany is what is wrong with a record whose lists have more elements than
// Options.MaxElements.
var ErrTooMany = errors.New("more list elements than max_elements")

// TooMany is an error of class fault.User that is ErrTooMany.
func TooMany(limit int) error {
	return fault.Userf("it has %w allows (%d): split the record, or give the source a larger max_elements", ErrTooMany, limit)
}

// TooLong is an error of class fault.User that is ErrTooLong: what is so long, in words
// that go before "longer than", beside the limit in bytes.
func TooLong(limit int64, what string, args ...any) error {
	return fault.Userf("%s %w allows (%d bytes): split it, or give the source a larger max_record", fmt.Sprintf(what, args...), ErrTooLong, limit)
}

// RecordLimit is the effective MaxRecord, in bytes.
func (o Options) RecordLimit() int64 {
	if o.MaxRecord <= 0 {
		return DefaultMaxRecord
	}
	return min(o.MaxRecord, MaxRecordBytes)
}

// ElementLimit is the effective MaxElements.
func (o Options) ElementLimit() int {
	if o.MaxElements <= 0 {
		return DefaultMaxElements
	}
	return o.MaxElements
}

// ChunkSize is the effective ChunkBytes.
func (o Options) ChunkSize() int64 {
	if o.ChunkBytes <= 0 {
		return DefaultChunkBytes
	}
	return o.ChunkBytes
}

// Ranges returns the number of ranges of ChunkSize that size bytes have.
func (o Options) Ranges(size int64) int {
	return int((size + o.ChunkSize() - 1) / o.ChunkSize())
}

// Position is a place between two records of a file: the smallest Row that is
// still to be read. 0 is the start of every chunk. It is all the state that a
// reader has: one that is opened at a position gives the records of its chunk
// from there on, whoever read those before.
type Position int64

// After is the position behind the record.
func (r *Record) After() Position { return Position(r.Row) + 1 }

// Format decodes one file format. Implementations have no state, are safe for
// concurrent use, and never panic on bad input: file-level damage (truncated,
// wrong magic, bad checksum) is an error of class fault.User that names the
// file, the place, and what would be valid.
type Format interface {
	// Name is the word used in job specs: "parquet", "jsonl", ...
	Name() string
	// Chunks counts the chunks of obj, by reading as little as possible
	// (footers, indexes). It depends on obj's bytes and opt.ChunkBytes only.
	// An empty but valid file has 0 chunks.
	Chunks(ctx context.Context, st store.Store, obj store.Object, opt Options) (int, error)
	// Open opens chunk number chunk at a position. The context is that of all
	// reads. What comes before the position is passed over as cheaply as the
	// format allows: not at all in JSON Lines and Arrow, by decoding it in a
	// Parquet row group, by decompressing it in a compressed file.
	//
	// A requested column that the file's schema rules out is a fault.User error
	// that lists the columns there are, here or at the first Next; one that is
	// merely missing in a record is Null and Absent.
	Open(ctx context.Context, st store.Store, obj store.Object, chunk int, from Position, opt Options) (Reader, error)
}

// Reader reads the records of one chunk, in file order. It is not safe for
// concurrent use.
type Reader interface {
	// Next returns the next record, which is valid until the following call of
	// Next or Close; io.EOF after the last one. After any other error the
	// reader can only be closed.
	Next() (*Record, error)
	// Held is the memory in bytes that the reader holds now: buffers, decoded
	// pages, decompressors, and the record that was read last.
	Held() int64
	// Close gives up the files and the memory, whatever has been read.
	Close() error
}

// Read calls fn for each record of a chunk, as Each does.
func Read(ctx context.Context, f Format, st store.Store, obj store.Object, chunk int, opt Options, fn func(*Record) error) error {
	r, err := f.Open(ctx, st, obj, chunk, 0, opt)
	if err != nil {
		return err
	}
	return Each(r, fn)
}

// Each calls fn for each record that r still has, and closes r. The record is valid
// during the call only. An error of fn stops the read and is returned as it is.
func Each(r Reader, fn func(*Record) error) error {
	defer r.Close()
	for {
		rec, err := r.Next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if err := fn(rec); err != nil {
			return err
		}
	}
}

// Companion is implemented by formats that keep the data of one listed file in
// other files as well.
type Companion interface {
	// Companions returns the URIs of those files that have data of these columns, sorted.
	Companions(uri string, columns []string) []string
}

// Optional is a Companion whose companions need not be there: the columns of one that is not are Absent.
type Optional interface {
	Companion
	MayLack()
}

// Rows is implemented by formats that can say something of the rows of a file
// without reading it.
type Rows interface {
	// RowsBelow returns a number that the rows of all records of a file are
	// below; 0 if only reading the file could tell one.
	RowsBelow(obj store.Object) int64
	// InBytes reports whether a record's Row is the byte at which it begins.
	InBytes() bool
}

// InBytes reports whether a record's Row is the byte at which the record begins.
func InBytes(f Format) bool {
	rows, ok := f.(Rows)
	return ok && rows.InBytes()
}

// Placed is an error of a record, which begins with its row, as it reads where that is the byte at which the record begins.
func Placed(f Format, err error) error {
	if !InBytes(f) {
		return err
	}
	return atByte{err}
}

type atByte struct{ error }

// Error says where.
func (e atByte) Error() string {
	text := e.error.Error()
	if place, ok := strings.CutPrefix(text, "row "); ok {
		return "byte " + place
	}
	return text
}

// Unwrap returns the error itself.
func (e atByte) Unwrap() error { return e.error }

// RowsBelow returns a number that the rows of all records of a file are below; 0 if only
// reading the file could tell one.
func RowsBelow(f Format, obj store.Object) int64 {
	if rows, ok := f.(Rows); ok {
		return rows.RowsBelow(obj)
	}
	return 0
}
