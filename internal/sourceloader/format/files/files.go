// Package files is the decoder of sounds, pictures and videos that are files by themselves: each is a record, with
// the files of the same name beside it.
//
// It owns which file beside it a column is. It never decodes a sound or a picture, and reads no file that
// was not asked for.
package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/formats"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/input"
	"github.com/millrace-data/millrace/internal/sourceloader/format/members"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// Columns that every file has.
const (
	content = "bytes" // whatever its extension
	name    = "name"  // with its extension, without folders
	uri     = "path"
)

// Format reads a file as one record. Its columns are those of a shard in the layout of webdataset: the column
// "wav" of a/0001.wav is the file itself, "txt" is a/0001.txt, "json.speaker" a field of a/0001.json,
// "__key__" is 0001; a file that is not there is Null and Absent. "bytes" is the file itself, too,
// "name" 0001.wav, "path" its URI. Files that end in .txt, .text, .cls or .json are String, and checked to be
// UTF-8, all others Bytes. A file over Options.MaxRecord is a bad record.
type Format struct{}

var (
	_ format.Rows     = Format{}
	_ format.Optional = Format{}
)

// Name implements format.Format.
func (Format) Name() string { return formats.Files }

// RowsBelow implements format.Rows.
func (Format) RowsBelow(store.Object) int64 { return 1 }

// InBytes implements format.Rows.
func (Format) InBytes() bool { return false }

// Chunks implements format.Format. It reads nothing.
func (Format) Chunks(context.Context, store.Store, store.Object, format.Options) (int, error) {
	return 1, nil
}

// Companions implements format.Companion.
func (Format) Companions(file string, columns []string) (uris []string) {
	key, own := split(file)
	wanted, err := members.Columns(columns, 1)
	if err != nil {
		return nil // Open says so
	}
	for _, c := range wanted {
		if at := key + "." + c.Ext; beside(c.Ext, own) && !slices.Contains(uris, at) {
			uris = append(uris, at)
		}
	}
	slices.Sort(uris)
	return uris
}

// MayLack implements format.Optional.
func (Format) MayLack() {}

// beside reports whether a column is a file beside one with the extension own.
func beside(ext, own string) bool {
	return ext != "" && ext != own && ext != content && ext != name && ext != uri
}

// split splits the name of a file before its last dot. The extension is in lower case.
func split(file string) (key, ext string) {
	ext = path.Ext(file)
	return strings.TrimSuffix(file, ext), strings.ToLower(strings.TrimPrefix(ext, "."))
}

// Open implements format.Format. Files are read by Next.
func (Format) Open(ctx context.Context, st store.Store, obj store.Object, _ int, from format.Position, opt format.Options) (format.Reader, error) {
	columns, err := members.Columns(opt.Columns, opt.ElementLimit())
	if err != nil {
		return nil, err
	}
	return &reader{ctx: ctx, st: st, obj: obj, columns: columns, limit: opt.RecordLimit(), done: from > 0, read: map[string][]byte{}}, nil
}

type reader struct {
	ctx     context.Context
	st      store.Store
	obj     store.Object
	columns []members.Column
	limit   int64
	done    bool
	read    map[string][]byte // files, by extension; nil: one that is not there
}

// Next implements format.Reader.
func (r *reader) Next() (*format.Record, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", r.obj.URI, err)
	}
	if r.done {
		return nil, io.EOF
	}
	r.done = true
	rec := &format.Record{Lacks: r.lacks}
	for i := range r.columns {
		v, bad, err := r.value(&r.columns[i])
		switch {
		case err != nil:
			return nil, err
		case bad != nil:
			return &format.Record{Err: bad}, nil
		}
		rec.Values = append(rec.Values, v)
	}
	return rec, nil
}

// value is the value of a column, or says what is wrong with it.
func (r *reader) value(c *members.Column) (v format.Value, bad, err error) {
	key, own := split(r.obj.URI)
	switch c.Ext {
	case "":
		return r.text(r.obj.URI, []byte(path.Base(key)))
	case name:
		return r.text(r.obj.URI, []byte(path.Base(r.obj.URI)))
	case uri:
		return r.text(r.obj.URI, []byte(r.obj.URI))
	}
	file, ext := r.obj.URI, own
	if beside(c.Ext, own) {
		file, ext = key+"."+c.Ext, c.Ext
	}
	data, known := r.read[ext]
	if !known {
		if data, bad, err = r.load(file, ext == own); bad != nil || err != nil {
			return v, bad, err
		}
		r.read[ext] = data
	}
	switch {
	case data == nil:
		return format.Value{Absent: true}, nil, nil
	case c.JSON != nil:
		values, problem := c.JSON.Read(data)
		if problem != "" {
			if field := c.JSON.Field(); field != nil {
				return v, fault.Userf("%s: %w", file, field), nil
			}
			return v, fault.Userf("%s is %s", file, problem), nil
		}
		return values[0], nil, nil
	case members.IsText(ext) && c.Ext != content:
		return r.text(file, data)
	}
	return format.Value{Kind: format.Bytes, Bytes: data}, nil, nil
}

// load reads a file, nil if it is not there.
func (r *reader) load(file string, own bool) (data []byte, bad, err error) {
	obj := r.obj
	if !own {
		switch obj, err = r.st.Stat(r.ctx, file); {
		case errors.Is(err, store.ErrNotExist):
			return nil, nil, nil
		case err != nil:
			return nil, nil, err
		}
	}
	if obj.Size > r.limit {
		return nil, format.TooLong(r.limit, "%s: the file of %d bytes is", file, obj.Size), nil
	}
	s, err := input.OpenStream(r.ctx, r.st, obj)
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	// One byte more than the file has, so that its end is seen without growing.
	data, err = input.ReadAll(make([]byte, 0, obj.Size+1), s, r.limit)
	if err == format.ErrTooLong { // of one that is compressed
		return nil, format.TooLong(r.limit, "%s: its content is", file), nil
	}
	return data, nil, err
}

func (r *reader) text(file string, data []byte) (v format.Value, bad, err error) {
	if !utf8.Valid(data) {
		return v, fault.Userf("%s: byte %d is not valid UTF-8: convert it to UTF-8", file, format.InvalidUTF8(data)), nil
	}
	return format.Value{Kind: format.String, Bytes: data}, nil, nil
}

// lacks is Record.Lacks.
func (r *reader) lacks(column int) (missing string, has []string) {
	c := &r.columns[column]
	if r.read[c.Ext] != nil && c.JSON != nil {
		return c.JSON.Lacks(0)
	}
	_, own := split(r.obj.URI)
	has = append(has, own)
	for ext, data := range r.read {
		if data != nil && ext != own {
			has = append(has, ext)
		}
	}
	slices.Sort(has)
	return c.Ext, has
}

// Held implements format.Reader.
func (r *reader) Held() (n int64) {
	for _, data := range r.read {
		n += int64(cap(data))
	}
	for i := range r.columns {
		if c := &r.columns[i]; c.JSON != nil {
			n += c.JSON.Held()
		}
	}
	return n
}

// Close implements format.Reader.
func (r *reader) Close() error {
	for i := range r.columns {
		if c := &r.columns[i]; c.JSON != nil {
			c.JSON.Release()
		}
	}
	r.read = nil
	return nil
}
