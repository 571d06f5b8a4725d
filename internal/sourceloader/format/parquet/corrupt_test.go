package parquet

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/format/formattest"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/testdata"
)

func pathsOf(obj store.Object) ([]string, error) {
	root, err := schemaOf(obj)
	if err != nil {
		return nil, err
	}
	return root.paths(), nil
}

func TestCorrupt(t *testing.T) {
	verdicts := formattest.DamagedFiles(t, "parquet", Format{}, pathsOf)
	if verdicts["refused"] < 102 {
		t.Errorf("%v: want most refused", verdicts)
	}
}

// TestDamage flips and cuts bytes of good files: every outcome but a
// panic, a hang or an error of another class than User is right.
func TestDamage(t *testing.T) {
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
			formattest.ReadFuzzed(t, Format{}, damaged, pathsIn)
		}
		for n := 0; n < len(data); n += 1 + len(data)/100 {
			if _, err := formattest.ReadMemory(Format{}, data[:n], pathsIn); err == nil {
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
	f.Fuzz(func(t *testing.T, data []byte) { formattest.ReadFuzzed(t, Format{}, data, pathsIn) })
}

// FuzzRuns checks the run decoder against values it was packed from.
func FuzzRuns(f *testing.F) {
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
