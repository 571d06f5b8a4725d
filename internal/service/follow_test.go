package service

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/internal/fleet"
)

// counted is a fleet that keeps what it was asked for.
type counted struct {
	fleet.Asked
	all []int
}

func (c *counted) Scale(_ context.Context, _ fleet.Role, n int) error {
	c.all = append(c.all, n)
	return nil
}

// TestObey: loaders are as the planner decided. One that has decided nothing yet, as it was started again, ends none of those that are
// there, and starts none beside those that the service began with.
func TestObey(t *testing.T) {
	t.Parallel()
	f := &counted{}
	for _, scaling := range []string{`null`, `{"loaders_wanted": 2, "decided": false}`, `{"loaders_wanted": 3, "decided": true}`} {
		if err := obey(t.Context(), fmt.Appendf(nil, `{"scaling": %s}`, scaling), f); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(f.all, []int{3}) {
		t.Errorf("the fleet was asked for %v, want 3 alone", f.all)
	}
}
