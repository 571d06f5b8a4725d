package format

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// WebDataset reads tar shards in the layout of the webdataset library:
// consecutive members of one key are a sample, and the rest of the member's
// name is its extension. The key is the path up to the first dot of the base
// name, so that a/b/0001.seg.png has the key a/b/0001 and the extension
// seg.png. Extensions are compared in lower case. A key that comes back after
// another one begins a new sample. A shard, also .tar.gz, .tgz or .tar.zst, is
// one chunk; Row counts samples.
//
// Columns are extensions, "__key__", and paths into a JSON member
// ("json.caption"). Members that end in .txt, .text, .cls or .json are String
// and checked to be UTF-8, compressed ones (txt.gz) after decompression; all
// others are Bytes. An extension that a sample does not have is Null.
//
// Directories, devices, and files whose base name has no dot or begins with one
// belong to no sample. Links and sparse members are not followed or expanded:
// a sample that is asked for one is a bad record. So is one with a member over
// Options.MaxRecord or with two members of one extension. Only members that were
// asked for are held in memory. A shard without an end-of-archive mark, or with
// data after it, is damaged.
type WebDataset struct{}

var (
	_ Format = WebDataset{}
	_ Filter = WebDataset{}
)

// Name implements Format.
func (WebDataset) Name() string { return "webdataset" }

// Accepts implements Filter.
func (WebDataset) Accepts(uri string) bool { return hasExtension(uri, ".tar", ".tgz") }

// Chunks implements Format. It reads nothing.
func (WebDataset) Chunks(context.Context, store.Store, store.Object, Options) (int, error) {
	return 1, nil
}

// Read implements Format.
func (WebDataset) Read(ctx context.Context, st store.Store, obj store.Object, _ int, opt Options, fn func(*Record) error) error {
	columns, err := tarColumns(opt.Columns, opt.maxElements())
	if err != nil {
		return err
	}
	s, err := openStream(ctx, st, obj)
	if err != nil {
		return err
	}
	defer s.Close()
	in := newTarInput(s)
	shard := &tarShard{
		ctx: ctx, uri: obj.URI, in: in, tar: tar.NewReader(in), fn: fn,
		sample: sample{limit: opt.maxRecord(), columns: columns, values: make([]Value, len(columns)), wanted: map[string]*member{}},
	}
	for i := range columns {
		if ext := columns[i].ext; ext != "" && shard.sample.wanted[ext] == nil {
			shard.sample.wanted[ext] = &member{ext: ext}
		}
	}
	return shard.read()
}

// tarShard reads the samples of one shard.
type tarShard struct {
	ctx    context.Context
	uri    string
	in     *tarInput
	tar    *tar.Reader
	fn     func(*Record) error
	sample sample
	last   string // name of the last member, for messages
	files  int    // regular files seen
	rows   int64
}

func (t *tarShard) read() error {
	for {
		t.in.zeros = false
		header, err := t.tar.Next()
		if err == io.EOF {
			return t.finish()
		}
		if err != nil {
			return t.damage(err)
		}
		t.last = header.Name
		if err := t.member(header); err != nil {
			return err
		}
	}
}

// member puts one member where it belongs.
func (t *tarShard) member(header *tar.Header) error {
	switch header.Typeflag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse, tar.TypeLink, tar.TypeSymlink:
		t.files++
	default:
		return nil
	}
	key, ext, ok := splitMember(header.Name)
	if !ok {
		return nil
	}
	if !t.sample.begun || key != t.sample.key {
		if err := t.emit(); err != nil {
			return err
		}
		t.sample.begin(key)
	}
	return t.sample.add(t, header, ext)
}

