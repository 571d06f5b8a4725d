package control

import (
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/planner/feedback"
)

type explosive struct{}

func (explosive) Weights(in feedback.Input) []float64 { return in.Current[:9:9] }

// TestPolicyPanics: a panic of a user's policy is an error that names it.
func TestPolicyPanics(t *testing.T) {
	_, err := weightsOf(explosive{}, feedback.Input{})
	want := "the feedback policy control.explosive panicked: runtime error: slice bounds out of range [::9] with capacity 0"
	if fault.ClassOf(err) != fault.User || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
