package jobspec

import (
	"reflect"
	"strings"
	"testing"
)

// TestOperators: each entry is whole, its example is a chain that has such a step, and the step
// comes back from its fields.
func TestOperators(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range Operators() {
		step := o.New()
		if step.Operator() != o.Name || OperatorOf(o.Name) != o || seen[o.Name] {
			t.Errorf("%s: its step is of %q", o.Name, step.Operator())
		}
		seen[o.Name] = true
		for _, text := range []string{o.Doc, o.Rules} {
			if !strings.HasSuffix(text, ".") {
				t.Errorf("%s: %q is no sentence", o.Name, text)
			}
		}
		job, findings := Parse("f", []byte("name: a\nsources: [{name: s, files: x.jsonl, transforms: "+o.Example+"}]\nbatch: {sequence_length: 8, sequences: 1}\n"), "/d")
		if findings != nil {
			t.Errorf("%s: its example: %v", o.Name, findings)
			continue
		}
		found := false
		for _, step := range job.Sources[0].Transforms {
			name, fields := MarshalStep(step)
			if back, err := UnmarshalStep(name, fields); err != nil || !reflect.DeepEqual(back, step) {
				t.Errorf("%s: %#v comes back as %#v, %v", o.Name, step, back, err)
			}
			found = found || name == o.Name
		}
		if !found {
			t.Errorf("%s: its example has none: %s", o.Name, o.Example)
		}
		if first := job.Sources[0].Transforms[0].Operator(); strings.HasPrefix(o.Rules, "The first step of a chain.") && first != o.Name {
			t.Errorf("%s: a %s step comes before it: %s", o.Name, first, o.Example)
		}
	}
}

// TestUnmarshalStep: what another version may say is an error.
func TestUnmarshalStep(t *testing.T) {
	for _, row := range []struct{ name, fields, want string }{
		{"replase", `{}`, `did you mean "replace"`},
		{"replace", `{"Flags":"i"}`, "of another version"},
		{"replace", `null`, "of another version"},
		{"normalize", `{}`, "of another version"},
	} {
		if step, err := UnmarshalStep(row.name, []byte(row.fields)); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s %s is %#v, %v; want %q", row.name, row.fields, step, err, row.want)
		}
	}
}
