package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/testdata"
)

// manySources is the number of sources of the memory scenario.
const manySources = 306

// parquetSource is one source of the memory scenario: one file.
type parquetSource struct {
	Path   string `json:"path"`
	Column string `json:"column"`
}

// writeSources makes manySources Parquet files in dir, each a source: copies of
// the real files of the shared data set that have a column of text or
// integers, repeated as needed; without that set, files of synthetic text.
func writeSources(ctx context.Context, dir string) ([]parquetSource, string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, "", err
	}
	real, err := realSources(ctx)
	if err != nil {
		return nil, "", err
	}
	origin := fmt.Sprintf("copies of %d real files", len(real))
	if len(real) == 0 {
		origin = "synthetic text (no shared data set)"
	}
	documents := synthetic().documents
	var sources []parquetSource
	size := int64(0)
	for i := range manySources {
		s := parquetSource{filepath.Join(dir, fmt.Sprintf("%03d.parquet", i)), "text"}
		if len(real) > 0 {
			from := real[i%len(real)]
			s.Column = from.Column
			err = copyFile(s.Path, from.Path)
		} else {
			err = writeTexts(s.Path, documents[i*10:i*10+200])
		}
		if err != nil {
			return nil, "", err
		}
		info, err := os.Stat(s.Path)
		if err != nil {
			return nil, "", err
		}
		sources, size = append(sources, s), size+info.Size()
	}
	return sources, fmt.Sprintf("%s, %.0f MB", origin, float64(size)/1e6), nil
}

func writeTexts(path string, documents [][]byte) error {
	type row struct {
		Text string `parquet:"text,snappy"`
	}
	rows := make([]row, len(documents))
	for i, d := range documents {
		rows[i].Text = string(d)
	}
	return parquet.WriteFile(path, rows)
}

func copyFile(to, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

// realSources lists the files of the shared data set that can be a source, by path.
func realSources(ctx context.Context) ([]parquetSource, error) {
	data, ok := testdata.Find()
	if !ok {
		return nil, nil
	}
	var sources []parquetSource
	err := filepath.WalkDir(filepath.Join(data, "parquet"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".parquet") {
			return err
		}
		if column, ok := usableColumn(ctx, path); ok {
			sources = append(sources, parquetSource{path, column})
		}
		return nil
	})
	return sources, err
}

// plainName is a column name that templates need no quoting for.
var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// fewest is the least number of values of a source.
const fewest = 100

// usableColumn picks the first text column of a file, else the first of integers,
// that can be read to the end and has enough values.
func usableColumn(ctx context.Context, path string) (string, bool) {
	for _, name := range candidates(path) {
		seen := 0
		err := eachRecord(ctx, path, []string{name}, func(rec *format.Record) error {
			if rec.Err != nil {
				return rec.Err
			}
			if k := rec.Values[0].Kind; k == format.String || k == format.Int {
				seen++
			}
			return nil
		})
		if err == nil && seen >= fewest {
			return name, true
		}
	}
	return "", false
}

// candidates lists a file's flat columns of bytes, then those of integers.
// A file that the schema reader refuses, or panics on, has none.
func candidates(path string) (names []string) {
	defer func() {
		if recover() != nil {
			names = nil
		}
	}()
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil
	}
	pq, err := parquet.OpenFile(file, info.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil
	}
	var numbers []string
	for _, field := range pq.Schema().Fields() {
		if !field.Leaf() || field.Repeated() || !plainName.MatchString(field.Name()) {
			continue
		}
		switch field.Type().Kind() {
		case parquet.ByteArray:
			names = append(names, field.Name())
		case parquet.Int32, parquet.Int64:
			numbers = append(numbers, field.Name())
		}
	}
	return append(names, numbers...)
}
