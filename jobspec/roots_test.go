package jobspec

import (
	"fmt"
	"strings"
	"testing"
)

// TestSourceThatJoins: what a source that joins may reach of the machines that read it.
func TestSourceThatJoins(t *testing.T) {
	dir := t.TempDir()
	call := `{call: {url: "http://models:8000/score", request: '{"inputs": "{text}"}', give: {column: q, type: float, at: score}, token_env: MODEL_TOKEN, answers: ledger}}`
	job, findings := Parse("job.yaml", fmt.Appendf(nil, `
name: joins
sources: [{name: web, files: data/*.jsonl, transforms: [%s, {tokenize: bytes}]}]
batch: {sequence_length: 64, sequences: 4}
`, call), dir)
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{"", "", ""},
		{"answers: ledger", `answers: "file://` + dir + `/other"`, ""},
		{"8000/score", "8000/other", ""},
		{", token_env: MODEL_TOKEN", "", ""},
		{"answers: ledger", `answers: "file:///outside/ledger"`, "/outside/ledger is outside of the folders"},
		{"answers: ledger", `answers: "file://` + dir + `/%2e%2e/ledger"`, "is outside of the folders"},
		{"answers: ledger", `answers: "s3://bucket/ledger"`, "s3://bucket/ledger is outside of the folders"},
		{"answers: ledger", "answers: /outside/ledger", "/outside/ledger is outside of the folders"},
		{"models:8000", "models:9000", "no call step of the job spec asks http://models:9000 with the token in MODEL_TOKEN"},
		{"http://models", "https://models", "no call step of the job spec asks https://models:8000"},
		{"token_env: MODEL_TOKEN", "token_env: AWS_SECRET_ACCESS_KEY", "with the token in AWS_SECRET_ACCESS_KEY"},
		{"data/b.jsonl", "data/${SECRET}.jsonl", "has a ${variable}"},
		{"data/b.jsonl", "data/${SECRET:-b}.jsonl", "has a ${variable}"},
		{"data/b.jsonl", `data/\u0024{SECRET}.jsonl`, "has a ${variable}"},
		{"data/b.jsonl", "data/$$${SECRET}.jsonl", "has a ${variable}"},
		{"data/b.jsonl", "data/$${SECRET}.jsonl", ""},
	} {
		entry := fmt.Sprintf(`{name: more, files: "data/b.jsonl", transforms: [%s, {tokenize: bytes}]}`, call)
		s, findings := ParseSource(job, []byte(strings.Replace(entry, c.old, c.new, 1)), NoVariables())
		err := findings.Err()
		if err == nil {
			err = job.CheckRoots(s, job.Roots())
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q for %q: %v, want %q", c.new, c.old, err, c.want)
		}
	}
}

