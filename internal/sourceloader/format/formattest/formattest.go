// Package formattest is the conformance suite of sourceloader/format: every
// Format runs it over small files of its own. It also has Poison, with which
// tests of other packages find values that were kept too long, and what tests of
// decoders share: files, columns, rows to measure on.
package formattest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// Empty says what an empty file is in a format.
type Empty int

const (
	EmptyDamaged Empty = iota // not a valid file: an error of class User
	EmptyNothing              // valid, with no chunks
	EmptyRecord               // one record
)

// Case is one dataset to check a format with.
type Case struct {
	Format format.Format
	// Files are the files of the dataset by name; File names the one to read.
	// Small ones, so that cutting them at many places stays fast.
	Files map[string][]byte
	File  string
	// Columns are what is read: columns that the file has, two or more if it can.
	Columns []string
	// Records is how many there are, bad ones included.
	Records int
	// Missing is a column that the dataset does not have. MissingIsError says
	// that the schema rules it out; otherwise it is Null in every good record.
	Missing        string
	MissingIsError bool
	// Unframed says that the format has no end mark, so that a file which was
	// cut may be a shorter valid one.
	Unframed bool
	// Empty is what an empty file is.
	Empty Empty
}

// Run checks the format.
func Run(t *testing.T, c Case) {
	t.Helper()
	for _, check := range []struct {
		name string
		run  func(*testing.T, Case)
	}{
		{"chunks partition", checkChunks},
		{"rows", checkRows},
		{"projection", checkProjection},
		{"missing column", checkMissing},
		{"stop", checkStop},
		{"cancel", checkCancel},
		{"concurrent", checkConcurrent},
		{"resume", checkResume},
		{"batches", checkBatches},
		{"held", checkHeld},
		{"changed", checkChanged},
		{"indexes", checkIndexes},
		{"handles", checkHandles},
		{"cut", checkCut},
		{"empty", checkEmpty},
	} {
		t.Run(check.name, func(t *testing.T) { check.run(t, c) })
	}
}

// store returns the dataset in memory, with the one file replaced if it is named.
func (c Case) store(t *testing.T, replace string, data []byte) (*store.Memory, store.Object) {
	t.Helper()
	st := &store.Memory{}
	for name, content := range c.Files {
		if name == replace {
			content = data
		}
		st.Put(name, content)
	}
	obj, err := st.Stat(t.Context(), c.File)
	if err != nil {
		t.Fatal(err)
	}
	return st, obj
}

func (c Case) read(t *testing.T, opt format.Options) []format.Record {
	t.Helper()
	st, obj := c.store(t, "", nil)
	records, err := ReadAll(t.Context(), c.Format, st, obj, opt)
	if err != nil {
		t.Fatalf("reading %s with %+v: %v", c.File, opt, err)
	}
	return records
}

// ReadAll returns copies of all records of obj, chunk by chunk. At an error it
// returns those before it as well.
func ReadAll(ctx context.Context, f format.Format, st store.Store, obj store.Object, opt format.Options) ([]format.Record, error) {
	chunks, err := f.Chunks(ctx, st, obj, opt)
	if err != nil {
		return nil, fmt.Errorf("counting chunks: %w", err)
	}
	var records []format.Record
	for chunk := range chunks {
		err := format.Read(ctx, f, st, obj, chunk, opt, func(r *format.Record) error {
			records = append(records, Clone(r))
			return nil
		})
		if err != nil {
			return records, fmt.Errorf("chunk %d: %w", chunk, err)
		}
	}
	return records, nil
}

// Clone returns a copy of r that shares no memory with it.
func Clone(r *format.Record) format.Record {
	return format.Record{Row: r.Row, Err: r.Err, Values: cloneValues(r.Values)}
}

func cloneValues(values []format.Value) []format.Value {
	if values == nil {
		return nil
	}
	copies := make([]format.Value, len(values))
	for i, v := range values {
		v.Bytes, v.Tokens, v.List = slices.Clone(v.Bytes), slices.Clone(v.Tokens), cloneValues(v.List)
		copies[i] = v
	}
	return copies
}

// Print returns a record as text that is equal for equal records only.
func Print(r format.Record) string {
	if r.Err != nil {
		return fmt.Sprintf("%d: error: %v", r.Row, r.Err)
	}
	return fmt.Sprintf("%d: %s", r.Row, printValues(r.Values))
}

func printValues(values []format.Value) string {
	parts := make([]string, len(values))
	for i, v := range values {
		switch v.Kind {
		case format.Null:
			parts[i] = "null"
		case format.String:
			parts[i] = fmt.Sprintf("%q", v.Bytes)
		case format.Bytes:
			parts[i] = fmt.Sprintf("bytes %x", v.Bytes)
		case format.Int:
			parts[i] = fmt.Sprint(v.Int)
		case format.Float:
			parts[i] = fmt.Sprintf("%x", v.Float)
		case format.Bool:
			parts[i] = fmt.Sprintf("bool %d", v.Int)
		case format.Tokens:
			parts[i] = fmt.Sprintf("tokens %d", v.Tokens)
		case format.List:
			parts[i] = "[" + printValues(v.List) + "]"
		default:
			parts[i] = fmt.Sprintf("kind %d", v.Kind)
		}
	}
	return strings.Join(parts, " ")
}

