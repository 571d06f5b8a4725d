package prepare

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
)

// The columns of a shard, beside those that the source keeps.
const (
	tokensColumn = "tokens"       // list of int32
	maskColumn   = "loss_mask"    // list of int32, 0 or 1 for each token; null: all carry loss
	fileColumn   = "source_file"  // name below the folder of the source's files
	rowColumn    = "source_row"   // place of the record in it, as explain and ban have it
	pieceColumn  = "source_piece" // number of the document among those of its record
)

const (
	// rowGroupBytes is the unit of reading of whoever reads a shard: 1 Mi tokens, as large as four chunks of text.
	rowGroupBytes = 4 << 20
	// valuesAtOnce is how many tokens are handed to the writer at a time: a value takes six times the
	// memory of a token, and a document may have millions.
	valuesAtOnce = 8 << 10
	// noPages has the writer not end pages by itself, which it would do inside a row that is handed
	// over in parts. A page is what a row group has of a column.
	noPages = math.MaxInt32
)

// codec compresses pages: the encoder's output is a function of its input.
var codec = &zstd.Codec{Level: zstd.SpeedFastest}

// Shard is a finished file.
type Shard struct {
	Name   string `json:"name"`
	Rows   int64  `json:"rows"`
	Tokens int64  `json:"tokens"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// layout is what all shards of a source have in common.
type layout struct {
	dir     string
	target  int64    // bytes of rows, before compression, from which a shard ends
	keep    []string // columns
	masks   bool
	whole   bool   // rows are written as documents
	origin  string // what the footer says of it
	digits  int    // of a group's number
	schema  *parquet.Schema
	columns map[string]int // place of each column in the schema
}

// document is a row of a shard without masks and kept columns, as most are: the writer takes its tokens as they lie, where
// one value after the other takes a third of all that prepare does. Fields are in the order of the schema; its encodings hold.
type document struct {
	File   *string `parquet:"source_file,optional"`
	Piece  *int32  `parquet:"source_piece,optional"`
	Row    *int64  `parquet:"source_row,optional"`
	Tokens []int32 `parquet:"tokens,list"`
}

// arrange makes the schema.
func (l *layout) arrange() error {
	node := func(leaf parquet.Node) parquet.Node { return parquet.Compressed(leaf, codec) }
	words := func(t parquet.Node) parquet.Node { return node(parquet.Encoded(t, &parquet.RLEDictionary)) }
	// Columns of one value are optional, since the writer would set aside a page for each of the others.
	group := parquet.Group{
		tokensColumn: parquet.List(node(parquet.Leaf(parquet.Int32Type))),
		fileColumn:   parquet.Optional(words(parquet.String())),
		rowColumn:    parquet.Optional(node(parquet.Encoded(parquet.Leaf(parquet.Int64Type), &parquet.DeltaBinaryPacked))),
		pieceColumn:  parquet.Optional(words(parquet.Leaf(parquet.Int32Type))),
	}
	if l.masks {
		group[maskColumn] = parquet.Optional(parquet.List(words(parquet.Leaf(parquet.Int32Type))))
	}
	for _, name := range l.keep {
		if _, taken := group[name]; taken || name == maskColumn {
			return fault.Userf("keep: column %q has the name of one that shards have themselves (%s, %s, %s, %s, %s); leave it out, or give it another name in the files",
				name, tokensColumn, maskColumn, fileColumn, rowColumn, pieceColumn)
		}
		group[name] = parquet.Optional(node(parquet.Leaf(parquet.ByteArrayType)))
	}
	l.schema, l.columns = parquet.NewSchema("documents", group), map[string]int{}
	l.whole = parquet.EqualNodes(l.schema, parquet.SchemaOf(document{}))
	for name := range group {
		path := []string{name}
		if name == tokensColumn || name == maskColumn {
			path = append(path, "list", "element")
		}
		leaf, ok := l.schema.Lookup(path...)
		if !ok {
			return fmt.Errorf("the schema of shards has no column %q", name)
		}
		l.columns[name] = leaf.ColumnIndex
	}
	return nil
}

// shards writes those of one group. It is for one goroutine.
type shards struct {
	*layout
	group  int
	name   func(file int32) string
	done   []Shard
	open   *shard // nil between two
	values []parquet.Value
}

// shard is one that is being written.
type shard struct {
	Shard
	path    string // until it has its name
	file    *os.File
	sum     hash.Hash
	writer  *parquet.GenericWriter[document]
	pending int64 // bytes of the row group
	total   int64 // bytes of all rows
}

// add writes a document.
func (s *shards) add(at order.Place, doc *transform.Sample) error {
	if s.open == nil {
		if err := s.begin(); err != nil {
			return err
		}
	}
	bytes, err := s.row(at, doc)
	if err != nil {
		return fmt.Errorf("writing %s: %w", s.open.Name, err)
	}
	o := s.open
	o.Rows++
	o.Tokens += int64(len(doc.Tokens))
	o.pending += bytes
	o.total += bytes
	if o.pending < rowGroupBytes && o.total < s.target {
		return nil
	}
	o.pending = 0
	if err := o.writer.Flush(); err != nil {
		return writing(o.path, err)
	}
	if o.total < s.target {
		return nil
	}
	return s.end()
}

// row hands a document to the writer, and says how many bytes it is.
func (s *shards) row(at order.Place, doc *transform.Sample) (bytes int64, err error) {
	if s.whole {
		name := s.name(at.File)
		_, err := s.open.writer.Write([]document{{&name, &at.Piece, &at.Row, doc.Tokens}})
		return 4 * int64(len(doc.Tokens)), err
	}
	if err = s.list(tokensColumn, 1, doc.Tokens); err == nil && s.masks {
		bytes = 4 * int64(len(doc.Tokens))
		err = s.mask(doc)
	}
	bytes += 4 * int64(len(doc.Tokens))
	for i, name := range s.keep {
		value := parquet.NullValue()
		if i < len(doc.Extras) && doc.Extras[i] != nil {
			value = parquet.ByteArrayValue(doc.Extras[i])
			bytes += int64(len(doc.Extras[i]))
		}
		err = errors.Join(err, s.one(name, value))
	}
	return bytes, errors.Join(err,
		s.one(fileColumn, parquet.ByteArrayValue([]byte(s.name(at.File)))),
		s.one(rowColumn, parquet.Int64Value(at.Row)),
		s.one(pieceColumn, parquet.Int32Value(at.Piece)))
}

// one writes a value, or null.
func (s *shards) one(column string, v parquet.Value) error {
	defined := 1
	if v.IsNull() {
		defined = 0
	}
	return s.write(column, append(s.values[:0], v.Level(0, defined, s.columns[column])))
}

// list writes a list, whose elements have this definition level.
func (s *shards) list(column string, defined int, elements []int32) error {
	index, first := s.columns[column], true
	for len(elements) > 0 {
		n := min(len(elements), valuesAtOnce)
		s.values = s.values[:0]
		for _, x := range elements[:n] {
			repeated := 1
			if first {
				repeated, first = 0, false
			}
			s.values = append(s.values, parquet.Int32Value(x).Level(repeated, defined, index))
		}
		if err := s.write(column, s.values); err != nil {
			return err
		}
		elements = elements[n:]
	}
	return nil
}

// mask writes which tokens carry loss.
func (s *shards) mask(doc *transform.Sample) error {
	if len(doc.Masked) == 0 {
		return s.one(maskColumn, parquet.NullValue())
	}
	carries := make([]int32, len(doc.Tokens))
	for i := range carries {
		carries[i] = 1
	}
	for k := 0; k+1 < len(doc.Masked); k += 2 {
		clear(carries[doc.Masked[k]:doc.Masked[k+1]])
	}
	return s.list(maskColumn, 2, carries)
}

func (s *shards) write(column string, values []parquet.Value) error {
	_, err := s.open.writer.ColumnWriters()[s.columns[column]].WriteRowValues(values)
	return err
}

// begin opens the next shard, under a name that readers of the folder do not see.
func (s *shards) begin() error {
	o := &shard{sum: sha256.New()}
	o.Name = fmt.Sprintf("shard-%0*d-%05d.parquet", s.digits, s.group, len(s.done))
	o.path = filepath.Join(s.dir, unfinished+o.Name)
	var err error
	if o.file, err = os.OpenFile(o.path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666); err != nil {
		return writing(o.path, err)
	}
	o.writer = parquet.NewGenericWriter[document](io.MultiWriter(o.file, o.sum), s.schema, parquet.PageBufferSize(noPages), parquet.DataPageStatistics(false),
		parquet.CreatedBy("millrace", "1", "prepare"), parquet.KeyValueMetadata("millrace", s.origin))
	s.open = o
	return nil
}

// end finishes the shard: from now on it has its name.
func (s *shards) end() error {
	o := s.open
	s.open = nil
	err := o.writer.Close()
	if err == nil {
		o.Bytes, err = o.file.Seek(0, io.SeekCurrent)
	}
	if err = errors.Join(err, o.file.Sync(), o.file.Close()); err == nil {
		err = os.Rename(o.path, filepath.Join(s.dir, o.Name))
	}
	if err != nil {
		return errors.Join(writing(o.path, err), os.Remove(o.path))
	}
	o.SHA256 = hex.EncodeToString(o.sum.Sum(nil))
	s.done = append(s.done, o.Shard)
	return nil
}

// finish ends the last shard of the group.
func (s *shards) finish() error {
	if s.open == nil {
		return nil
	}
	return s.end()
}

// discard lets go of a shard that was not finished.
func (s *shards) discard() {
	if s.open != nil {
		_ = s.open.file.Close()
		_ = os.Remove(s.open.path)
		s.open = nil
	}
}

// writing is the error of a disk.
func writing(path string, err error) error {
	return fault.Lostf("writing %s: %w; make room, or see that the folder can be written to, and run the same command again: finished shards stay", path, err)
}
