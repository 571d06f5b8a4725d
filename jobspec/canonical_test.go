package jobspec

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// chainsByStep are chains with each step, in the forms that specs have.
var chainsByStep = []string{
	"[{text: '{a} {b?}'}, {tokenize: bytes}]",
	"[{filter: len(text) > 2 and a == 'x'}, {tokenize: {encoding: cl100k_base, ranks: t/c.tiktoken, special: refuse, allow: '<|endoftext|>'}}, {append_eod: }]",
	"[{tokenize: {file: m/tokenizer.json, post_processor: skip, refuse: [b, a, b]}}, {append_eod: 2}, {filter: tokens() > 3}]",
	"[{tokenize: {file: m/tokenizer.json, post_processor: apply, special: text}}]",
	"[{tokens: 'ids[]'}, {loss_mask: m}, {append_eod: 7}]",
	"[{chat: {}}, {tokenize: {file: m/tokenizer.json}}]",
	"[{chat: {messages: c, tools: t, template: x.jinja, train_on: last, variables: a=1, date: 2026-11-03}}, {tokenize: bytes}]",
	"[{tokenize: bytes}, {image: {columns: [jpg, 'more[].png'], token: 300, begin: 301, end: 302, max_images: 3, decode: loader, verify: true}}, {append_eod: {}}]",
	"[{python: 'a.b:c'}, {tokenize: bytes}]",
	"[{python: 'a.b:c'}, {text: '{text}!'}, {python: {function: 'd:e', path: lib, interpreter: .venv/bin/python, timeout: 5, memory: 1Gi, batch_bytes: 64Ki}}, {tokenize: bytes}]",
	"[{normalize: nfkc}, {replace: {pattern: '\\s+', with: ' '}}, {replace: {pattern: x}}, {tokenize: bytes}]",
	"",
	"[{limit: 10k}, {filter: a > 1}, {tokenize: bytes}]",
}

// TestCanonicalSteps: how a chain is printed, and the identity that follows from that, stay for ever.
func TestCanonicalSteps(t *testing.T) {
	var got bytes.Buffer
	for _, chain := range chainsByStep {
		if chain != "" {
			chain = ", transforms: " + chain
		}
		job, findings := Parse("f", []byte("name: a\nsources: [{name: s, files: x.jsonl"+chain+"}]\nbatch: {sequence_length: 8, sequences: 1}\n"), "/d", Env(noEnv))
		if err := findings.Err(); err != nil {
			t.Fatal(chain, err)
		}
		printed := job.YAML()
		from, to := bytes.Index(printed, []byte("    transforms:\n")), bytes.Index(printed, []byte("    long:\n"))
		fmt.Fprintf(&got, "%sidentity %x\n\n", printed[from:to], job.Identity())
	}
	path := filepath.Join("testdata", "canonical.txt")
	if *rewrite {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%v\n%s", err, got.Bytes())
	}
}
