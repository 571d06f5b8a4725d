package jobspec

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

func withStrategy(t *testing.T, text string) *Job {
	t.Helper()
	job, findings := Parse("f", []byte(base+"strategy: "+text), "/specs", Env(noEnv))
	if err := findings.Err(); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return job
}

// TestStrategyForms compares short forms with what they stand for.
func TestStrategyForms(t *testing.T) {
	for short, long := range map[string]string{
		"mine":                         "[{use: mine}]",
		"[mine]":                       "[{use: mine}]",
		"\n- mix:\n- distribute: dp":   "[{mix: {}}, {distribute: {axis: dp, group_size: 1}}]",
		"[cost: tokens*tokens]":        "[{cost: {model: 'tokens*tokens'}}]",
		"[{cost: {model: m, a: 24k}}]": "[{cost: {model: m, a: 24000}}]",
		"[distribute: dp, cost: m, balance: kk, broadcast_at: tp]": "[{distribute: {axis: dp}}, {cost: {model: m}}, {balance: {method: kk, level: inter, keep_order: false}}, {broadcast_at: [tp]}]",
	} {
		job := withStrategy(t, short)
		if want := withStrategy(t, long); !reflect.DeepEqual(job, want) {
			t.Errorf("%s is\n%+v, and %s is\n%+v", short, job.Strategy, long, want.Strategy)
		}
		checkRoundTrip(t, job)
		if faults := checkSchema(t, []byte(base+"strategy: "+short)); faults != nil {
			t.Errorf("%s: %v", short, faults)
		}
	}
}

func TestCostText(t *testing.T) {
	for text, want := range map[string]string{
		"quadratic":                                              "quadratic",
		"{model: quadratic, b: 2, a: 1}":                         "quadratic(a=1, b=2)",
		"{model: linear, of: patches}":                           "linear(of=patches)",
		"{model: encoder, layers: 39, hidden: 1k}":               "encoder(layers=39, hidden=1000)",
		"{model: transformer, layers: 1, hidden: 2, active: 3}":  "transformer(layers=1, hidden=2, active=3)",
		"{model: memory, bytes_per_token: 16, fixed_bytes: 1Ki}": "memory(bytes_per_token=16, fixed_bytes=1024)",
		"{expression: tokens + 1}":                               "tokens + 1",
	} {
		if got := withStrategy(t, "[{cost: "+text+"}]").Strategy[0].Cost.Text(); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

func TestBroadcastOfStrategy(t *testing.T) {
	job, findings := Parse("f", []byte(strings.Replace(base, "output: {}", "strategy: [distribute: dp, broadcast_at: tp]", 1)), "", Env(noEnv))
	if findings != nil || job.Output.BroadcastAt != "tp" {
		t.Fatalf("got %+v, %v", job, findings)
	}
	checkRoundTrip(t, job)
}

// TestStrategyIdentity: only what decides about the contents of rows counts.
func TestStrategyIdentity(t *testing.T) {
	none := mustParse(t, base).Identity()
	even := "[distribute: dp, cost: linear, {balance: {level: intra}}]"
	for _, tc := range []struct {
		a, b string // no b: the identity of a spec without a strategy
		same bool
	}{
		{"[distribute: dp, cost: linear, balance: kk, broadcast_at: tp]", "", true},
		{"[distribute: dp, cost: linear, {balance: {level: intra, keep_order: true}}]", "", true},
		{"[graph: image, distribute: dp, cost: linear, balance: kk]", "", true},
		{even, "", false},
		{even, "[distribute: {axis: dp, group_size: 2}, cost: linear, {balance: {method: kk, level: interleaved}}]", true},
		{even, "[distribute: dp, cost: quadratic, {balance: {level: intra}}]", false},
		{even, "[graph: image, distribute: dp, cost: quadratic, balance: auto, graph: text, distribute: dp, cost: linear, {balance: {level: intra}}]", true},
		{"mine", "", false},
		{"mine", "yours", false},
	} {
		want := none
		if tc.b != "" {
			want = withStrategy(t, tc.b).Identity()
		}
		if got := withStrategy(t, tc.a).Identity(); (got == want) != tc.same {
			t.Errorf("%s and %q: same identity %v, want %v", tc.a, tc.b, got == want, tc.same)
		}
	}
	for level, want := range map[string]string{"inter": "", "intra": "strategy:\n  even: linear\n  widths: 3\n"} {
		text := split("context_split: 4}", "}\nstrategy: [{distribute: cp}, {cost: linear}, {balance: {level: "+level+"}}]")
		if got := mustParse(t, text).strategyIdentity(); got != want {
			t.Errorf("level %s with context_split: %q in the identity, want %q", level, got, want)
		}
	}
}

// randomStrategy makes a valid strategy for a job with a mesh.
func randomStrategy(rng *rand.Rand, job *Job) []Primitive {
	if rng.IntN(4) == 0 {
		return []Primitive{{Use: randomName(rng)}}
	}
	list := []Primitive{{Mix: &MixStep{}}, {Distribute: &Distribute{"dp", job.Topology.DP, "equal"}}, {Cost: &Cost{Expression: randomText(rng)}},
		{Balance: &Balance{Method: pick(rng, "auto", "lpt", "kk"), Level: "inter", RowMethod: "auto", KeepOrder: rng.IntN(2) == 0}}}
	axis := pick(rng, "dp", "cp", "pp", "tp", "world")
	if job.Output.BroadcastAt != "" {
		axis = pick(rng, "dp", "cp", "pp") // at the others ranks would have to fetch
		list = append(list, Primitive{BroadcastAt: []string{job.Output.BroadcastAt}})
	}
	return append(list, Primitive{Graph: &Graph{Of: "image"}}, Primitive{Distribute: &Distribute{axis, 1, pick(rng, "equal", "smaller")}},
		Primitive{Cost: &Cost{Model: randomName(rng), A: rng.Int64N(9), B: rng.Int64N(1 << 40), Of: pick(rng, "", "patches"), Layers: rng.Int64N(2)}})
}
