package mirror_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
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

// BenchmarkOpen opens a log of a million steps of 306 sources, and reads what a planner goes on
// from: the last key frame and the records after it. The folder is there, or it is another
// machine's, which is empty. All of it is read as `millrace log check` does.
func BenchmarkOpen(b *testing.B) {
	const steps, group = 1_000_000, 64
	d, err := object.NewDirectory(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	store := &counting{Store: d}
	dir := b.TempDir() + "/log"
	log := benchOpen(b, dir, store)
	rng := rand.New(rand.NewPCG(1, 2))
	record := make([]byte, recordBytes)
	for step := int64(0); step < steps; {
		var ops []checkpoint.Op
		for range group {
			for at := 0; at < len(record); at += 16 { // half of it is noise: Pebble compresses
				binary.LittleEndian.PutUint64(record[at:], rng.Uint64())
			}
			op := checkpoint.Append{Step: step, Record: bytes.Clone(record)}
			if checkpoint.Begins(log) || step%512 == 0 {
				op.Frame = bytes.Repeat(record, 8)
			}
			if ops = append(ops, op); step >= 4 {
				ops = append(ops, checkpoint.SetDigest{Step: step - 4, Digest: [32]byte(record)})
			}
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
		store.objects.Store(0)
		store.bytes.Store(0)
		for b.Loop() {
			benchGoOn(b, dir, store)
		}
		b.ReportMetric(float64(store.objects.Swap(0))/float64(b.N), "objects/op")
		b.ReportMetric(float64(store.bytes.Swap(0))/float64(b.N)/1e6, "mirror-MB/op")
	})
	b.Run("another machine", func(b *testing.B) {
		for b.Loop() {
			other, err := os.MkdirTemp(b.TempDir(), "")
			if err != nil {
				b.Fatal(err)
			}
			benchGoOn(b, other+"/log", store)
		}
		b.ReportMetric(float64(store.objects.Swap(0))/float64(b.N), "objects/op")
		b.ReportMetric(float64(store.bytes.Swap(0))/float64(b.N)/1e6, "mirror-MB/op")
	})
	b.Run("all of it", func(b *testing.B) {
		for b.Loop() {
			log, err := checkpoint.Open(dir, checkpoint.Options{Identity: job, ReadOnly: true, Whole: true})
			if err != nil {
				b.Fatal(err)
			}
			log.Close()
		}
	})
}

// benchGoOn opens a log and reads what a planner does that goes on from it.
func benchGoOn(b *testing.B, dir string, store object.Store) {
	log := benchOpen(b, dir, store)
	defer log.Close()
	from, _, ok, err := log.Frame(math.MaxInt64)
	if err != nil || !ok {
		b.Fatal(ok, err)
	}
	if err := log.Records(from, math.MaxInt64, func(int64, []byte) error { return nil }); err != nil {
		b.Fatal(err)
	}
}

// counting counts what is read of a store.
type counting struct {
	object.Store
	objects, bytes atomic.Int64
}

func (c *counting) Get(ctx context.Context, key string, r object.Range) ([]byte, error) {
	data, err := c.Store.Get(ctx, key, r)
	c.objects.Add(1)
	c.bytes.Add(int64(len(data)))
	return data, err
}
