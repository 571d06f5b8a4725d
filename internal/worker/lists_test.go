package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/decoders"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// listLines are rows of lists, whose types JSON does not say.
const listLines = `{"tags":["a","b"],"scores":[1,0.5],"more":[1,null]}
{"tags":[],"scores":[1,2],"more":[]}
{"tags":["c"],"scores":[],"more":[3]}
{"tags":[""],"scores":[1099511627776],"more":[null]}
`

type listRow struct {
	Tags   []string   `parquet:"tags,list" json:"tags"`
	Scores []float64  `parquet:"scores,list" json:"scores"`
	More   []*float64 `parquet:"more,list" json:"more"`
}

// applyLists prints what a function of steps makes of the lines on its standard input by millrace.transform.apply.
const applyLists = `
import json, sys
from millrace.transform import apply
import steps
for row in apply(steps.lists, [json.loads(line) for line in sys.stdin]):
    print(row["text"])
`

// TestLists: rows of lists are the same to a function in JSON Lines, in Parquet and by millrace.transform.apply: empty lists and
// those of whole numbers, too.
func TestLists(t *testing.T) {
	e, opt := quiet(t), options(t)
	var rows []listRow
	for line := range strings.Lines(listLines) {
		var row listRow
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	var b bytes.Buffer
	w := parquet.NewGenericWriter[listRow](&b)
	if _, err := w.Write(rows); errors.Join(err, w.Close()) != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(opt.Python, "-c", applyLists)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+strings.Join(opt.Path, ":"))
	cmd.Stdin = strings.NewReader(listLines)
	said, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i, line := range strings.Split(strings.TrimSpace(string(said)), "\n") {
		want = append(want, fmt.Sprintf("%d:%d %q", i, i, line))
	}
	var files store.Memory
	for name, data := range map[string][]byte{"rows.jsonl": []byte(listLines), "rows.parquet": b.Bytes()} {
		files.Put(name, data)
		expect(t, called(t, function(t, e, "lists"), rowsOf(t, &files, name, "tags", "scores", "more")), want...)
		expect(t, called(t, function(t, e, "tagged"), rowsOf(t, &files, name, "tags")), "0:0", "2:2", "3:3")
	}
}

// rowsOf are the records of a file, numbered from 0.
func rowsOf(t *testing.T, files *store.Memory, name string, columns ...string) *format.Batch {
	t.Helper()
	f, err := decoders.ByPath(name)
	if err != nil {
		t.Fatal(err)
	}
	obj, err := files.Stat(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.Open(t.Context(), files, obj, 0, 0, format.Options{Columns: columns})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b := &format.Batch{}
	for {
		rec, err := r.Next()
		if err != nil {
			return b
		}
		rec.Row = int64(b.Len())
		b.Add(rec)
	}
}