func same(a, b []format.Record) bool {
	return slices.EqualFunc(a, b, func(a, b format.Record) bool { return Print(a) == Print(b) })
}

// checkChunks: the chunks of any size hold every record once, in order.
func checkChunks(t *testing.T, c Case) {
	want := c.read(t, format.Options{Columns: c.Columns})
	if len(want) != c.Records {
		t.Fatalf("%d records, want %d", len(want), c.Records)
	}
	for _, size := range []int64{1, 2, 3, 7, 16, 61, 100, 1000, 4096, 1 << 20, 1 << 40} {
		opt := format.Options{Columns: c.Columns, ChunkBytes: size}
		if got := c.read(t, opt); !same(got, want) {
			t.Errorf("chunks of %d bytes give %d records unlike the %d of default chunks", size, len(got), len(want))
		}
	}
}

// checkRows: rows rise and are unique, values are as many as columns, and bad
// records are of class User and name the file.
func checkRows(t *testing.T, c Case) {
	last := int64(-1)
	for _, r := range c.read(t, format.Options{Columns: c.Columns}) {
		if r.Row <= last {
			t.Errorf("row %d after row %d", r.Row, last)
		}
		last = r.Row
		switch {
		case r.Err == nil && len(r.Values) != len(c.Columns):
			t.Errorf("row %d has %d values for %d columns", r.Row, len(r.Values), len(c.Columns))
		case r.Err != nil && r.Values != nil:
			t.Errorf("row %d has values beside the error %v", r.Row, r.Err)
		case r.Err != nil && (fault.ClassOf(r.Err) != fault.User || !strings.Contains(r.Err.Error(), c.File)):
			t.Errorf("row %d: the error is not of class User or does not name %s: %v", r.Row, c.File, r.Err)
		}
	}
}

// checkProjection: values come in the order asked for, also twice, and reading
// no column at all still counts the records.
func checkProjection(t *testing.T, c Case) {
	want := c.read(t, format.Options{Columns: c.Columns})
	turned := slices.Clone(c.Columns)
	slices.Reverse(turned)
	turned = append(turned, c.Columns...)
	got := c.read(t, format.Options{Columns: turned})
	if len(got) != len(want) {
		t.Fatalf("%d records with columns %q, %d with %q", len(got), turned, len(want), c.Columns)
	}
	for i := range got {
		if want[i].Err != nil {
			continue
		}
		values := slices.Clone(want[i].Values)
		slices.Reverse(values)
		values = append(values, want[i].Values...)
		if expect := (format.Record{Row: want[i].Row, Values: values}); Print(got[i]) != Print(expect) {
			t.Errorf("columns %q: got %s, want %s", turned, Print(got[i]), Print(expect))
		}
	}
	if none := c.read(t, format.Options{}); len(none) != len(want) {
		t.Errorf("%d records without columns, %d with", len(none), len(want))
	}
}

func checkMissing(t *testing.T, c Case) {
	st, obj := c.store(t, "", nil)
	records, err := ReadAll(t.Context(), c.Format, st, obj, format.Options{Columns: []string{c.Missing}})
	if c.MissingIsError {
		if fault.ClassOf(err) != fault.User || !strings.Contains(fmt.Sprint(err), c.Missing) {
			t.Errorf("column %q: got %v, want a user error that names it", c.Missing, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("column %q: %v", c.Missing, err)
	}
	for _, r := range records {
		if r.Err == nil && r.Values[0].Kind != format.Null {
			t.Errorf("column %q: got %s, want null", c.Missing, Print(r))
		}
	}
}

// checkStop: an error of the callback ends the read and comes back as it is.
func checkStop(t *testing.T, c Case) {
	st, obj := c.store(t, "", nil)
	stop := errors.New("enough")
	opt := format.Options{Columns: c.Columns, ChunkBytes: 1 << 40}
	for limit := 1; limit <= min(c.Records, 3); limit++ {
		calls := 0
		err := format.Read(t.Context(), c.Format, st, obj, 0, opt, func(*format.Record) error {
			if calls++; calls == limit {
				return stop
			}
			return nil
		})
		if err != stop && !(err == nil && calls < limit) || calls > limit {
			t.Errorf("stopped at record %d: %d calls, error %v", limit, calls, err)
		}
	}
}

func checkCancel(t *testing.T, c Case) {
	st, obj := c.store(t, "", nil)
	ctx, cancel := context.WithCancel(t.Context())
	opt := format.Options{Columns: c.Columns, ChunkBytes: 1 << 40}
	calls := 0
	err := format.Read(ctx, c.Format, st, obj, 0, opt, func(*format.Record) error {
		calls++
		cancel()
		return nil
	})
	if calls > 1 || c.Records > 1 && calls == 1 && !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled in the first record: %d calls, error %v", calls, err)
	}
	cancel()
	if err := format.Read(ctx, c.Format, st, obj, 0, opt, func(*format.Record) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("Read with a cancelled context: %v", err)
	}
}

func checkConcurrent(t *testing.T, c Case) {
	st, obj := c.store(t, "", nil)
	opt := format.Options{Columns: c.Columns, ChunkBytes: 64}
	want := c.read(t, opt)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if got, err := ReadAll(t.Context(), c.Format, st, obj, opt); err != nil || !same(got, want) {
				t.Errorf("reading at the same time: %d records, %v", len(got), err)
			}
		})
	}
	wg.Wait()
}

