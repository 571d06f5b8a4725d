package didyoumean_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/didyoumean"
)

func Example() {
	fmt.Println(didyoumean.Nearest("parket", []string{"arrow", "parquet", "text"}))
	// Output: parquet
}

func TestNearest(t *testing.T) {
	words := []string{"weights", "from", "over", "ramp", "cl100k_base", "len", "lower"}
	for got, want := range map[string]string{
		"weigths": "weights", "WEIGHT": "weights", "form": "from", "cl100k": "cl100k_base", "length": "len",
		"x": "", "": "", "quite another": "", strings.Repeat("from", 40): "", "rampp": "ramp", "lowercase": "lower",
	} {
		if near := didyoumean.Nearest(got, words); near != want {
			t.Errorf("Nearest(%q) = %q, want %q", got, near, want)
		}
	}
	if near := didyoumean.Nearest("a", nil); near != "" {
		t.Errorf("nearest of nothing is %q", near)
	}
}
