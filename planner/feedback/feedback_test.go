package feedback_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/planner/feedback"
)

func ExampleExponential() {
	policy := feedback.Exponential{Rate: 0.5, Floor: 0.1}
	next := policy.Weights(feedback.Input{
		Sources: []string{"web", "code"},
		Current: []float64{0.5, 0.5},
		Base:    []float64{0.5, 0.5},
		Loss:    []float64{3, 1}, // web is learned worse, so it is seen more
	})
	fmt.Printf("%.3f\n", next)
	// Output: [0.731 0.269]
}

func TestExponential(t *testing.T) {
	nan := math.NaN()
	for _, test := range []struct {
		name string
		loss []float64
		want []float64
	}{
		{"no report", []float64{nan, nan, nan}, nil},
		{"equal losses", []float64{2, 2, 2}, []float64{0.5, 0.5, 0}},
		{"one report", []float64{9, nan, nan}, []float64{0.5, 0.5, 0}},
		{"a floor", []float64{100, 0, 5}, []float64{0.95, 0.05, 0}},
		{"the other floor", []float64{0, 100, 5}, []float64{0.05, 0.95, 0}},
	} {
		got := feedback.Exponential{Rate: 1, Floor: 0.1}.Weights(feedback.Input{
			Current: []float64{0.5, 0.5, 0}, Base: []float64{0.5, 0.5, 0}, Loss: test.loss,
		})
		if fmt.Sprintf("%.6f", got) != fmt.Sprintf("%.6f", test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// TestFloor: for any report, no source falls below its floor, and the mix sums to 1.
func TestFloor(t *testing.T) {
	for _, floor := range []float64{0, 0.01, 0.5, 1} {
		current, base := []float64{0.4, 0.3, 0.2, 0.1}, []float64{0.4, 0.3, 0.2, 0.1}
		for step, loss := range [][]float64{{1e308, 1e308, 3, math.NaN()}, {9, 0, 0, 0}, {0, 50, 50, 50}, {-1e308, 5, 5, 5}, {1, 1, 1, 1}} {
			next := feedback.Exponential{Rate: 1, Floor: floor}.Weights(feedback.Input{Current: current, Base: base, Loss: loss})
			sum := 0.0
			for i, w := range next {
				sum += w
				if !math.IsNaN(loss[i]) && w < floor*base[i]-1e-12 || math.IsNaN(w) {
					t.Errorf("floor %v, decision %d: source %d has %v of the mix", floor, step, i, w)
				}
			}
			if math.Abs(sum-1) > 1e-9 {
				t.Errorf("floor %v, decision %d: parts add up to %v", floor, step, sum)
			}
			current = next
		}
	}
}

func TestMean(t *testing.T) {
	var m feedback.Mean
	for _, r := range []struct {
		loss   float64
		tokens uint64
	}{{2, 30}, {4, 10}} {
		if err := m.Add("a", r.loss, r.tokens); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Add("a", math.Inf(1), 1); err == nil || !strings.Contains(err.Error(), "finite") {
		t.Error(err)
	}
	if got := m.Take([]string{"a", "b"}); got[0] != 2.5 || !math.IsNaN(got[1]) {
		t.Error(got)
	}
	if got := m.Take([]string{"a"}); !math.IsNaN(got[0]) {
		t.Error("it was not reset:", got)
	}
}

type still struct{}

func (still) Weights(feedback.Input) []float64 { return nil }

func TestSet(t *testing.T) {
	still := func(feedback.Options) feedback.Policy { return still{} }
	for name, want := range map[string]string{"exponential": "taken", "none": "taken", "": "needed"} {
		if err := (feedback.Set{name: still}).Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := (feedback.Set{"x": nil}).Check(); err == nil {
		t.Error("a policy without a factory is accepted")
	}
	set := feedback.Set{"still": still}
	if err := set.Check(); err != nil {
		t.Error(err)
	}
	if p, err := set.New("still", feedback.Options{}); err != nil || p == nil {
		t.Error(p, err)
	}
	if p, err := feedback.Set(nil).New("exponential", feedback.Options{}); err != nil || p == nil {
		t.Error(p, err)
	}
	if p, err := set.New("none", feedback.Options{}); err != nil || p != nil {
		t.Error(p, err)
	}
	if _, err := set.New("stil", feedback.Options{}); err == nil || !strings.Contains(err.Error(), "valid are none, exponential, still") {
		t.Error(err)
	}
	for name, factory := range map[string]feedback.Factory{
		"its factory returned nil":    func(feedback.Options) feedback.Policy { return nil },
		"its factory panicked: oh no": func(feedback.Options) feedback.Policy { panic("oh no") },
	} {
		p, err := feedback.Set{"mine": factory}.New("mine", feedback.Options{})
		if p != nil || err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), `feedback policy "mine": `+name) {
			t.Errorf("got %v, %v, want %s", p, err, name)
		}
	}
}
