package transform

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/jobspec"
)

func TestCompileErrors(t *testing.T) {
	type steps = []jobspec.Transform
	for name, test := range map[string]struct {
		source jobspec.Source
		want   string
	}{
		"no step":              {jobspec.Source{}, "no step makes tokens: add a tokenize step"},
		"text only":            {jobspec.Source{Transforms: steps{text("{a}")}}, "no step makes tokens"},
		"unknown step":         {jobspec.Source{Transforms: steps{nil}}, "transforms[0]: this version has no such step"},
		"text after tokenize":  {jobspec.Source{Transforms: steps{tokenizeBytes, text("{a}")}}, "transforms[1].text: a text step after the tokens"},
		"two tokenize":         {jobspec.Source{Transforms: steps{tokenizeBytes, tokenizeBytes}}, "a chain has one tokenize or tokens step"},
		"tokens and tokenize":  {jobspec.Source{Transforms: steps{ids("a"), tokenizeBytes}}, "a chain has one tokenize or tokens step"},
		"eod first":            {jobspec.Source{Transforms: steps{eod(-1), tokenizeBytes}}, "put it after the tokenize or tokens step"},
		"eod without encoding": {jobspec.Source{Transforms: steps{ids("a"), eod(-1)}}, "append_eod needs an id here"},
		"mask of a text":       {jobspec.Source{Transforms: steps{tokenizeBytes, lossMask("m")}}, "put it after a tokens step"},
		"no shape":             {jobspec.Source{Transforms: steps{&jobspec.Pixels{Column: "jpg", Resize: "exact"}, tokenizeBytes}}, "transforms[0].pixels: size is 0 x 0 pixels"},
		"no mean":              {jobspec.Source{Transforms: steps{&jobspec.Pixels{Column: "jpg", Mean: []string{"x"}}, tokenizeBytes}}, `mean: "x" is not a number`},
		"sound first":          {jobspec.Source{Transforms: steps{waveform(jobspec.Waveform{Token: 9, SamplesPerToken: 1}), tokenizeBytes}}, "put it after the tokenize or tokens step"},
		"sound after eod":      {jobspec.Source{Transforms: steps{tokenizeBytes, eod(1), waveform(jobspec.Waveform{Token: 9, SamplesPerToken: 1})}}, "comes before append_eod"},
		"no samples a token":   {jobspec.Source{Transforms: steps{tokenizeBytes, waveform(jobspec.Waveform{Token: 9})}}, "samples_per_token is 0"},
		"rate":                 {jobspec.Source{Transforms: steps{tokenizeBytes, waveform(jobspec.Waveform{Rate: 1 << 20})}}, "rate is 1048576"},
		"mask first":           {jobspec.Source{Transforms: steps{lossMask("m"), ids("a")}}, "put it after a tokens step"},
		"mask after eod":       {jobspec.Source{Transforms: steps{ids("a"), eod(1), lossMask("m")}}, "comes before append_eod"},
		"two masks":            {jobspec.Source{Transforms: steps{ids("a"), lossMask("m"), lossMask("m")}}, "a chain has one loss_mask or chat step"},
		"tokens too early":     {jobspec.Source{Transforms: steps{where("tokens() > 1"), tokenizeBytes}}, "there are no tokens yet"},
		"bad filter":           {jobspec.Source{Transforms: steps{where("len(text) >"), tokenizeBytes}}, "transforms[0].filter: filter, column 12 (the end): expected a value"},
		"bad path in filter":   {jobspec.Source{Transforms: steps{where("`a..b` == 1"), tokenizeBytes}}, "field path"},
		"bad path in template": {jobspec.Source{Transforms: steps{text("{a..b}"), tokenizeBytes}}, "field path"},
		"bad path of tokens":   {jobspec.Source{Transforms: steps{ids("a.")}}, "field path"},
		"bad path in keep":     {jobspec.Source{Transforms: steps{tokenizeBytes}, Keep: []string{"jpg", ""}}, "keep[1]: "},
		"kept twice":           {jobspec.Source{Transforms: steps{tokenizeBytes}, Keep: []string{"jpg", "jpg"}}, `keep[1]: column "jpg" is named twice`},
		"no field":             {jobspec.Source{Transforms: steps{text("body"), tokenizeBytes}}, "write {body} for a field"},
		"no field in words":    {jobspec.Source{Transforms: steps{text("{{a}} b"), tokenizeBytes}}, "write {text} for a field"},
		"open brace":           {jobspec.Source{Transforms: steps{text("a{b"), tokenizeBytes}}, "byte 1: { is not closed"},
		"open brace twice":     {jobspec.Source{Transforms: steps{text("{a{b}"), tokenizeBytes}}, "byte 0: { is not closed"},
		"close brace":          {jobspec.Source{Transforms: steps{text("{a} }"), tokenizeBytes}}, "byte 4: } without {"},
		"empty field":          {jobspec.Source{Transforms: steps{text("{}"), tokenizeBytes}}, "{} names no field"},
		"space in field":       {jobspec.Source{Transforms: steps{text("{ a }"), tokenizeBytes}}, "{ a } names no field"},
		"unknown encoding":     {jobspec.Source{Transforms: steps{&jobspec.Tokenize{Encoding: "gpt9"}}}, "gpt9"},
		"no rank file":         {jobspec.Source{Transforms: steps{&jobspec.Tokenize{Encoding: "cl100k_base", Ranks: "none/such"}}}, "none/such"},
		"ranks without name":   {jobspec.Source{Transforms: steps{&jobspec.Tokenize{Ranks: "a.tiktoken"}}}, "takes no rank file"},
		"unknown rule":         {jobspec.Source{Transforms: steps{tokenizeBytes}, Long: jobspec.Long{Rule: "cut"}}, "long: rule \"cut\": valid are split, truncate, drop"},
		"long max":             {jobspec.Source{Transforms: steps{tokenizeBytes}, Long: jobspec.Long{Max: 11}}, "max is 11 tokens; valid are 1 to 10"},
		"negative max":         {jobspec.Source{Transforms: steps{tokenizeBytes}, Long: jobspec.Long{Max: -1}}, "max is -1 tokens"},
	} {
		test.source.Name = "web"
		_, err := Compile(test.source, 10, nil)
		if err == nil || !strings.Contains(err.Error(), test.want) || fault.ClassOf(err) != fault.User ||
			!strings.HasPrefix(err.Error(), `source "web": `) {
			t.Errorf("%s: got %v (class %v), want a user error of source web with %q", name, err, fault.ClassOf(err), test.want)
		}
	}
	if _, err := Compile(jobspec.Source{Transforms: steps{tokenizeBytes}}, 0, nil); err == nil || fault.ClassOf(err) != fault.User {
		t.Errorf("sequence length 0: %v", err)
	}
}

