// Package tar is the decoder of tar shards in the layout of WebDataset.
//
// It owns which members make a sample, and their kinds by extension. It never
// decodes an image, and follows no link.
package tar

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
	"github.com/millrace-data/millrace/internal/formats"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/compress"
	"github.com/millrace-data/millrace/internal/sourceloader/format/input"
	"github.com/millrace-data/millrace/internal/sourceloader/format/members"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// Format reads tar shards in the layout of the webdataset library:
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
type Format struct{}

// Name implements format.Format.
func (Format) Name() string { return formats.WebDataset }

// Chunks implements format.Format. It reads nothing.
func (Format) Chunks(context.Context, store.Store, store.Object, format.Options) (int, error) {
	return 1, nil
}

// Open implements format.Format.
func (Format) Open(ctx context.Context, st store.Store, obj store.Object, _ int, from format.Position, opt format.Options) (format.Reader, error) {
	columns, err := members.Columns(opt.Columns, opt.ElementLimit())
	if err != nil {
		return nil, err
	}
	s, err := input.OpenStream(ctx, st, obj)
	if err != nil {
		return nil, err
	}
	in := newArchive(s)
	r := &reader{
		ctx: ctx, uri: obj.URI, in: in, tar: tar.NewReader(in), first: int64(from),
		sample: sample{limit: opt.RecordLimit(), columns: columns, values: make([]format.Value, len(columns)), wanted: map[string]*member{}},
	}
	r.lacks = r.sample.lacks
	for i := range columns {
		if ext := columns[i].Ext; ext != "" && r.sample.wanted[ext] == nil {
			r.sample.wanted[ext] = &member{ext: ext}
		}
	}
	return r, nil
}

// reader reads the samples of one shard.
type reader struct {
	ctx    context.Context
	uri    string
	in     *archive
	tar    *tar.Reader
	first  int64 // samples before it are passed over
	sample sample
	lacks  func(int) (string, []string)
	rec    format.Record

	last  string      // name of the last member, for messages
	next  *tar.Header // of the member that began the next sample; nil if none did yet
	files int         // regular files seen
	row   int64       // samples that are complete
	ended bool
}

// Next implements format.Reader.
func (r *reader) Next() (*format.Record, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", r.uri, err)
	}
	for {
		more, err := r.complete()
		if err != nil {
			return nil, err
		}
		if !more {
			return nil, io.EOF
		}
		if r.row++; r.row > r.first {
			return r.record(r.row - 1), nil
		}
	}
}

// complete reads the members of the next sample, up to the first one of another, and
// reports whether there is one.
func (r *reader) complete() (bool, error) {
	if r.ended {
		return false, nil
	}
	r.sample.begun = false
	if r.next != nil {
		if _, err := r.member(r.next); err != nil {
			return false, err
		}
		r.next = nil
	}
	for {
		r.in.zeros = false
		header, err := r.tar.Next()
		if err == io.EOF {
			r.ended = true
			return r.sample.begun, r.finish()
		}
		if err != nil {
			return false, r.damage(err)
		}
		r.last = header.Name
		taken, err := r.member(header)
		if err != nil {
			return false, err
		}
		if !taken {
			r.next = header
			return true, nil
		}
	}
}

// member puts one member into the sample; false says that it begins another one.
func (r *reader) member(header *tar.Header) (bool, error) {
	switch header.Typeflag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse, tar.TypeLink, tar.TypeSymlink:
	default:
		return true, nil
	}
	key, ext, ok := splitMember(header.Name)
	if ok && r.sample.begun && key != r.sample.key {
		return false, nil
	}
	r.files++
	if !ok {
		return true, nil
	}
	if !r.sample.begun {
		r.sample.begin(key)
	}
	if r.row < r.first {
		return true, nil // the sample is passed over
	}
	return true, r.sample.add(r, header, ext)
}

// record returns the sample that is complete.
func (r *reader) record(row int64) *format.Record {
	r.rec = format.Record{Row: row, Lacks: r.lacks}
	s := &r.sample
	values, problem := s.read()
	switch {
	case problem == "":
		r.rec.Values = values
	case s.long != "":
		r.rec.Err = format.TooLong(s.limit, "%s: sample %d (%s): the member %s is", r.uri, row, s.key, s.long)
	case s.field != nil:
		r.rec.Err = fault.Userf("%s: sample %d (%s): %w", r.uri, row, s.key, s.field)
	default:
		r.rec.Err = fault.Userf("%s: sample %d (%s): %s", r.uri, row, s.key, problem)
	}
	return &r.rec
}

// finish checks the end of the archive.
func (r *reader) finish() error {
	if !r.in.zeros {
		return r.damage(io.ErrUnexpectedEOF)
	}
	buf := make([]byte, 32<<10)
	for {
		at := r.in.off
		n, err := r.in.Read(buf)
		if !allZero(buf[:n]) {
			return fault.Userf("%s: there is data after the end-of-archive mark, from byte %d on (after member %s): split concatenated tars, or write them as one",
				r.uri, at, r.last)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return r.damage(err)
		}
	}
	if r.files > 0 && !r.sample.begun {
		return fault.Userf("%s: none of its %d files is named like a sample: key.extension (such as 000017.txt)", r.uri, r.files)
	}
	return nil
}

