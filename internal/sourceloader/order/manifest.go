package order

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/formats"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/decoders"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/jobspec"
)

// File is one file of a manifest.
type File struct {
	store.Object
	Chunks      int
	Fingerprint [32]byte       // of its bytes, and of its companions'
	Companions  []store.Object // files that hold its data as well
}

// Manifest is the frozen list of the files that a source's samples come from.
type Manifest struct {
	Files    []File   // sorted by URI
	Encoding [32]byte // SHA-256 of the tokenizer's rank file; zero if it has none
}

// Bytes returns the size of all files together.
func (m *Manifest) Bytes() int64 {
	var n int64
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// Digest is a SHA-256 over the inputs that decide the samples: the files' names below
// their common folder, sizes, chunk counts and fingerprints, and the encoding.
// The folder's path and the files' modification times are not part of it.
func (m *Manifest) Digest() [32]byte {
	h := sha256.New()
	prefix := m.Folder()
	for _, f := range m.Files {
		name := strings.TrimPrefix(f.URI, prefix)
		var b [24]byte
		binary.LittleEndian.PutUint64(b[0:], uint64(len(name)))
		binary.LittleEndian.PutUint64(b[8:], uint64(f.Size))
		binary.LittleEndian.PutUint64(b[16:], uint64(f.Chunks))
		h.Write(b[:])
		h.Write([]byte(name))
		h.Write(f.Fingerprint[:])
	}
	h.Write(m.Encoding[:])
	return [32]byte(h.Sum(nil))
}

// Folder returns the longest folder (with its slash) above all files.
func (m *Manifest) Folder() string {
	files := m.Files
	if len(files) == 0 {
		return ""
	}
	// Files are sorted, so the first and the last differ the earliest.
	first, last := files[0].URI, files[len(files)-1].URI
	n := 0
	for n < min(len(first), len(last)) && first[n] == last[n] {
		n++
	}
	return first[:strings.LastIndexByte(first[:n], '/')+1]
}

// Source is a source that was indexed: its format, files and order. It is
// read-only and safe for concurrent use.
type Source struct {
	Format   format.Format
	Options  format.Options
	LeftOut  []store.Object // files of folders and globs that are not of the format
	Doubts   []Doubt        // about what is read
	Manifest Manifest
	Order    Order
	last     last
}

// Index lists the files of src, fingerprints them, counts their chunks and
// returns the source's order under seed. columns are the columns that will be
// read. Errors are of class fault.User if a file is missing or broken, or the
// source has no chunk at all.
func Index(ctx context.Context, st store.Store, src *jobspec.Source, seed uint64, columns []string) (*Source, error) {
	s, objects, err := find(ctx, st, src, columns)
	if err != nil {
		return nil, wrap(src.Name, err)
	}
	if s.Manifest.Files, err = s.describe(ctx, st, objects, columns); err != nil {
		return nil, wrap(src.Name, err)
	}
	if n := src.FirstRecords(); n > 0 {
		if err := s.limit(ctx, st, n); err != nil {
			return nil, wrap(src.Name, err)
		}
	}
	target := src.ChunkBytes
	if target == 0 {
		target = format.DefaultChunkBytes
	}
	s.Order = Order{
		Source:  src.Name,
		Seed:    seed,
		Shuffle: src.Shuffle.Enabled,
		Block:   max(src.Shuffle.Block, 1),
		Layout:  NewLayout(s.Manifest.Files, target),
	}
	if s.Order.Layout.Chunks() == 0 {
		return nil, Empty(src, len(objects))
	}
	return s, nil
}

// Empty is the error of a source without a record.
func Empty(src *jobspec.Source, files int) error {
	return fault.Userf("source %q is empty: its %d files (%s) hold no record; name files with data, or remove the source",
		src.Name, files, strings.Join(src.Files, ", "))
}

// describing is how many files are described at a time: each waits for its store, a disk or a network, and a folder may have
// a hundred thousand of them.
const describing = 16

// describe counts the chunks of files, and fingerprints them. Its error is that of the first file that has one.
func (s *Source) describe(ctx context.Context, st store.Store, objects []store.Object, columns []string) ([]File, error) {
	files, errs := make([]File, len(objects)), make([]error, len(objects))
	var failed atomic.Bool // files before the one that failed go on, no other begins
	var work errgroup.Group
	work.SetLimit(describing)
	for i, obj := range objects {
		if failed.Load() {
			break
		}
		work.Go(func() (err error) {
			file := &files[i]
			file.Object = obj
			if file.Chunks, err = s.Format.Chunks(ctx, st, obj, s.Options); err == nil {
				err = file.fingerprint(ctx, st, s.Format, columns)
			}
			if errs[i] = err; err != nil {
				failed.Store(true)
			}
			return nil
		})
	}
	_ = work.Wait() // the errors are in errs
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// missing is the size of a companion that is not there, and its part of a fingerprint.
const missing = -1

// fingerprint returns the fingerprint of a file and its companions.
func (file *File) fingerprint(ctx context.Context, st store.Store, f format.Format, columns []string) (err error) {
	if file.Fingerprint, err = store.Fingerprint(ctx, st, file.Object); err != nil {
		return err
	}
	with, ok := f.(format.Companion)
	if !ok {
		return nil
	}
	_, optional := f.(format.Optional)
	for _, uri := range with.Companions(file.URI, columns) {
		obj, err := st.Stat(ctx, uri)
		if optional && errors.Is(err, store.ErrNotExist) {
			file.Companions = append(file.Companions, store.Object{URI: uri, Size: missing})
			file.Fingerprint = sha256.Sum256(append(file.Fingerprint[:], "missing"...))
			continue
		}
		if err != nil {
			return err
		}
		print, err := store.Fingerprint(ctx, st, obj)
		if err != nil {
			return err
		}
		file.Companions = append(file.Companions, obj)
		file.Fingerprint = sha256.Sum256(append(file.Fingerprint[:], print[:]...))
	}
	return nil
}

// ReadUnit calls fn for each record of a unit. It refuses a file, or a companion
// of it, that changed after the manifest was made.
func (s *Source) ReadUnit(ctx context.Context, st store.Store, u Unit, fn func(*format.Record) error) error {
	r, err := s.OpenUnit(ctx, st, u, 0)
	if err != nil {
		return err
	}
	return format.Each(r, fn)
}

// OpenUnit opens a unit at a position, which is one that an earlier reader of it came
// to, in any process. It refuses what ReadUnit refuses.
func (s *Source) OpenUnit(ctx context.Context, st store.Store, u Unit, from format.Position) (format.Reader, error) {
	file := &s.Manifest.Files[u.File]
	if err := file.checkCompanions(ctx, st); err != nil {
		return nil, err
	}
	r, err := s.Format.Open(ctx, st, file.Object, u.Chunk, from, s.Options)
	if err != nil || !s.last.set || u.File != s.last.file {
		return r, err
	}
	return until{r, s.last.row}, nil
}

// Reread has what is kept of the chunks of a unit's file read again, when the unit is opened next.
func (s *Source) Reread(u Unit) { s.Options.Indexes.Forget(s.Manifest.Files[u.File].Object) }

func (file *File) checkCompanions(ctx context.Context, st store.Store) error {
	for _, c := range file.Companions {
		now, err := st.Stat(ctx, c.URI)
		if c.Size == missing && errors.Is(err, store.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if now.Version != c.Version {
			return fault.Userf("opening %s: %w; restore it, or start the job again on the new data", c.URI, store.ErrChanged)
		}
	}
	return nil
}

// find lists the files of a source without opening them.
func find(ctx context.Context, st store.Store, src *jobspec.Source, columns []string) (*Source, []store.Object, error) {
	all, dropped, err := list(ctx, st, src)
	if err != nil {
		return nil, nil, err
	}
	s := &Source{Options: format.Options{
		Columns: columns, ChunkBytes: src.ChunkBytes, MaxRecord: src.MaxRecord, MaxElements: src.MaxElements, Indexes: format.NewIndexes(),
	}}
	if err := noChunk(ctx, st, src, all); err != nil {
		return nil, nil, err
	}
	objects, err := s.choose(ctx, st, src, all)
	if err != nil {
		return nil, nil, err
	}
	s.Doubts = doubts(src, all, objects, dropped)
	if g := src.Grouped(); g != nil {
		s.Format = format.Grouped(s.Format, format.Group{By: slices.Index(columns, g.By), Rows: g.Rows})
	}
	return s, withoutCompanions(s.Format, objects, columns), noIndex(ctx, st, objects)
}

// list returns the files that a source names, and those of folders that are left out as a state.json does not list them.
func list(ctx context.Context, st store.Store, src *jobspec.Source) (all, dropped []store.Object, err error) {
	for _, p := range src.Files {
		objects, err := st.List(ctx, p)
		if err != nil {
			return nil, nil, err
		}
		for _, o := range objects {
			if !utf8.ValidString(o.URI) {
				return nil, nil, fault.Userf("the name of %q is not valid UTF-8, which lists of files and messages are: rename it", o.URI)
			}
		}
		var out []store.Object
		if src.Format == "" || src.Format == arrowFormat {
			if objects, out, err = withoutCaches(ctx, st, objects); err != nil {
				return nil, nil, err
			}
		}
		all, dropped = append(all, objects...), append(dropped, out...)
	}
	byURI := func(a, b store.Object) int { return strings.Compare(a.URI, b.URI) }
	slices.SortFunc(all, byURI)
	all = slices.CompactFunc(all, func(a, b store.Object) bool { return a.URI == b.URI })
	named := func(o store.Object) bool { // by another pattern
		_, found := slices.BinarySearchFunc(all, o, byURI)
		return found
	}
	return all, slices.DeleteFunc(dropped, named), nil
}

// choose finds the format of a source and drops the listed files that are not
// of it, such as the state.json next to Hugging Face's Arrow files. A file that
// the spec names stays, whatever its name.
func (s *Source) choose(ctx context.Context, st store.Store, src *jobspec.Source, objects []store.Object) (kept []store.Object, err error) {
	if s.Format, err = formatOf(src, objects); err != nil {
		return nil, err
	}
	stays := func(o store.Object) bool { return fits(s.Format, src.Format == "", o.URI) }
	if !slices.ContainsFunc(objects, func(o store.Object) bool { return !stays(o) }) {
		return objects, nil
	}
	named, err := namedFiles(ctx, st, src.Files)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		switch {
		case stays(o) || named[o.URI]:
			kept = append(kept, o)
		case !slices.Contains(besideData, path.Base(o.URI)):
			s.LeftOut = append(s.LeftOut, o)
		}
	}
	if len(kept) > 0 {
		s.LeftOut = s.withoutColumns(kept)
		return kept, nil
	}
	if _, err := format.Foreign(objects[0].URI); err != nil {
		return nil, err
	}
	return nil, fault.Userf("none of the files that %s names is of format %s; set `format:` or name other files",
		strings.Join(src.Files, ", "), s.Format.Name())
}

// withoutColumns is LeftOut without the files that lie beside a record of the format files: these are its columns.
func (s *Source) withoutColumns(kept []store.Object) []store.Object {
	if s.Format.Name() != formats.Files {
		return s.LeftOut
	}
	records := map[string]bool{}
	for _, o := range kept {
		records[strings.TrimSuffix(o.URI, path.Ext(o.URI))] = true
	}
	return slices.DeleteFunc(s.LeftOut, func(o store.Object) bool {
		folder, base := path.Split(o.URI)
		for i := range len(base) { // an extension may have dots: txt.gz
			if base[i] == '.' && records[folder+base[:i]] {
				return true
			}
		}
		return false
	})
}

// fits reports whether a listed file is data of format f, by its name. byName
// means that f was found by the files' names.
func fits(f format.Format, byName bool, uri string) bool {
	if byName {
		if byPath, err := decoders.ByPath(uri); err != nil || byPath.Name() != f.Name() {
			return false
		}
	}
	return formats.Accepts(f.Name(), uri)
}

// withoutCompanions drops files that only hold data of another listed file:
// of a Megatron pair in a folder or glob, the index stays, and a dataset that is a column
// of another one goes.
func withoutCompanions(f format.Format, objects []store.Object, columns []string) []store.Object {
	with, ok := f.(format.Companion)
	if !ok {
		return objects
	}
	_, optional := f.(format.Optional)
	held := map[string]bool{} // companions of a later file, and those of its columns
	for _, o := range objects {
		if optional && held[o.URI] {
			continue // of two files that are beside each other the first is the record
		}
		always := with.Companions(o.URI, nil)
		for _, uri := range with.Companions(o.URI, columns) {
			held[uri] = held[uri] || uri < o.URI || !slices.Contains(always, uri)
		}
	}
	return slices.DeleteFunc(objects, func(o store.Object) bool { return held[o.URI] })
}

// namedFiles returns the URIs of the patterns that name single files.
func namedFiles(ctx context.Context, st store.Store, patterns []string) (map[string]bool, error) {
	named := map[string]bool{}
	for _, p := range patterns {
		obj, err := st.Stat(ctx, p)
		switch {
		case err == nil:
			named[obj.URI] = true
		case fault.ClassOf(err) != fault.User: // not just a folder or a glob
			return nil, err
		}
	}
	return named, nil
}

// besideData are files that Hugging Face's save_to_disk and hub downloads put
// next to the data: they do not decide a folder's format.
var besideData = []string{savedState, "dataset_info.json", savedDict, "README.md"}

// formatOf returns the format that the spec sets, or else the one that all files
// with a known extension share.
func formatOf(src *jobspec.Source, objects []store.Object) (format.Format, error) {
	if src.Format != "" {
		return decoders.ByName(src.Format)
	}
	var (
		found, beside format.Format
		by            string
		first         error
	)
	for _, o := range objects {
		f, err := decoders.ByPath(o.URI)
		shards, foreign := format.Foreign(o.URI)
		switch {
		case slices.Contains(besideData, path.Base(o.URI)):
		case shards:
			return nil, foreign
		case err != nil:
			first = cmp.Or(first, err)
		case liesBeside(f):
			beside = f
		case found == nil:
			found, by = f, o.URI
		case found.Name() != f.Name():
			return nil, fault.Userf("its files are of several formats: %s is %s, %s is %s; set `format:` to the intended one, or make it two sources",
				by, found.Name(), o.URI, f.Name())
		}
	}
	switch {
	case found != nil:
		return found, nil
	case beside != nil:
		return beside, nil
	case first != nil:
		return nil, first
	case len(objects) == 0:
		return nil, fault.Userf("it names no file; set `files:` to a path, a folder or a glob")
	}
	return decoders.ByPath(objects[0].URI) // only files that accompany data
}

// liesBeside reports whether files of a format lie beside those of others.
func liesBeside(f format.Format) bool {
	return slices.ContainsFunc(formats.Inputs(), func(in formats.Input) bool { return in.Name == f.Name() && in.Beside })
}

func wrap(source string, err error) error {
	return fault.As(fault.ClassOf(err), fmt.Errorf("source %q: %w", source, err))
}

// Name shortens a file's URI for messages: its path below the common folder.
func (m *Manifest) Name(file int32) string {
	f := m.Files[file].URI
	if name := strings.TrimPrefix(f, m.Folder()); name != "" {
		return name
	}
	return path.Base(f)
}

// Find returns the number of the file with a name: its URI, or an ending of it that
// is unique.
func (m *Manifest) Find(name string) (int, error) {
	found, more := -1, 0
	for i := range m.Files {
		switch uri := m.Files[i].URI; {
		case uri == name || m.Name(int32(i)) == name:
			return i, nil
		case strings.HasSuffix(uri, "/"+name):
			found = i
			more++
		}
	}
	switch {
	case more > 1:
		return 0, fault.Userf("%d files end with %q: give more of the path, such as %q", more, name, m.Files[found].URI)
	case found < 0:
		return 0, fault.Userf("no file %q; a valid one is %q", name, m.Name(0))
	}
	return found, nil
}