func TestColumns(t *testing.T) {
	for name, test := range map[string]struct {
		steps []jobspec.Transform
		keep  []string
		want  []string
	}{
		"default":             {[]jobspec.Transform{tokenizeBytes}, nil, []string{"text"}},
		"template":            {[]jobspec.Transform{text("{b}{a}{b}"), tokenizeBytes}, nil, []string{"b", "a"}},
		"text is the current": {[]jobspec.Transform{text("{a}"), text("Q: {text}"), tokenizeBytes}, nil, []string{"a"}},
		"text is the column":  {[]jobspec.Transform{text("Q: {text}"), tokenizeBytes}, nil, []string{"text"}},
		"filter first":        {[]jobspec.Transform{where("len(text) > 1 and lang == 'en'"), text("{a}"), tokenizeBytes}, nil, []string{"lang", "text", "a"}},
		"filter after":        {[]jobspec.Transform{text("{a}"), where("text != a and `text` != b"), tokenizeBytes}, nil, []string{"a", "text", "b"}},
		"tokens":              {[]jobspec.Transform{ids("input_ids[]"), where("tokens() > 1")}, nil, []string{"input_ids[]"}},
		"tokens with text":    {[]jobspec.Transform{ids("tokens"), where("len(text) > 1")}, nil, []string{"tokens", "text"}},
		"kept":                {[]jobspec.Transform{tokenizeBytes}, []string{"jpg", "text", "meta.id"}, []string{"text", "jpg", "meta.id"}},
	} {
		c, err := Compile(jobspec.Source{Transforms: test.steps, Keep: test.keep}, 10, nil)
		if err != nil || !slices.Equal(c.Columns(), test.want) {
			t.Errorf("%s: columns %q, %v; want %q", name, c.Columns(), err, test.want)
			continue
		}
		c.Columns()[0] = "overwritten"
		if !slices.Equal(c.Columns(), test.want) {
			t.Errorf("%s: the caller can change the chain's columns", name)
		}
	}
}

func TestCheckFilter(t *testing.T) {
	if err := CheckFilter("len(text) > 20 and tokens() < 100 and meta.lang in ['en']"); err != nil {
		t.Error(err)
	}
	for expr, want := range map[string]string{"lenn(text) > 2": "did you mean len(x)?", "`a..b` == 1": "field path"} {
		if err := CheckFilter(expr); err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", expr, err)
		}
	}
}

// TestCompilers: each operator of the registry has a compiler, and no other.
func TestCompilers(t *testing.T) {
	for _, o := range jobspec.Operators() {
		if compilers[o.Name] == nil {
			t.Errorf("operator %s has no compiler", o.Name)
		}
	}
	if got, want := len(compilers), len(jobspec.Operators()); got != want {
		t.Errorf("%d compilers for %d operators", got, want)
	}
}
