package cli

import (
	"fmt"
	"strings"
	"testing"
)

// TestRecordsWithoutSample: records that are too long or have no token are findings, filtered ones are not.
func TestRecordsWithoutSample(t *testing.T) {
	t.Parallel()
	texts := records(7, `{"text": "number %d"}`) + records(2, `{"text": "`+strings.Repeat("long ", 40)+`%d"}`) + `{"text": ""}` + "\n"
	for steps, says := range map[string]string{
		"transforms: [{tokenize: bytes}]\n    long: drop": "warning: sources[0]: 3 of the first 10 records give no sample: 2 too long, 1 empty, " +
			"write long: split or truncate, or a larger batch.sequence_length; mend the records without a token, or leave them out by a filter",
		"transforms: [{tokenize: bytes}]":                                        "warning: sources[0]: 1 of the first 10 records give no sample: 0 too long, 1 empty, mend",
		"transforms: [{filter: text != '' and len(text) < 50}, tokenize: bytes]": "",
	} {
		dir := folder(t, words("texts.jsonl", steps)...)
		put(t, dir, "texts.jsonl", texts)
		r := millrace(t, dir, "lint", "job.yaml", "--read", "100")
		if r.code != 0 || !strings.Contains(r.stderr, says) || says == "" && r.stderr != "" {
			t.Errorf("%s: exit code %d\n%s\nwant %s", steps, r.code, r.stderr, says)
		}
	}
}

// records are n lines, each with its number.
func records(n int, line string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, line+"\n", i)
	}
	return b.String()
}
