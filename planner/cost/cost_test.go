package cost_test

import (
	"math"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/planner/cost"
)

func text(n int64) cost.Sample { return cost.Sample{Tokens: n} }

// TestModels checks costs that were computed by hand, and canonical texts.
func TestModels(t *testing.T) {
	all := cost.Sample{Tokens: 7, Patches: 5, Images: 3}
	image := cost.Sample{Patches: 1000, Images: 1}
	for _, tc := range []struct {
		spec, text string
		sample     cost.Sample
		want       int64
	}{
		{"linear", "linear(a=1)", all, 7},
		{" linear ( a = 10 , of = images ) ", "linear(a=10, of=images)", all, 30},
		{"linear(a=0)", "linear(a=0)", all, 0},
		{"quadratic", "quadratic(a=24576, b=1)", text(4096), 24576*4096 + 4096*4096},
		{"quadratic()", "quadratic(a=24576, b=1)", text(0), 0},
		{"quadratic(b=2e3)", "quadratic(a=24576, b=2000)", text(10), 24576*10 + 2000*100},
		{"quadratic(a=1, b=0, of=tokens)", "quadratic(a=1, b=0)", all, 7},
		{"quadratic(b=3, a=2, of=patches)", "quadratic(a=2, b=3, of=patches)", all, 2*5 + 3*25},
		{"memory(bytes_per_token=100, fixed_bytes=11)", "memory(bytes_per_token=100, fixed_bytes=11)", all, 711},
		{"memory(bytes_per_token=100)", "memory(bytes_per_token=100, fixed_bytes=0)", text(0), 0},
		// 2·1·1·1024²·1 + 2·1·1024·1 = 2^21 + 2^11 operations: two units and a bit.
		{"transformer(layers=1, hidden=1024, active=1)", "transformer(layers=1, hidden=1024, active=1)", text(1), 3},
		// 2·1·0.5·1024²·2 + 2·1·1024·4 = 2^21 + 2^13.
		{"transformer(layers=1, hidden=1024, active=0.50)", "transformer(layers=1, hidden=1024, active=0.5)", text(2), 3},
		// 2·8·4·1024²·1024 + 2·8·1024·1024² = 65536·2^20 + 16384·2^20.
		{"transformer(layers=8, hidden=1024, active=4)", "transformer(layers=8, hidden=1024, active=4)", text(1024), 81920},
		{"transformer(layers=1, hidden=1)", "transformer(layers=1, hidden=1, active=12)", text(0), 0},
		// 1·(24·1024²·1024 + 4·1024·1024²) = 2^20 (24576 + 4096).
		{"vit(layers=1, hidden=1024)", "encoder(layers=1, hidden=1024)", cost.Sample{Patches: 1024}, 28672},
		// 45·(2·12·4608²·4096 + 2·4608·4096²) = 96215040·2^20.
		{"llama-12b", "transformer(layers=45, hidden=4608, active=12)", text(4096), 96215040},
		{"tmoe-25b", "transformer(layers=42, hidden=2048, active=20)", text(1024), (42 * (2*20*2048*2048*1024 + 2*2048*1024*1024)) >> 20},
		{"mixtral-8x7b", "transformer(layers=32, hidden=4096, active=25)", text(1024), (32 * (2*25*4096*4096*1024 + 2*4096*1024*1024)) >> 20},
		{"vit-1b", "encoder(layers=39, hidden=1408)", image, (39*(24*1408*1408*1000+4*1408*1000*1000) + 1<<20 - 1) >> 20},
		{"vit-2b", "encoder(layers=48, hidden=1664)", image, (48*(24*1664*1664*1000+4*1664*1000*1000) + 1<<20 - 1) >> 20},
		{"tokens", "tokens", all, 7},
		{"-images+tokens", "-images + tokens", all, 4},
	} {
		m, err := cost.Parse(tc.spec)
		if err != nil {
			t.Errorf("%s: %v", tc.spec, err)
			continue
		}
		if got, err := m.Cost(tc.sample); got != tc.want || err != nil {
			t.Errorf("%s of %v: %d, %v, want %d", tc.spec, tc.sample, got, err, tc.want)
		}
		if m.String() != tc.text {
			t.Errorf("%s: its text is %q, want %q", tc.spec, m, tc.text)
		}
		if again, err := cost.Parse(m.String()); err != nil || again.String() != tc.text {
			t.Errorf("%s: parsed again it is %v, %v", m, again, err)
		}
	}
}

// TestSumsFit checks what the package comment promises of the unit.
func TestSumsFit(t *testing.T) {
	for _, spec := range []string{"quadratic", "llama-12b", "transformer(layers=126, hidden=16384)", "memory(bytes_per_token=1000000)"} {
		units, err := parse(t, spec).Cost(text(128 << 10))
		if err != nil || units > (1<<56)/300_000 {
			t.Errorf("%s: 300,000 samples of 128k tokens of %d units (%v) do not sum to less than 2^56", spec, units, err)
		}
	}
	if units, _ := parse(t, "llama-12b").Cost(text(1)); units != 21871 { // 45·(2·12·4608² + 2·4608) / 2^20 = 21870.8
		t.Errorf("one token of llama-12b costs %d units", units)
	}
}

