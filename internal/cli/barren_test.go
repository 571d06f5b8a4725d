package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNoRows: a source without a record is found by every verb, whatever its format; a row group, a batch or a blank line
// is not a record. zero.parquet and zero.arrow were written by pyarrow.
func TestNoRows(t *testing.T) {
	t.Parallel()
	files := map[string][]byte{"zero.jsonl": []byte("\n\n"), "zero.json": []byte("[]")}
	for _, name := range []string{"zero.parquet", "zero.arrow"} {
		data, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = data
	}
	for name, data := range files {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t, words(name)...)
			put(t, dir, name, data)
			const empty = `source "words" is empty: its 1 files (`
			for _, args := range [][]string{{"lint", "job.yaml"}, {"lint", "job.yaml", "--read", "5"}, {"prepare", "job.yaml", "--out", "out", "--source", "words"}} {
				r := millrace(t, dir, args...)
				r.expect(t, exitUser, empty, "hold no record; name files with data")
				if strings.Contains(r.stdout, "files:") {
					t.Errorf("%v prints an entry: %s", args, r.stdout)
				}
			}
			for _, verb := range []string{"run", "plan", "reference"} {
				millrace(t, dir, verb, "job.yaml").expect(t, exitUser, `"words" gave no sample in a whole epoch: in 1 of its 1 blocks 0 records gave none`, "its files hold no record")
			}
			// What prepare left behind does not keep it from records that come later.
			put(t, dir, "job.yaml", strings.Replace(good, "words/*.jsonl", "later.jsonl", 1))
			put(t, dir, "later.jsonl", lines(3))
			millrace(t, dir, "prepare", "job.yaml", "--out", "out", "--source", "words").expect(t, 0)
		})
	}
}

// TestFirstRowsMissing: lint reads the first record there is, also behind row groups and files that have none.
func TestFirstRowsMissing(t *testing.T) {
	t.Parallel()
	dir := folder(t, words("data/*.parquet")...)
	zero, err := os.ReadFile("testdata/zero.parquet")
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, "data/0.parquet", zero)
	put(t, dir, "data/1.parquet", parquetOf(t, 3))
	millrace(t, dir, "lint", "job.yaml").expect(t, 0)
	millrace(t, dir, "reference", "job.yaml", "--steps", "1").expect(t, 0)
}

// TestNoSamples: what became of the records of a source that gives nothing, and what to do, the reference says as a run does;
// prepare, which has no blocks, says it in its own words.
func TestNoSamples(t *testing.T) {
	t.Parallel()
	transforms := func(steps string) string { return `transforms: [{text: "{text}"}, ` + steps + `{tokenize: bytes}]` }
	barren := regexp.MustCompile(`source "words" gave no sample in a whole epoch: [^\n]*`)
	for name, c := range map[string]struct {
		data, more string
		says       string
		prepare    string // "" where it gives documents, as it leaves their length alone
	}{
		"filtered": {lines(20), transforms("{filter: len(text) > 100000}, "), "20 filtered out", "20 were filtered out, 0 empty, 0 bad; look at its filter"},
		"too long": {lines(20), transforms("") + "\n    long: drop", "20 dropped as too long", ""},
		"empty":    {strings.Repeat("{\"text\": \"\"}\n", 9), transforms(""), "9 empty", "9 empty, 0 bad; a record's text is its column `text`"},
		"bad": {strings.Repeat("{\"text\": 17,\n", 9), transforms("") + "\n    bad_records: {policy: skip, limit: 90}", "9 bad; the bad records: ",
			"9 bad; the bad records are in "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			edits := words("data.jsonl", c.more)
			if name == "too long" {
				edits = append(edits, "sequence_length: 128", "sequence_length: 2")
			}
			dir := folder(t, edits...)
			put(t, dir, "data.jsonl", c.data)
			run, reference := millrace(t, dir, "run", "job.yaml"), millrace(t, dir, "reference", "job.yaml")
			run.expect(t, exitUser, c.says)
			reference.expect(t, exitUser, c.says)
			if want, got := barren.FindString(run.stderr), barren.FindString(reference.stderr); want != got || want == "" {
				t.Errorf("a run says\n%s\nand the reference\n%s", want, got)
			}
			if c.prepare == "" {
				return
			}
			r := millrace(t, dir, "prepare", "job.yaml", "--out", "out", "--source", "words")
			r.expect(t, exitUser, `source "words" gave no document`, c.prepare)
			if _, err := os.Stat(filepath.Join(dir, "out/words/_prepare.jsonl")); err == nil || strings.Contains(r.stdout, "files:") {
				t.Errorf("it leaves a manifest, or prints an entry: %s", r.stdout)
			}
		})
	}
}
