package mirror_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/checkpoint/mirror"
	"github.com/millrace-data/millrace/internal/object"
	"github.com/millrace-data/millrace/internal/object/objecttest"
)

// recordBytes is what a record of 306 sources has.
const recordBytes = 2096

// BenchmarkAppend writes a step at a time, or 32 of them, to a log on a disk: alone, with a
// mirror in a folder and with one in a bucket.
func BenchmarkAppend(b *testing.B) {
	for name, store := range map[string]func(b *testing.B) object.Store{
		"local": func(*testing.B) object.Store { return nil },
		"folder": func(b *testing.B) object.Store {
			d, err := object.NewDirectory(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			return d
		},
		"bucket": func(b *testing.B) object.Store {
			s, err := object.Open(strings.Replace(objecttest.Server(b), "s3://bucket", "s3://bucket/job", 1))
			if err != nil {
				b.Fatal(err)
			}
			return s
		},
	} {
		for _, group := range []int{1, 32} {
			b.Run(fmt.Sprintf("%s/group=%d", name, group), func(b *testing.B) { benchAppend(b, store(b), group) })
		}
	}
}

func benchAppend(b *testing.B, store object.Store, group int) {
	dir := b.TempDir() + "/log"
	log := benchOpen(b, dir, store)
	defer log.Close()
	record := bytes.Repeat([]byte("0123456789abcdef"), recordBytes/16)
	var took []time.Duration
	step := int64(0)
	for b.Loop() {
		ops := make([]checkpoint.Op, group)
		for i := range ops {
			ops[i] = checkpoint.Append{Step: step, Record: record}
			step++
		}
		begin := time.Now()
		if err := log.Write(ops...); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	if store != nil {
		all, err := store.List(b.Context(), "", "")
		if err != nil {
			b.Fatal(err)
		}
		var bytes int64
		for _, o := range all {
			bytes += o.Size
		}
		b.ReportMetric(float64(bytes)/float64(step)/1000, "mirror-KB/step")
		b.ReportMetric(float64(len(all)), "objects")
	}
}

func benchOpen(b *testing.B, dir string, store object.Store) checkpoint.Log {
	b.Helper()
	opts := checkpoint.Options{Identity: job}
	if store == nil {
		log, err := checkpoint.Open(dir, opts)
		if err != nil {
			b.Fatal(err)
		}
		return log
	}
	log, err := mirror.Open(b.Context(), mirror.Options{Dir: dir, Log: opts, Store: store})
	if err != nil {
		b.Fatal(err)
	}
	return log
}

// BenchmarkOpen opens a log of a million steps of 306 sources: the folder, and another
// machine's, which is empty.
func BenchmarkOpen(b *testing.B) {
	const steps, group = 1_000_000, 64
	d, err := object.NewDirectory(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir() + "/log"
	log := benchOpen(b, dir, d)
	record := bytes.Repeat([]byte("0123456789abcdef"), recordBytes/16)
	for step := int64(0); step < steps; {
		var ops []checkpoint.Op
		for range group {
			op := checkpoint.Append{Step: step, Record: record}
			if step%256 == 0 {
				op.Frame = record
			}
			ops = append(ops, op)
			step++
		}
		if err := log.Write(ops...); err != nil {
			b.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		b.Fatal(err)
	}
	b.Run("same machine", func(b *testing.B) {
		for b.Loop() {
			benchOpen(b, dir, d).Close()
		}
	})
	b.Run("another machine", func(b *testing.B) {
		for b.Loop() {
			other, err := os.MkdirTemp(b.TempDir(), "")
			if err != nil {
				b.Fatal(err)
			}
			benchOpen(b, other+"/log", d).Close()
		}
	})
}
