package status

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestForeignText: what a program of the user's printed is one line of the page, and stays as it is in JSON.
func TestForeignText(t *testing.T) {
	const text = "boom é\nstall: none: all is well\r\x1b[2J\u2028\u202eok"
	s := Service{
		Scaling:   &Scaling{Loaders: 2, Problem: text},
		Loaders:   []Loader{{ID: "l0", DiskProblem: text}},
		Functions: []Workers{{Loader: "l0", Name: "env", LastDeath: text, Problem: text, Pools: []Pool{{Name: "pool", Problem: text}}}},
	}
	page := s.String()
	for _, begins := range []string{"scaling fails:", "l0 keeps nothing more on its local disk:", "l0: a worker of env ended:", "l0: workers of env do not start:", "l0: worker pool pool for env:"} {
		if want := begins + ` boom é\nstall: none: all is well\r\x1b[2J\u2028\u202eok` + "\n"; !strings.Contains(page, want) {
			t.Errorf("the page lacks the line %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "\nstall:") || strings.ContainsAny(page, "\r\x1b\u2028\u202e") {
		t.Errorf("a text is more than one line, or no text:\n%q", page)
	}
	data, err := json.Marshal(s)
	var back Service
	if err == nil {
		err = json.Unmarshal(data, &back)
	}
	if err != nil || back.Scaling.Problem != text {
		t.Errorf("in JSON the problem is %q, %v", back.Scaling.Problem, err)
	}
}
