package parquet

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	pq "github.com/parquet-go/parquet-go/format"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format/formattest"
)

// withFooter returns a file with its metadata changed.
func withFooter(t *testing.T, data []byte, change func(*pq.FileMetaData)) []byte {
	t.Helper()
	size := int(binary.LittleEndian.Uint32(data[len(data)-8:]))
	body := data[:len(data)-8-size]
	var meta pq.FileMetaData
	if err := thrift.Unmarshal(new(thrift.CompactProtocol), data[len(body):len(data)-8], &meta); err != nil {
		t.Fatal(err)
	}
	change(&meta)
	footer, err := thrift.Marshal(new(thrift.CompactProtocol), &meta)
	if err != nil {
		t.Fatal(err)
	}
	data = append(body[:len(body):len(body)], footer...)
	return append(binary.LittleEndian.AppendUint32(data, uint32(len(footer))), "PAR1"...)
}

// TestSameNames: a path through a name that two fields share is refused, at every depth, and so is a group that has both;
// other columns of the file are read.
func TestSameNames(t *testing.T) {
	data := withFooter(t, sampleParquet(t, 3), func(meta *pq.FileMetaData) {
		for i := range meta.Schema {
			switch e := &meta.Schema[i]; e.Name {
			case "image":
				e.Name = "text"
			case "content":
				e.Name = "role"
			case "meta":
				e.Name = "tags"
			}
		}
	})
	st, obj := formattest.InMemory(data)
	for column, want := range map[string]string{
		"text":             `column "text": there are two fields named "text"; rename one`,
		"messages[].role":  `column "messages[].role": there are two fields named "role"; rename one`,
		"messages":         `column "messages[]": there are two fields named "role"; rename one`,
		"tags[].key":       `there are two fields named "tags"`,
		"tags.title":       `there are two fields named "tags"`,
		"messages[].calls": "", "n": "", "tokens": "",
	} {
		_, err := formattest.ReadColumns(Format{}, st, obj, []string{column})
		if want == "" && err != nil || want != "" && (fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", column, err, want)
		}
	}
}