func (t *tarShard) emit() error {
	if !t.sample.begun {
		return nil
	}
	if err := t.ctx.Err(); err != nil {
		return fmt.Errorf("reading %s: %w", t.uri, err)
	}
	rec := Record{Row: t.rows, Lacks: t.sample.lacks}
	t.rows++
	values, problem := t.sample.read()
	switch {
	case problem == "":
		rec.Values = values
	case t.sample.long != "":
		rec.Err = TooLong(t.sample.limit, "%s: sample %d (%s): the member %s is", t.uri, rec.Row, t.sample.key, t.sample.long)
	case t.sample.tooMany != nil:
		rec.Err = fault.Userf("%s: sample %d (%s): %w", t.uri, rec.Row, t.sample.key, t.sample.tooMany)
	default:
		rec.Err = fault.Userf("%s: sample %d (%s): %s", t.uri, rec.Row, t.sample.key, problem)
	}
	return t.fn(&rec)
}

// finish checks the end of the archive, then hands out the last sample.
func (t *tarShard) finish() error {
	if !t.in.zeros {
		return t.damage(io.ErrUnexpectedEOF)
	}
	buf := make([]byte, 32<<10)
	for {
		at := t.in.off
		n, err := t.in.Read(buf)
		if !allZero(buf[:n]) {
			return fault.Userf("%s: there is data after the end-of-archive mark, from byte %d on (after member %s): split concatenated tars, or write them as one",
				t.uri, at, t.last)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return t.damage(err)
		}
	}
	if t.files > 0 && !t.sample.begun {
		return fault.Userf("%s: none of its %d files is named like a sample: key.extension (such as 000017.txt)", t.uri, t.files)
	}
	return t.emit()
}

// damage describes an error of the tar reader, and passes the others on.
func (t *tarShard) damage(err error) error {
	after := "at its start"
	if t.last != "" {
		after = fmt.Sprintf("in or after member %s", t.last)
	}
	switch {
	case fault.ClassOf(err) != fault.Bug:
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fault.Userf("%s: the tar is cut off at byte %d, %s: copy the file again", t.uri, t.in.off, after)
	}
	return fault.Userf("%s: the tar is damaged before byte %d, %s: %w: check that the file is a tar and copy it again", t.uri, t.in.off, after, err)
}

// splitMember splits a member's name into key and extension. ok is false if
// the base name has no dot or begins with one.
func splitMember(name string) (key, ext string, ok bool) {
	dir, base := path.Split(name)
	stem, ext, found := strings.Cut(base, ".")
	return dir + stem, strings.ToLower(ext), found && stem != ""
}

// tarColumn says how a column comes out of a sample.
type tarColumn struct {
	ext  string        // of the member; "" for the key
	json *objectReader // reads the field that the column names in a JSON member
}

func tarColumns(names []string, limit int) ([]tarColumn, error) {
	columns := make([]tarColumn, len(names))
	for i, name := range names {
		if name == "__key__" {
			continue
		}
		if name == "" {
			return nil, fault.Userf("a webdataset column is empty (valid: a member's extension such as txt or jpg, json.caption, __key__)")
		}
		ext, field := splitColumn(name)
		columns[i].ext = strings.ToLower(ext)
		if field == "" {
			continue
		}
		reader, err := newObjectReader([]string{field}, limit)
		if err != nil {
			return nil, err
		}
		columns[i].json = reader
	}
	return columns, nil
}

// splitColumn splits a column into an extension that ends in json or json.gz
// and the field below it.
func splitColumn(name string) (ext, field string) {
	for i := 0; i < len(name); i++ {
		if name[i] != '.' {
			continue
		}
		ext, rest := strings.ToLower(name[:i]), name[i+1:]
		if ext != "json" && !strings.HasSuffix(ext, ".json") && !isJSONGz(ext) || rest == "gz" || strings.HasPrefix(rest, "gz.") {
			continue
		}
		return name[:i], rest
	}
	return name, ""
}

func isJSONGz(ext string) bool { return ext == "json.gz" || strings.HasSuffix(ext, ".json.gz") }

// sample is the one being read.
type sample struct {
	limit   int64 // bytes of a member
	columns []tarColumn
	values  []Value
	wanted  map[string]*member // by extension
	key     string
	has     []string // extensions of its members
	begun   bool
	problem string // the first one
	tooMany error  // ErrTooMany, if a member has that
	long    string // the first member that is too long
}

