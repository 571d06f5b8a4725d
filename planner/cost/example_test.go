package cost_test

import (
	"fmt"

	"github.com/millrace-data/millrace/planner/cost"
)

func Example() {
	sample := cost.Sample{Tokens: 4096, Patches: 1024, Images: 2}
	for _, spec := range []string{
		"quadratic",
		"llama-12b",
		"if(images > 0, tokens*tokens, 512*tokens) + 1.5*patches",
		"tokens / (images - 2)",
		"token * 3",
	} {
		model, err := cost.Parse(spec)
		if err != nil {
			fmt.Println(err)
			continue
		}
		units, err := model.Cost(sample)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(model, "=", units)
	}
	// Output:
	// quadratic(a=24576, b=1) = 117440512
	// transformer(layers=45, hidden=4608, active=12) = 96215040
	// if(images > 0, tokens * tokens, 512 * tokens) + 1.5 * patches = 16778752
	// cost "tokens / (images - 2)", column 8 ("/ (images - 2)"): division by zero, for a sample of tokens=4096, patches=1024, images=2
	// cost, column 1 ("token * 3"): there is no field token, did you mean tokens?; valid are tokens, patches, images
}

// A trainer reports what each step's slowest rank had to do, and how long it took.
func ExampleCalibrator() {
	var backbone cost.Calibrator
	for step := range int64(20) {
		n, length := 4+step%5, 1024*(1+step%7) // samples, tokens of each
		o := cost.Observation{Sum: n * length, Squares: n * length * length}
		o.Seconds = 5e-6*float64(o.Sum) + 2e-10*float64(o.Squares)
		if err := backbone.Add(o); err != nil {
			fmt.Println(err)
			return
		}
	}
	fit, err := backbone.Fit()
	fmt.Printf("%v %v, R2 %.3f\n", fit, err, fit.R2)
	// Output: quadratic(a=25000, b=1) <nil>, R2 1.000
}
