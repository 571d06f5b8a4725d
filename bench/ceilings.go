package main

import (
	"bytes"
	"context"
	"io"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/decoders"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// readBytes is the size of a read in the read-only ceiling.
const readBytes = 1 << 20

// onAllCores does n pieces of work on GOMAXPROCS goroutines and returns the time
// it took. work is called with the number of the goroutine and that of the piece.
func onAllCores(n int, work func(worker, i int) error) (float64, error) {
	var next atomic.Int64
	var g errgroup.Group
	begin := time.Now()
	for w := range runtime.GOMAXPROCS(0) {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := work(w, i); err != nil {
					return err
				}
			}
		})
	}
	err := g.Wait()
	return time.Since(begin).Seconds(), err
}

// files are a scenario's inputs, as the ceilings read them.
type files struct {
	store   store.Local
	format  format.Format
	options format.Options
	objects []store.Object
	chunks  []chunk
}

type chunk struct {
	object store.Object
	number int
}

// openFiles lists the files of a folder and counts their chunks.
func openFiles(ctx context.Context, dir, column string) (*files, error) {
	f := &files{options: format.Options{Columns: []string{column}}}
	var err error
	if f.objects, err = f.store.List(ctx, dir); err != nil {
		return nil, err
	}
	if f.format, err = decoders.ByPath(f.objects[0].URI); err != nil {
		return nil, err
	}
	for _, obj := range f.objects {
		n, err := f.format.Chunks(ctx, f.store, obj, f.options)
		if err != nil {
			return nil, err
		}
		for c := range n {
			f.chunks = append(f.chunks, chunk{obj, c})
		}
	}
	return f, nil
}

func (f *files) bytes() int64 {
	var n int64
	for _, o := range f.objects {
		n += o.Size
	}
	return n
}

// read only reads the files.
func (f *files) read(ctx context.Context) (float64, error) {
	type piece struct {
		object store.Object
		at     int64
	}
	var pieces []piece
	for _, o := range f.objects {
		for at := int64(0); at < o.Size; at += readBytes {
			pieces = append(pieces, piece{o, at})
		}
	}
	buffers := make([][]byte, runtime.GOMAXPROCS(0))
	for i := range buffers {
		buffers[i] = make([]byte, readBytes)
	}
	return onAllCores(len(pieces), func(w, i int) error {
		h, err := f.store.Open(ctx, pieces[i].object)
		if err != nil {
			return err
		}
		defer h.Close()
		if _, err := h.ReadAt(buffers[w], pieces[i].at); err != nil && err != io.EOF {
			return err
		}
		return nil
	})
}

// decode reads the records and drops them.
func (f *files) decode(ctx context.Context) (float64, error) {
	return onAllCores(len(f.chunks), func(_, i int) error {
		c := f.chunks[i]
		return format.Read(ctx, f.format, f.store, c.object, c.number, f.options, func(rec *format.Record) error { return rec.Err })
	})
}

// transformed runs the transform chain alone, on records in memory.
type transformed struct {
	chain   *transform.Chain
	records [][]format.Record // by chunk
}

// load reads all records into memory for the chain of src.
func (f *files) load(ctx context.Context, src jobspec.Source, sequenceLength int) (*transformed, error) {
	chain, err := transform.Compile(src, sequenceLength, nil)
	if err != nil {
		return nil, err
	}
	t := &transformed{chain: chain, records: make([][]format.Record, len(f.chunks))}
	for i, c := range f.chunks {
		err := format.Read(ctx, f.format, f.store, c.object, c.number, f.options, func(rec *format.Record) error {
			v := rec.Values[0]
			v.Bytes = bytes.Clone(v.Bytes)
			t.records[i] = append(t.records[i], format.Record{Row: rec.Row, Values: []format.Value{v}, Err: rec.Err})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

// run applies the chain to all records and counts the tokens.
func (t *transformed) run() (seconds float64, tokens int64, err error) {
	workers := make([]*transform.Worker, runtime.GOMAXPROCS(0))
	for i := range workers {
		workers[i] = t.chain.Worker()
	}
	var n atomic.Int64
	seconds, err = onAllCores(len(t.records), func(w, i int) error {
		count := 0
		for k := range t.records[i] {
			_, err := workers[w].Apply(context.Background(), &t.records[i][k], func(s *transform.Sample) error {
				count += len(s.Tokens)
				return nil
			})
			if err != nil {
				return err
			}
		}
		n.Add(int64(count))
		return nil
	})
	return seconds, n.Load(), err
}
