package transform

import (
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/jobspec"
)

// TestColumnTypes: what a function gives is compared with what later steps take, before a record is read.
func TestColumnTypes(t *testing.T) {
	given := func(c Column) Function {
		return Function{Name: "m:f", Kind: MapFunction, In: []Column{{Name: "a", Kind: format.Null, Null: true}}, Out: []Column{c}}
	}
	list := func(name string, of format.Kind) Column { return Column{Name: name, Kind: format.List, Element: of} }
	type steps = []jobspec.Transform
	for name, test := range map[string]struct {
		out  Column
		next steps
		keep []string
		want string // "": it compiles
	}{
		"ids are no text":       {list("text", format.Tokens), steps{tokenizeBytes}, nil, `transforms[1].tokenize: needs column "text" to be a text, a number or a list of such, and transforms[0].python (function m:f) gives it as a list, each element token ids`},
		"token ids in template": {Column{Name: "ids", Kind: format.Tokens}, steps{text("{a}{ids}"), tokenizeBytes}, nil, `needs column "ids"`},
		"a text is no id":       {Column{Name: "ids", Kind: format.String}, steps{ids("ids")}, nil, `needs column "ids" to be token ids or a list of integers`},
		"texts are no ids":      {list("ids", format.String), steps{ids("ids")}, nil, "gives it as a list, each element a text"},
		"a number is no mask":   {Column{Name: "m", Kind: format.Int}, steps{ids("t"), lossMask("m")}, nil, `transforms[2]`},
		"a text is no image":    {Column{Name: "jpg", Kind: format.String}, steps{tokenizeBytes, imageStepOf(fourPixels("jpg"))}, nil, "bytes or a list of them"},
		"a list is not kept":    {list("l", format.Int), steps{tokenizeBytes}, []string{"l"}, `keep[0]: needs column "l"`},
		"integers are ids":      {list("ids", format.Int), steps{ids("ids")}, nil, ""},
		"any":                   {Column{Name: "ids", Null: true}, steps{ids("ids")}, nil, ""},
		"list of any":           {Column{Name: "ids", Kind: format.List}, steps{ids("ids")}, nil, ""},
		"a number in a text":    {Column{Name: "text", Kind: format.Int}, steps{tokenizeBytes}, nil, ""},
		"not the column":        {Column{Name: "ids", Kind: format.Tokens}, steps{text("{a}"), tokenizeBytes}, nil, ""},
		"made text since":       {Column{Name: "text", Kind: format.Tokens}, steps{text("{a}"), text("{text}!"), tokenizeBytes}, nil, ""},
	} {
		src := jobspec.Source{Name: "s", Transforms: append(steps{python("m:f")}, test.next...), Keep: test.keep}
		shared := NewShared(0, func(uint64, *jobspec.Source, int) (*Function, error) { f := given(test.out); return &f, nil })
		_, err := Compile(src, 8, shared)
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.want != "" && (fault.ClassOf(err) != fault.User || err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}

// TestColumnsBetweenFunctions: of a function's types, those are refused that no value of the other's fits.
func TestColumnsBetweenFunctions(t *testing.T) {
	for _, row := range []struct {
		gives, takes Column
		ok           bool
	}{
		{Column{Kind: format.String}, Column{Kind: format.Bytes}, true},
		{Column{Kind: format.Int}, Column{Kind: format.Float}, true},
		{Column{Kind: format.Float}, Column{Kind: format.Int}, false},
		{Column{Kind: format.Tokens}, Column{Kind: format.List, Element: format.Int}, true},
		{Column{Kind: format.Tokens}, Column{Kind: format.List, Element: format.Float}, true},
		{Column{Kind: format.Tokens}, Column{Kind: format.List, Element: format.String}, false},
		{Column{Kind: format.List, Element: format.Int}, Column{Kind: format.Tokens}, true},
		{Column{Kind: format.Bool}, Column{}, true},
		{Column{}, Column{Kind: format.Bool}, true},
	} {
		row.gives.Name, row.takes.Name = "x", "x"
		shared := NewShared(0, func(_ uint64, _ *jobspec.Source, step int) (*Function, error) {
			f := Function{Name: "m:f", Kind: MapFunction, Out: []Column{row.gives}}
			if step == 1 {
				f.Kind, f.In, f.Out = FilterFunction, []Column{row.takes}, nil
			}
			return &f, nil
		})
		_, err := Compile(jobspec.Source{Name: "s", Transforms: []jobspec.Transform{python("m:f"), python("m:g"), tokenizeBytes}}, 8, shared)
		if (err == nil) != row.ok {
			t.Errorf("%v for %v: %v", row.gives, row.takes, err)
		}
	}
}

// TestColumnsWithin: a column that a function gave is there behind one that gives the column on its path, and each element
// of a list that is given is the list. Of a column that was replaced nothing else can be named.
func TestColumnsWithin(t *testing.T) {
	mp4 := Column{Name: "mp4", Kind: format.Bytes, Null: true}
	probe := Function{Name: "mp4", Kind: MapFunction, In: []Column{mp4}, Out: []Column{{Name: "mp4.seconds", Kind: format.Float}},
		Caller: rows(func(in []format.Value) ([][]format.Value, error) {
			return [][]format.Value{{floatOf(float64(len(in[0].Bytes)))}}, nil
		})}
	frames := Function{Name: "mp4", Kind: MapFunction, In: []Column{mp4}, Out: []Column{mp4}, Caller: rows(func([]format.Value) ([][]format.Value, error) {
		return [][]format.Value{{bytesOf("array")}}, nil
	})}
	shared := NewShared(1, func(seed uint64, src *jobspec.Source, step int) (*Function, error) {
		var f Function
		switch src.Transforms[step].(type) {
		case *jobspec.Probe:
			f = probe
		case *jobspec.Frames:
			f = frames
		default:
			return opened(seed, src, step)
		}
		return &f, nil
	})
	type steps = []jobspec.Transform
	measure, replace := &jobspec.Probe{Column: "mp4"}, &jobspec.Frames{Pixels: jobspec.Pixels{Column: "mp4"}}
	for _, c := range []struct {
		steps steps
		want  string
	}{
		{steps{measure, replace, text("{mp4.seconds} s of {mp4}")}, "5 s of array"},
		{steps{measure, replace, python("upper"), replace, text("{mp4.seconds} s of {text}")}, "5 s of AB"},
		{steps{replace, measure, text("{mp4.seconds} s")}, "5 s"},
		{steps{python("ids"), text("{ids[]}|{ids}")}, "97\n98|97\n98"},
		{steps{python("ids"), ids("ids[]")}, "ab"},
		{steps{measure, replace, text("{mp4.fps}")}, `transforms[2].text: column "mp4.fps" is inside of "mp4", in whose place transforms[1].frames puts something else: only a step before that one, such as text, can take it`},
		{steps{measure, replace, text("{mp4.second}")}, `can take it; did you mean "mp4.seconds"?`},
		{steps{python("ids"), text("{ids[][]}")}, `column "ids[][]" is inside of "ids", which transforms[0].python (function ids) gives: `},
		{steps{python("words"), text("{at[]}")}, `column "at[]" is inside of "at"`},
	} {
		if _, of := c.steps[len(c.steps)-1].(jobspec.Tokens); !of {
			c.steps = append(c.steps, tokenizeBytes)
		}
		got := ""
		chain, err := Compile(jobspec.Source{Name: "s", Transforms: c.steps}, 100, shared)
		if err == nil {
			var samples []Sample
			samples, _, err = collect(chain.Worker(), recordFor(chain, 1, columns{"text": stringOf("ab"), "mp4": bytesOf("video")}))
			for _, s := range samples {
				got += textOf(s.Tokens)
			}
		}
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%v: %s, want %s", c.steps, got, c.want)
		}
	}
}