// member is a wanted member of the sample.
type member struct {
	ext  string
	data []byte
	here bool
}

func (s *sample) begin(key string) {
	s.key, s.begun, s.problem, s.long, s.tooMany, s.has = key, true, "", "", nil, s.has[:0]
	for _, m := range s.wanted {
		m.here = false
	}
}

func (s *sample) blame(format string, args ...any) {
	if s.problem == "" {
		s.problem = fmt.Sprintf(format, args...)
	}
}

// add reads a member if it is wanted. Its error is one of the file.
func (s *sample) add(t *tarShard, header *tar.Header, ext string) error {
	s.has = append(s.has, ext)
	m := s.wanted[ext]
	switch {
	case m == nil:
		return nil
	case m.here:
		s.blame("it has two members .%s: keep one", ext)
		return nil
	}
	m.here = true
	switch {
	case header.Typeflag == tar.TypeLink || header.Typeflag == tar.TypeSymlink:
		s.blame("the member %s is a link to %s: write the tar with the file itself (tar --dereference --hard-dereference)", header.Name, header.Linkname)
		return nil
	case isSparse(header):
		s.blame("the member %s is sparse: write the tar without --sparse", header.Name)
		return nil
	case header.Size > s.limit:
		s.tooLong(header.Name)
		return nil
	}
	data, err := readAll(m.data, t.tar, s.limit)
	if err != nil {
		return t.damage(err)
	}
	m.data = data
	if strings.HasSuffix(ext, ".gz") && isText(ext) {
		if m.data, err = gunzip(data, s.limit); err == ErrTooLong {
			s.tooLong(header.Name)
		} else if err != nil {
			s.blame("decompressing the member %s: %v", header.Name, err)
		}
	}
	return nil
}

func (s *sample) tooLong(member string) {
	if s.problem == "" {
		s.problem, s.long = ErrTooLong.Error(), member
	}
}

func isSparse(header *tar.Header) bool {
	if header.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for key := range header.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

func gunzip(data []byte, limit int64) ([]byte, error) {
	return readAll(nil, newGzipReader(bytes.NewReader(data)), limit)
}

// isText reports whether members of this extension are UTF-8 text.
func isText(ext string) bool {
	ext = strings.TrimSuffix(ext, ".gz")
	switch ext[strings.LastIndexByte(ext, '.')+1:] {
	case "txt", "text", "cls", "json":
		return true
	}
	return false
}

// read returns the values of the sample, or what is wrong with it.
func (s *sample) read() ([]Value, string) {
	for i, column := range s.columns {
		if s.problem != "" {
			break
		}
		s.values[i] = s.value(column)
	}
	return s.values, s.problem
}

func (s *sample) value(column tarColumn) Value {
	if column.ext == "" {
		return s.text("key", []byte(s.key))
	}
	m := s.wanted[column.ext]
	switch {
	case !m.here:
		return Value{Absent: true}
	case column.json != nil:
		values, problem := column.json.read(m.data)
		if problem != "" {
			s.blame("the member .%s is %s", m.ext, problem)
			if s.tooMany == nil {
				s.tooMany = column.json.tooMany
			}
			return Value{}
		}
		return values[0]
	case isText(m.ext):
		return s.text("member ."+m.ext, m.data)
	}
	return Value{Kind: Bytes, Bytes: m.data}
}

// lacks implements Record.Lacks.
func (s *sample) lacks(column int) (missing string, has []string) {
	c := s.columns[column]
	if m := s.wanted[c.ext]; m != nil && m.here && c.json != nil {
		return c.json.lacks(0)
	}
	return c.ext, s.has
}

func (s *sample) text(what string, data []byte) Value {
	if !utf8.Valid(data) {
		s.blame("byte %d of the %s is not valid UTF-8", invalidUTF8(data), what)
	}
	return Value{Kind: String, Bytes: data}
}
