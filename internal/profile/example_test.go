package profile_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/profile"
)

// What two readings of a source cost adds up.
func Example() {
	var p profile.Profile
	p.Add(profile.Source{Name: "web", Records: 10, Samples: 10, Tokens: 1000, Seconds: 0.001, Stages: []profile.Stage{{Name: "tokenize", Seconds: 0.001}}})
	p.Add(profile.Source{Name: "web", Records: 10, Samples: 10, Tokens: 3000, Seconds: 0.003, Stages: []profile.Stage{{Name: "tokenize", Seconds: 0.003}}})
	fmt.Printf("%.0f ns a token\n", 1e9*p.Sources[0].PerToken())
	// Output: 1000 ns a token
}