// Held implements format.Reader.
func (r *reader) Held() int64 {
	held := int64(r.in.buf.Size()) + r.in.s.Held()
	for _, m := range r.sample.wanted {
		held += int64(cap(m.raw))
		if compressed(m.ext) {
			held += int64(cap(m.data))
		}
	}
	for _, c := range r.sample.columns {
		if c.JSON != nil {
			held += c.JSON.Held()
		}
	}
	return held
}

// Close implements format.Reader.
func (r *reader) Close() error {
	for _, c := range r.sample.columns {
		if c.JSON != nil {
			c.JSON.Release()
		}
	}
	return r.in.s.Close()
}

// damage describes an error of the tar reader, and passes the others on.
func (r *reader) damage(err error) error {
	after := "at its start"
	if r.last != "" {
		after = fmt.Sprintf("in or after member %s", r.last)
	}
	switch {
	case fault.ClassOf(err) != fault.Bug:
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fault.Userf("%s: the tar is cut off at byte %d, %s: copy the file again", r.uri, r.in.off, after)
	}
	return fault.Userf("%s: the tar is damaged before byte %d, %s: %w: check that the file is a tar and copy it again", r.uri, r.in.off, after, err)
}

// splitMember splits a member's name into key and extension. ok is false if
// the base name has no dot or begins with one.
func splitMember(name string) (key, ext string, ok bool) {
	dir, base := path.Split(name)
	stem, ext, found := strings.Cut(base, ".")
	return dir + stem, strings.ToLower(ext), found && stem != ""
}

// sample is the one being read.
type sample struct {
	limit   int64 // bytes of a member
	columns []members.Column
	values  []format.Value
	wanted  map[string]*member // by extension
	key     string
	has     []string // extensions of its members
	begun   bool
	problem string // the first one
	field   error  // the same, if it is a field of a JSON member
	long    string // the first member that is too long
}

// member is a wanted member of the sample.
type member struct {
	ext  string
	raw  []byte // memory of the member as it is in the tar
	data []byte
	here bool
}

func (s *sample) begin(key string) {
	s.key, s.begun, s.problem, s.long, s.field, s.has = key, true, "", "", nil, s.has[:0]
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
func (s *sample) add(r *reader, header *tar.Header, ext string) error {
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
	data, err := input.ReadAll(m.raw, r.tar, s.limit)
	if err != nil {
		return r.damage(err)
	}
	m.raw, m.data = data, data
	if compressed(ext) {
		if m.data, err = gunzip(data, s.limit); err == format.ErrTooLong {
			s.tooLong(header.Name)
		} else if err != nil {
			s.blame("decompressing the member %s: %v", header.Name, err)
		}
	}
	return nil
}

func (s *sample) tooLong(member string) {
	if s.problem == "" {
		s.problem, s.long = format.ErrTooLong.Error(), member
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
	return input.ReadAll(nil, compress.NewGzip(bytes.NewReader(data)), limit)
}

// compressed reports whether members of this extension are decompressed.
func compressed(ext string) bool { return strings.HasSuffix(ext, ".gz") && members.IsText(ext) }

// read returns the values of the sample, or what is wrong with it.
func (s *sample) read() ([]format.Value, string) {
	for i, column := range s.columns {
		if s.problem != "" {
			break
		}
		s.values[i] = s.value(column)
	}
	return s.values, s.problem
}

func (s *sample) value(column members.Column) format.Value {
	if column.Ext == "" {
		return s.text("key", []byte(s.key))
	}
	m := s.wanted[column.Ext]
	switch {
	case !m.here:
		return format.Value{Absent: true}
	case column.JSON != nil:
		values, problem := column.JSON.Read(m.data)
		if problem != "" {
			s.blame("the member .%s is %s", m.ext, problem)
			if field := column.JSON.Field(); field != nil {
				s.field = fault.Userf("the member .%s: %w", m.ext, field)
			}
			return format.Value{}
		}
		return values[0]
	case members.IsText(m.ext):
		return s.text("member ."+m.ext, m.data)
	}
	return format.Value{Kind: format.Bytes, Bytes: m.data}
}

// lacks is Record.Lacks.
func (s *sample) lacks(column int) (missing string, has []string) {
	c := s.columns[column]
	if m := s.wanted[c.Ext]; m != nil && m.here && c.JSON != nil {
		return c.JSON.Lacks(0)
	}
	return c.Ext, s.has
}

func (s *sample) text(what string, data []byte) format.Value {
	if !utf8.Valid(data) {
		s.blame("byte %d of the %s is not valid UTF-8", format.InvalidUTF8(data), what)
	}
	return format.Value{Kind: format.String, Bytes: data}
}
