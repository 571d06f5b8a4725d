package format

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/testdata"
)

// Bounds for one damaged file: far above what reading it takes, far below what
// its headers can claim.
const (
	corruptTime  = 10 * time.Second
	corruptAlloc = 1 << 30
)

// readDamaged reads all columns of a file that may be damaged and sorts the
// outcome: "read", or "refused" if there is an error, which must be the user's.
func readDamaged(t *testing.T, f Format, obj store.Object, columns func(store.Object) ([]string, error)) string {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	ctx, cancel := context.WithTimeout(context.Background(), corruptTime)
	defer cancel()
	verdict := "read"
	names, err := columns(obj)
	if err == nil {
		var chunks int
		chunks, err = f.Chunks(ctx, store.Local{}, obj, Options{})
		for _, name := range append([][]string{names}, each(names)...) {
			for chunk := 0; chunk < chunks; chunk++ {
				if bad := f.Read(ctx, store.Local{}, obj, chunk, Options{Columns: name}, func(r *Record) error {
					if r.Err != nil && fault.ClassOf(r.Err) != fault.User {
						t.Errorf("%s: %v is of class %s", obj.URI, r.Err, fault.ClassOf(r.Err))
					}
					return nil
				}); bad != nil {
					err = bad
				}
			}
		}
	}
	if err != nil {
		verdict = "refused"
		if fault.ClassOf(err) != fault.User {
			t.Errorf("%s: %v is of class %s", obj.URI, err, fault.ClassOf(err))
		}
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > corruptAlloc {
		t.Errorf("%s: %d MiB were allocated", obj.URI, n>>20)
	}
	return verdict
}

func each(names []string) (single [][]string) {
	for _, n := range names {
		single = append(single, []string{n})
	}
	return single
}

// damagedFiles walks a folder of the corrupt part of the data set.
func damagedFiles(t *testing.T, folder string, visit func(obj store.Object)) {
	dir := filepath.Join(testdata.Dir(t), "corrupt", folder)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			visit(statObject(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func parquetPaths(obj store.Object) ([]string, error) {
	root, err := schemaOf(obj)
	if err != nil {
		return nil, err
	}
	return root.paths(), nil
}

func TestParquetCorrupt(t *testing.T) {
	verdicts := map[string]int{}
	damagedFiles(t, "parquet", func(obj store.Object) {
		start := time.Now()
		v := readDamaged(t, Parquet{}, obj, parquetPaths)
		verdicts[v]++
		if v == "read" {
			t.Logf("read: %s", filepath.Base(obj.URI))
		}
		if took := time.Since(start); took > corruptTime/2 {
			t.Errorf("%s took %s", obj.URI, took)
		}
	})
	t.Log(verdicts)
	if verdicts["refused"] < 102 {
		t.Errorf("%v: want most refused", verdicts)
	}
}

// TestParquetDamage flips and cuts bytes of good files: every outcome but a
// panic, a hang or an error of another class than User is right.
func TestParquetDamage(t *testing.T) {
	dir := filepath.Join(testdata.Dir(t), "parquet")
	for _, name := range []string{
		"apache-parquet-testing/datapage_v2.snappy.parquet", "apache-parquet-testing/nonnullable.impala.parquet",
		"apache-parquet-testing/data_index_bloom_encoding_stats.parquet", "fastparquet/nested1.parquet",
	} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		rng := newRand(1)
		for range 300 {
			damaged := append([]byte(nil), data...)
			for range 1 + rng.IntN(4) {
				damaged[rng.IntN(len(damaged))] ^= byte(1 << rng.IntN(8))
			}
			readFuzzed(t, Parquet{}, damaged, parquetPathsIn)
		}
		for n := 0; n < len(data); n += 1 + len(data)/100 {
			if _, err := readMemory(Parquet{}, data[:n], parquetPathsIn); err == nil {
				t.Errorf("%s, cut to %d bytes: no error", name, n)
			}
		}
	}
}

func FuzzParquet(f *testing.F) {
	f.Add(sampleParquet(f, 3))
	if dir, ok := testdata.Find(); ok {
		for _, name := range []string{"datapage_v2.snappy.parquet", "delta_byte_array.parquet", "old_list_structure.parquet", "int96_from_spark.parquet"} {
			if data, err := os.ReadFile(filepath.Join(dir, "parquet/apache-parquet-testing", name)); err == nil && len(data) < 8<<10 {
				f.Add(data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { readFuzzed(t, Parquet{}, data, parquetPathsIn) })
}

// FuzzParquetRuns checks the run decoder against values it was packed from.
func FuzzParquetRuns(f *testing.F) {
	f.Add([]byte{3, 0x88, 0xc6, 0xfa}, uint8(3), uint16(8))
	f.Add([]byte{8, 1}, uint8(1), uint16(4))
	f.Fuzz(func(t *testing.T, src []byte, width uint8, n uint16) {
		dst := make([]int32, n)
		if decodeRuns(dst, src, int(width)%33) == nil && width%33 < 31 {
			for i, v := range dst {
				// A run may hold more bits than its width rounded up to bytes.
				if v < 0 && width%33 < 25 {
					t.Fatalf("value %d is %d with %d bits", i, v, width%33)
				}
			}
		}
		levels := make([]uint8, n)
		_ = decodeRuns(levels, src, int(width)%9)
		_, _ = decodeDelta(src, int(n), func(i int, _ int64) { dst[i] = 0 })
	})
}