func TestFunc(t *testing.T) {
	double := cost.Func(func(s cost.Sample) int64 { return 2 * s.Tokens })
	models := map[string]cost.Model{"func": double, "func doubled": cost.Named("doubled", double)}
	for name, m := range models {
		if got, err := m.Cost(text(21)); got != 42 || err != nil || m.String() != name {
			t.Errorf("%v: %d, %v", m, got, err)
		}
	}
	if _, err := parse(t, "tokens").Cost(text(1)); err != nil {
		t.Error(err)
	}
	refuses(t, cost.Named("bad", func(cost.Sample) int64 { return -1 }), text(3),
		"cost func bad: -1 for a sample of tokens=3, patches=0, images=0; a cost is 0 or more")
	refuses(t, double, text(-3), "cost func: a sample of tokens=-3, patches=0, images=0 has a negative count; each is 0 or more")
	refuses(t, cost.Named("none", nil), text(3), "cost func none: the function is nil")
}

// TestModelErrors holds the messages of models that cannot be, word for word.
func TestModelErrors(t *testing.T) {
	const models = "linear, quadratic, memory, transformer, encoder, vit, llama-12b, tmoe-25b, mixtral-8x7b, vit-1b, vit-2b, or an expression over tokens, patches, images"
	for spec, want := range map[string]string{
		"quadratc":                               `cost "quadratc": there is no such model, did you mean quadratic?; valid are ` + models,
		"Llama-12B":                              `cost "Llama-12B": there is no such model, did you mean llama-12b?; valid are ` + models,
		"toknes":                                 `cost "toknes": there is no such model, did you mean tokens?; valid are ` + models,
		"gpt-4":                                  `cost "gpt-4": there is no such model; valid are ` + models,
		"transformr(layers=1)":                   `cost "transformr": there is no such model, did you mean transformer?; valid are ` + models,
		"vit-1b(layers=3)":                       "cost vit-1b: it takes no parameters; it is short for encoder(layers=39, hidden=1408)",
		"quadratic(a=1":                          "cost quadratic: expected ) after its parameters and nothing behind it; a model stands alone, expressions are over tokens, patches, images",
		"quadratic(a=1) + 1":                     "cost quadratic: expected ) after its parameters and nothing behind it; a model stands alone, expressions are over tokens, patches, images",
		"quadratic(24576, 1)":                    `cost quadratic: "24576" is not a parameter: write name=value, as in quadratic(a=24576, b=1, of=tokens)`,
		"quadratic(a=1, a=2)":                    "cost quadratic: a is given twice",
		"quadratic(a=1, c=2)":                    `cost quadratic: there is no parameter "c"; it is quadratic(a=24576, b=1, of=tokens)`,
		"quadratic(a=1.5)":                       "cost quadratic: a=1.5: it has to be a whole number",
		"quadratic(a=-1)":                        "cost quadratic: a=-1 is not a number of 0 or more, as 12 is",
		"quadratic(a=)":                          "cost quadratic: a= is not a number of 0 or more, as 12 is",
		"quadratic(a=9223372036854775808)":       "cost quadratic: a=9223372036854775808: it does not fit in 64 bits: the largest number is 9223372036854775807, and with d decimals 10^d times less",
		"quadratic(of=token)":                    "cost quadratic: of=token is not a field, did you mean tokens?; valid are tokens, patches, images",
		"memory":                                 "cost memory: bytes_per_token has to be given: it is memory(bytes_per_token=..., fixed_bytes=0)",
		"memory(bytes_per_tokens=3)":             `cost memory: there is no parameter "bytes_per_tokens", did you mean bytes_per_token?; it is memory(bytes_per_token=..., fixed_bytes=0)`,
		"transformer(layers=0, hidden=1)":        "cost transformer: layers=0: it is at least 1",
		"transformer(layers=1, hidden=1e10)":     "cost transformer(layers=1, hidden=10000000000, active=12): its parameters are too large: a count of 1 costs more than 8796093022207 units",
		"encoder(layers=1, hidden=2, of=tokens)": `cost encoder: there is no parameter "of"; it is encoder(layers=..., hidden=...)`,
	} {
		_, err := cost.Parse(spec)
		if err == nil || err.Error() != want || fault.ClassOf(err) != fault.User {
			t.Errorf("%s:\n got %v\nwant %s", spec, err, want)
		}
	}
}

// TestCostErrors holds the messages of samples that models refuse.
func TestCostErrors(t *testing.T) {
	refuses(t, parse(t, "quadratic"), text(math.MaxInt64),
		"cost quadratic(a=24576, b=1): a sample of tokens=9223372036854775807, patches=0, images=0 costs more than 9223372036854775807 units, the most there can be: check its length, or take smaller parameters")
	refuses(t, parse(t, "linear"), cost.Sample{Tokens: 1, Images: -1},
		"cost linear(a=1): a sample of tokens=1, patches=0, images=-1 has a negative count; each is 0 or more")
	refuses(t, parse(t, "vit-1b"), cost.Sample{Tokens: 9, Patches: 600, Images: 2},
		"cost encoder(layers=39, hidden=1408): a sample of tokens=9, patches=600, images=2 has several images, and this is the cost of one: add up the costs of its images")
}

func refuses(t *testing.T, m cost.Model, s cost.Sample, want string) {
	t.Helper()
	got, err := m.Cost(s)
	if got != 0 || err == nil || err.Error() != want || fault.ClassOf(err) != fault.User {
		t.Errorf("%v of %v: %d,\n got %v\nwant %s", m, s, got, err, want)
	}
}

// TestNoAllocations checks every kind of model.
func TestNoAllocations(t *testing.T) {
	for _, spec := range []string{"quadratic", "llama-12b", "tokens * tokens + 1.5 * tokens", "if(tokens > 3 and not images == 1, min(tokens, sqrt(patches)), 0)"} {
		m := parse(t, spec)
		if n := testing.AllocsPerRun(100, func() { _, _ = m.Cost(cost.Sample{Tokens: 77, Patches: 5}) }); n != 0 {
			t.Errorf("%s allocates %v times", spec, n)
		}
	}
}
