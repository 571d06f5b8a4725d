package sourceloader

import (
	"context"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// scored gives each record a score and a language.
type scored struct{}

func (scored) Call(_ context.Context, in *format.Batch) (*format.Batch, []int32, error) {
	var out format.Batch
	var from []int32
	for i := range in.Len() {
		row, part := in.Key(i)
		out.Add(&format.Record{Row: row, Part: part, Values: []format.Value{{Kind: format.Float, Float: 1}, {Kind: format.String, Bytes: []byte("en")}}})
		from = append(from, int32(i))
	}
	return &out, from, nil
}

// TestCheckNames: what is wrong with a name is said at the step that has it, and what functions before it give is among
// the names that are there.
func TestCheckNames(t *testing.T) {
	var files store.Memory
	files.Put("d/a.parquet", parquetFile(t))
	files.Put("d/a.jsonl", []byte(`{"text": "x", "n": 1}`+"\n"))
	files.Put("d/a.json", []byte(`[{"text": "x", "n": 1}]`+"\n"))
	open := func(uint64, *jobspec.Source, int) (*transform.Function, error) {
		return &transform.Function{
			Name: "t:f", Kind: transform.MapFunction, In: []transform.Column{{Name: "text", Kind: format.String}},
			Out: []transform.Column{{Name: "score", Kind: format.Float}, {Name: "lang", Kind: format.String}}, Caller: scored{},
		}, nil
	}
	const python = "python: {function: 't:f'}"
	for _, c := range []struct{ file, steps, want string }{
		{"a.parquet", python + ", filter: scor > 3", `transforms[1].filter: *there is no column "scor"; the file has text; functions before the step give score, lang: did you mean "score"?`},
		{"a.parquet", "filter: scor > 3, " + python, `transforms[0].filter: *there is no column "scor"; the file has text`},
		{"a.parquet", python + ", text: '{txet} {lang}'", `transforms[1].text: *there is no column "txet"; did you mean "text"? The file has text; functions before the step give score, lang`},
		{"a.parquet", python + " keep languages", `keep: *there is no column "languages"; the file has text; functions before the step give score, lang: did you mean "lang"?`},
		{"a.jsonl", python + ", text: '{txet} {lang}'", `transforms[1].text: *no field "txet"; did you mean "text"? (its fields are lang, n, score, text)`},
		{"a.jsonl", python + ", text: '{scor}'", `transforms[1].text: *no field "scor"; did you mean "score"? (its fields are lang, n, score, text)`},
		{"a.jsonl", "text: '{scor}', " + python, `transforms[0].text: *no field "scor" (its fields are n, text)`},
		{"a.jsonl", python + ", filter: scor > 3", `warning transforms[1].filter: the first record has no field "scor"; did you mean "score"? (its fields are lang, n, score, text)`},
		{"a.jsonl", "filter: txt > 3", `warning transforms[0].filter: the first record has no field "txt"; did you mean "text"? (its fields are n, text)`},
		{"a.jsonl", "filter: scor > 3, " + python, ""}, // where no other name is near, records may have it now and then
		{"a.jsonl", python + ", text: '{scor?}{text}'", ""},
		{"a.jsonl", python + ", filter: text.len > 3", `transforms[1].filter: *source "s": /d/a.jsonl:1: (byte 0) field "text.len": "text" is a string and has no field "len": correct the name in the spec, or fix the record; to leave such records out, set bad_records.policy: skip`},
		{"a.json", "filter: n > 0, text: '{text[].x}'", `transforms[1].text: *source "s": /d/a.json: element 0 (byte 1): field "text[].x": "text" is a string and no list: correct the name in the spec, or fix the record; to leave`},
		{"a.jsonl", "filter: n > 0 keep n.x", `keep: *field "n.x": "n" is a number and has no field "x"`},
	} {
		steps, keep, _ := strings.Cut(c.steps, " keep ")
		job, findings := jobspec.Parse("j.yaml", []byte("name: j\nsources: [{name: s, files: /d/"+c.file+", keep: ["+keep+"], transforms: ["+steps+", tokenize: bytes]}]\nbatch: {sequence_length: 16, sequences: 1}\n"), "/")
		if err := findings.Err(); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, f := range Check(t.Context(), &files, job, 0, transform.NewShared(1, open)) {
			if f.Warning {
				got += "warning "
			}
			got += f.Field + ": " + f.Message
		}
		begin, end, two := strings.Cut(c.want, "*")
		if !two {
			end = begin
		}
		if !strings.HasPrefix(got, begin) || !strings.Contains(got, end) || c.want == "" && got != "" {
			t.Errorf("%s of %s: %s\nwant %s", c.steps, c.file, got, c.want)
		}
		if strings.Contains(got, "functions before") != strings.Contains(c.want, "functions before") {
			t.Errorf("%s of %s: %s", c.steps, c.file, got)
		}
	}
}
