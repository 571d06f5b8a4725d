package sourceloader

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/parquet-go/parquet-go"
	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/planner/compile"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// parquetLoader is a loader of a Parquet file of two row groups, which it reads through f, and what it says.
func parquetLoader(t *testing.T, f *flaky, data []byte) (l *Loader, said *[]*pb.LoaderReport) {
	t.Helper()
	var files store.Memory
	files.Put("d/0.parquet", data)
	job, findings := jobspec.Parse("j.yaml", []byte("name: j\nsources: [{name: s, files: /d/0.parquet, transforms: [{text: '{text}'}, {tokenize: bytes}], shuffle: false}]\nbatch: {sequence_length: 16, sequences: 1}\n"), "/")
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	f.Store = &files
	l = &Loader{store: store.NewMetered(f), shared: transform.NewShared(0, nil)}
	l.setJob(compile.LoaderJob(job))
	said = heard(t, l)
	if err := l.index(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	return l, said
}

// parquetFile has ten rows in two row groups.
func parquetFile(t *testing.T) []byte {
	t.Helper()
	type row struct {
		Text string `parquet:"text"`
	}
	var b bytes.Buffer
	w := parquet.NewGenericWriter[row](&b, parquet.MaxRowsPerRowGroup(5))
	for i := range 10 {
		if _, err := w.Write([]row{{fmt.Sprint("row ", i)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestIndexMisread: where chunks are is read again with a block of which something was found wrong, so that
// one misreading of a footer, whose index is kept, is no fault of the data.
func TestIndexMisread(t *testing.T) {
	data := parquetFile(t)
	misread := false
	harm := func(n int64, p []byte) error {
		if i := bytes.Index(p, []byte("text")); n == 1 && i >= 0 {
			p[i], misread = 'T', true
		}
		return nil
	}
	clean, said := parquetLoader(t, &flaky{}, data)
	want := reportOf(t, clean, said, 0)
	f := &flaky{}
	f.harm.Store(&harm)
	l, said := parquetLoader(t, f, data)
	if got := reportOf(t, l, said, 0); !proto.Equal(got, want) || len(got.Lengths) != 10 || !misread {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// TestIndexOfOtherSamples: a block that is not what samples were planned of is read a second time with all that is known of its files.
func TestIndexOfOtherSamples(t *testing.T) {
	l, said := parquetLoader(t, &flaky{}, parquetFile(t))
	want := reportOf(t, l, said, 0)
	src, _, err := l.open(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	obj := src.Manifest.Files[0].Object
	before := src.Options.Indexes.Get(obj)
	if err := l.checked(t.Context(), blockID{0, 0}, want.Sum+1, func(content) error { return nil }); err == nil {
		t.Fatal("a block with another checksum is taken")
	}
	if after := src.Options.Indexes.Get(obj); before == nil || after == nil || before == after {
		t.Errorf("the index of the file was not read again: %p, then %p", before, after)
	}
}
