package formats_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/formats"
)

func ExampleInputOf() {
	in, _ := formats.InputOf("/data/shard-0001.TAR.gz")
	fmt.Println(in.Name, "is", in.Doc)
	fmt.Println(formats.Accepts(formats.JSONL, "/data/export.json"))
	// Output:
	// webdataset is tar shards, members of one key a sample
	// true
}
