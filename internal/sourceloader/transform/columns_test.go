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
