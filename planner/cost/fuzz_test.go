package cost_test

import (
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/planner/cost"
)

// FuzzParse checks that no spec makes the parser or an evaluation panic, that
// errors are the user's, that evaluating twice gives the same, and that the
// canonical text is the same model.
func FuzzParse(f *testing.F) {
	for _, spec := range []string{
		"quadratic", "llama-12b", "vit(layers=39, hidden=1408)", "quadratic(a=1e3, b=0, of=images)", "transformer(layers=1, hidden=2, active=0.5)",
		"memory(", "encoder()", "quadratic(a==1)", "linear(,)", "linear(a=1,)", "gpt-4", "tokens-1",
		"tokens * tokens + 24576 * tokens", "if(not (tokens > 5) && patches != 3 or images == 0, min(1.5, -tokens), sqrt(abs(patches)))",
		"-(-9223372036854775807 - 1)", "(0-9223372036854775807-1) / -1 % 3", "1e-9 * tokens / 0.25", "sqrt(0 - tokens)",
		"((((((tokens", "not not not", "1 < 2 < 3", "min(", "1 / 0", "if(1 < 2, 1 / 0, 3)", "\x00", "é > ü", "1..2", "1e", ".5", "--1", "!!1",
	} {
		f.Add(spec, int64(100), int64(7), int64(2))
	}
	f.Fuzz(func(t *testing.T, spec string, tokens, patches, images int64) {
		m, err := cost.Parse(spec)
		if err != nil {
			if fault.ClassOf(err) != fault.User || m != nil {
				t.Fatalf("error of class %v beside %v: %v", fault.ClassOf(err), m, err)
			}
			return
		}
		again, err := cost.Parse(m.String())
		if err != nil || again.String() != m.String() {
			t.Fatalf("%q is %q, which is %v, %v", spec, m, again, err)
		}
		sample := cost.Sample{Tokens: tokens, Patches: patches, Images: images}
		units, err := m.Cost(sample)
		same, errAgain := again.Cost(sample)
		switch {
		case units != same || (err == nil) != (errAgain == nil):
			t.Fatalf("%q: first %v, %v; then, as %q, %v, %v", spec, units, err, m, same, errAgain)
		case err != nil && (fault.ClassOf(err) != fault.User || units != 0):
			t.Fatalf("%q: %v beside error of class %v: %v", spec, units, fault.ClassOf(err), err)
		case units < 0:
			t.Fatalf("%q: the cost is %d", spec, units)
		}
	})
}