// checkChanged: the file must still be the one that was listed.
func checkChanged(t *testing.T, c Case) {
	st, obj := c.store(t, "", nil)
	st.Put(c.File, append(slices.Clone(c.Files[c.File]), ' '))
	if _, err := ReadAll(t.Context(), c.Format, st, obj, format.Options{Columns: c.Columns}); !errors.Is(err, store.ErrChanged) {
		t.Errorf("reading a changed file: %v", err)
	}
	obj.Version, obj.Size = "", obj.Size+1000
	_, err := ReadAll(t.Context(), c.Format, st, obj, format.Options{Columns: c.Columns})
	if err == nil || fault.ClassOf(err) != fault.User {
		t.Errorf("reading a file that is shorter than listed: %v", err)
	}
}

// checkHandles: whatever happens, files are closed.
func checkHandles(t *testing.T, c Case) {
	memory, obj := c.store(t, "", nil)
	st := store.NewMetered(memory)
	for _, limit := range []int{0, 1, c.Records + 1} {
		ctx, cancel := context.WithCancel(t.Context())
		chunks, err := c.Format.Chunks(ctx, st, obj, format.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for chunk := range chunks {
			calls := 0
			format.Read(ctx, c.Format, st, obj, chunk, format.Options{Columns: c.Columns}, func(*format.Record) error {
				if calls++; calls > limit {
					cancel()
					return errors.New("enough")
				}
				return nil
			})
		}
		cancel()
	}
	if open := st.Meter().Open; open != 0 {
		t.Errorf("%d files are still open", open)
	}
}

// checkCut: a file that is cut anywhere neither panics nor hangs, and gives
// records of the whole one, then an error of class User.
func checkCut(t *testing.T, c Case) {
	opt := format.Options{Columns: c.Columns}
	whole := map[int64]format.Record{}
	for _, r := range c.read(t, opt) {
		whole[r.Row] = r
	}
	for name, data := range c.Files {
		for _, n := range cuts(len(data)) {
			st, obj := c.store(t, name, data[:n:n])
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			got, err := ReadAll(ctx, c.Format, st, obj, opt)
			cancel()
			switch {
			case err != nil && fault.ClassOf(err) != fault.User:
				t.Errorf("%s cut at byte %d: not a user error: %v", name, n, err)
			case c.Empty == EmptyNothing && len(bytes.Trim(data[:n], "\xef\xbb\xbf \t\r\n")) == 0:
			case err == nil && len(got) != c.Records && !c.Unframed:
				t.Errorf("%s cut at byte %d of %d: %d of %d records and no error", name, n, len(data), len(got), c.Records)
			}
			for _, r := range got {
				if r.Err == nil && Print(r) != Print(whole[r.Row]) && !(c.Unframed && prefixes(r, whole[r.Row])) {
					t.Errorf("%s cut at byte %d: record %s, in the whole file %s", name, n, Print(r), Print(whole[r.Row]))
				}
			}
		}
	}
}

// prefixes reports whether the values of a begin those of b, or are the same: a file without
// an end mark that was cut.
func prefixes(a, b format.Record) bool {
	return slices.EqualFunc(a.Values, b.Values, func(a, b format.Value) bool {
		one := func(v format.Value) string { return Print(format.Record{Values: []format.Value{v}}) }
		text := a.Kind == format.String || a.Kind == format.Bytes
		return a.Kind == b.Kind && text && strings.HasPrefix(string(b.Bytes), string(a.Bytes)) || one(a) == one(b)
	})
}

// cuts returns the places to cut n bytes at: all of them in a small file, the
// ends and a few hundred between in a larger one.
func cuts(n int) []int {
	var places []int
	for i := range n {
		if n <= 700 || i < 200 || i >= n-300 || i%(n/200) == 0 {
			places = append(places, i)
		}
	}
	return places
}

func checkEmpty(t *testing.T, c Case) {
	st, obj := c.store(t, c.File, nil)
	chunks, chunksErr := c.Format.Chunks(t.Context(), st, obj, format.Options{})
	records, err := ReadAll(t.Context(), c.Format, st, obj, format.Options{Columns: c.Columns})
	ok := false
	switch c.Empty {
	case EmptyDamaged:
		ok = err != nil && fault.ClassOf(err) == fault.User && len(records) == 0
	case EmptyNothing:
		ok = err == nil && chunksErr == nil && chunks == 0
	case EmptyRecord:
		ok = err == nil && len(records) == 1 && records[0].Err == nil
	}
	if !ok {
		t.Errorf("empty file: %d chunks, %d records, error %v", chunks, len(records), err)
	}
}
