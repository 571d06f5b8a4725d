package jobspec

import "testing"

// TestDefaultTextAfterFunctions: the text that a chain takes without saying so is that which
// the last function leaves.
func TestDefaultTextAfterFunctions(t *testing.T) {
	job, findings := Parse("f", []byte("name: a\nsources:\n  - {name: s, files: x.jsonl, transforms: [{text: '{a}'}, {python: 'a:b'}, {text: '{text}!'}, {python: a.b:c.d}, {tokenize: bytes}]}\n"+
		"  - {name: t, files: x.jsonl, transforms: [{filter: n > 1}, {python: 'a:b'}, {filter: n > 2}, {tokenize: bytes}]}\nmix: {weights: {s: 1, t: 1}}\nbatch: {sequence_length: 8, sequences: 1}\n"), "/d")
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	if steps := job.Sources[0].Transforms; len(steps) != 5 || steps[2] != Text("{text}!") {
		t.Errorf("a chain with texts became %+v", steps)
	}
	if steps := job.Sources[1].Transforms; len(steps) != 5 || steps[2] != Text("{text}") || steps[1].(*Python).Path != "." || steps[1].(*Python).Interpreter != "python3" {
		t.Errorf("a chain without a text became %+v", steps)
	}
	if p := job.ResolvedSources()[0].Transforms[1].(*Python); p.Path != "/d/." || p.Interpreter != "python3" {
		t.Errorf("its function is resolved to %+v", p)
	}
}