// TestRootsOfCode: where a job has its Python modules and interpreters, no data of a source that joins is read from, and
// its functions may be.
func TestRootsOfCode(t *testing.T) {
	dir := t.TempDir()
	python := "{python: {function: 'clean:strip', path: /code/modules, interpreter: /code/venv/bin/python}}"
	job, findings := Parse("job.yaml", fmt.Appendf(nil, `
name: joins
sources: [{name: web, files: [/data/web/*.jsonl, more.jsonl], transforms: [%s, {tokenize: {file: /models/tokenizer.json}}]}]
batch: {sequence_length: 64, sequences: 4}
`, python), dir)
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	for entry, good := range map[string]bool{
		"{name: n, files: b.jsonl, transforms: [" + python + ", {tokenize: bytes}]}":                                                                  true,
		"{name: n, files: /data/web/b.jsonl, transforms: [" + python + ", {tokenize: {file: /models/tokenizer.json}}]}":                               true,
		"{name: n, files: b.jsonl, transforms: [{python: {function: 'other:f', path: /code/modules/more}}, {tokenize: bytes}]}":                       true,
		"{name: n, files: b.jsonl, transforms: [{python: {function: 'other:f'}}, {tokenize: bytes}]}":                                                 true,
		"{name: n, files: b.jsonl, transforms: [{python: {function: 'other:f', path: /code}}, {tokenize: bytes}]}":                                    false,
		"{name: n, files: b.jsonl, transforms: [{python: {function: 'f:f', interpreter: /usr/bin/python3}}, {tokenize: bytes}]}":                      false,
		"{name: n, files: /code/venv/bin/activate, format: text}":                                                                                     false,
		"{name: n, files: /code/modules/b.jsonl}":                                                                                                     false,
		"{name: n, files: /models/tokenizer.json, format: text}":                                                                                      true,
		"{name: n, files: b.jsonl, transforms: [{tokenize: {file: /code/modules/tokenizer.json}}]}":                                                   false,
		"{name: n, files: b.jsonl, transforms: [{chat: {messages: c, template: /code/modules/t.jinja}}, {tokenize: {file: /models/tokenizer.json}}]}": false,
	} {
		s, findings := ParseSource(job, []byte(entry))
		if err := findings.Err(); err != nil {
			t.Fatalf("%s: %v", entry, err)
		}
		if err := job.CheckRoots(s, job.Roots()); (err == nil) != good {
			t.Errorf("%s: %v", entry, err)
		}
		if err := job.CheckRoots(s, RootsAt([]string{"/"})); err != nil {
			t.Errorf("%s, with every folder allowed: %v", entry, err)
		}
	}
}

// TestAnswersInBuckets: a ledger of a source that joins lies where the job's own does, in the same store.
func TestAnswersInBuckets(t *testing.T) {
	source := func(answers string) string {
		return fmt.Sprintf(`{name: web, files: data/b.jsonl, transforms: [{call: {url: "http://models:8000/score", request: '{"inputs": "{text}"}', give: {column: q, type: float, at: score}, answers: %q}}, {tokenize: bytes}]}`, answers)
	}
	for own, asked := range map[string]map[string]bool{
		"s3://bucket": {
			"s3://bucket": true, "s3://bucket/more": true, "S3://bucket/more/": true, "s3://bucket2": false, "s3://other/bucket": false, "s3://other/../bucket": false,
			"s3://bucket?endpoint=elsewhere:1": false, "s3://bucket/more?endpoint=elsewhere:1": false,
		},
		"s3://bucket/ledger": {"s3://bucket/ledger/more": true, "s3://bucket/ledger2": false, "s3://bucket/ledger/../other": false, "s3://bucket/ledger/%2e%2e/other": false, "s3://bucket": false},
		"s3://bucket/ledger?endpoint=store:9000": {
			"s3://bucket/ledger?endpoint=store:9000": true, "s3://bucket/ledger/more?endpoint=store:9000": true, "s3://bucket/ledger": false, "s3://bucket/ledger?endpoint=elsewhere:1": false,
		},
	} {
		job, findings := Parse("job.yaml", fmt.Appendf(nil, "name: joins\nsources: [%s]\nbatch: {sequence_length: 64, sequences: 4}\n", source(own)), t.TempDir())
		if err := findings.Err(); err != nil {
			t.Fatal(err)
		}
		for answers, good := range asked {
			s, findings := ParseSource(job, []byte(source(answers)), NoVariables())
			if err := findings.Err(); err != nil {
				t.Fatal(err)
			}
			if err := job.CheckRoots(s, job.Roots()); (err == nil) != good {
				t.Errorf("%s beside %s: %v", answers, own, err)
			}
		}
	}
}

// TestReshapeRows: a step has as many rows as a job spec may say, and no more.
func TestReshapeRows(t *testing.T) {
	job, findings := Parse("job.yaml", []byte("name: rows\nsources: [{name: web, files: data/*.jsonl}]\nbatch: {sequence_length: 64, sequences: 4}\n"), t.TempDir())
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	for rows, good := range map[int]bool{0: true, 8: true, maxAxis: true, maxAxis + 1: false, 2_000_000_000: false} {
		if err := job.Reshape(64, rows, 1, 1); (err == nil) != good {
			t.Errorf("%d rows: %v", rows, err)
		}
	}
}
