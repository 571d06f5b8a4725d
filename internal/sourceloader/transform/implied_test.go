package transform

import (
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/jobspec"
)

// TestImplied: errors count the steps as the spec has them, without the text step that it leaves to the default,
// whose place among them decides what is drawn all the same.
func TestImplied(t *testing.T) {
	written := jobspec.Source{Transforms: []jobspec.Transform{text("{text}"), where("n > 'a'"), tokenizeBytes}}
	implied := written
	implied.Implied = 1
	for want, src := range map[string]jobspec.Source{"row 3: transforms[1].filter: ": written, "row 3: transforms[0].filter: ": implied} {
		c := mustCompile(t, src, 100)
		_, _, err := collect(c.Worker(), recordFor(c, 3, columns{"text": stringOf("A"), "n": intOf(1)}))
		if fault.ClassOf(err) != fault.User || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	implied.Transforms = []jobspec.Transform{text("{text}"), where("n >"), tokenizeBytes}
	if _, err := Compile(implied, 100, nil); err == nil || !strings.Contains(err.Error(), "transforms[0].filter: ") {
		t.Errorf("a step that does not compile: %v", err)
	}
	c := mustCompile(t, implied0(text("{txet}")), 100)
	if _, _, err := collect(c.Worker(), recordFor(c, 3, columns{"txet": {Absent: true}})); err == nil || !strings.HasPrefix(err.Error(), `row 3: transforms: the record has no field "txet"`) {
		t.Errorf("the step itself: %v", err)
	}
	drawn := pixels(jobspec.Pixels{Crop: []int{4}, CropAt: "random", Flip: 50})
	var crops [2]string
	for i, src := range []jobspec.Source{{Transforms: []jobspec.Transform{text("{text}"), drawn, tokenizeBytes}}, implied0(text("{text}"), drawn)} {
		src.Keep = []string{"jpg"}
		c := mustCompile(t, src, 100)
		crops[i] = string(one(t, c.Worker(), recordFor(c, 1, columns{"text": stringOf("A"), "jpg": picture(gradient(t, 100, 100))})).Extras[0])
	}
	if crops[0] != crops[1] {
		t.Error("that a step is not written changed what is drawn")
	}
}

// implied0 is a source whose first step is not written.
func implied0(steps ...jobspec.Transform) jobspec.Source {
	return jobspec.Source{Implied: 1, Transforms: append(steps, tokenizeBytes)}
}
