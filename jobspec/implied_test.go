package jobspec

import (
	"slices"
	"strings"
	"testing"
)

// TestStepField: steps have the numbers that they have in the spec.
func TestStepField(t *testing.T) {
	for _, c := range []struct{ transforms, want string }{
		{"[filter: n > 1, tokenize: bytes]", "transforms transforms[0].filter transforms[1].tokenize"},
		{"[limit: 3, filter: n > 1, tokenize: bytes]", "transforms[0].limit transforms transforms[1].filter transforms[2].tokenize"},
		{"[filter: n > 1, text: '{a}', tokenize: bytes]", "transforms[0].filter transforms[1].text transforms[2].tokenize"},
	} {
		s := mustParse(t, "name: j\nsources: [{name: a, files: a.jsonl, transforms: "+c.transforms+"}]\nbatch: {sequence_length: 8, sequences: 1}\n").Sources[0]
		var got []string
		for k := range s.Transforms {
			got = append(got, s.StepField(k))
		}
		if all := strings.Join(got, " "); all != c.want {
			t.Errorf("%s: %s, want %s", c.transforms, all, c.want)
		}
	}
}

// written is the job once its spec is printed: it leaves no step to the default.
func written(job *Job) *Job {
	own := *job
	own.Sources = slices.Clone(job.Sources)
	for i := range own.Sources {
		own.Sources[i].Implied = 0
	}
	return &own
}
