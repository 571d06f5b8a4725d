package cli

import (
	"slices"
	"testing"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/fault"
)

// TestPeek looks at the batches of a running job from outside: they are those that the
// ranks get, and nobody notices.
func TestPeek(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	s := serve(t, dir, "--constructors", "2")
	ranks := openRanks(t, s, -1, nil)
	for step := range 6 {
		seen := make([]*client.Batch, len(ranks))
		for dp := range ranks {
			var err error
			if seen[dp], err = client.Peek(t.Context(), s.address, int64(step), client.Options{Rank: client.Rank{DP: dp}}); err != nil {
				t.Fatal(err)
			}
		}
		for dp, c := range ranks {
			b, err := c.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !slices.EqualFunc(b.Microbatches, seen[dp].Microbatches, sameTensors) || seen[dp].Step != b.Step {
				t.Errorf("what is seen of step %d of %v is not what the rank gets", step, dp)
			}
		}
	}
	b, err := client.Peek(t.Context(), s.address, client.Newest, client.Options{})
	if err != nil || b.Step < 5 {
		t.Errorf("the newest is %v, %v", b, err)
	}
	_, err = client.Peek(t.Context(), s.address, 400, client.Options{})
	refused(t, err, "rank dp=0", "step 400 cannot be looked at: steps 5 to ", "millrace preview JOB --step 400")
	_, err = client.Peek(t.Context(), s.address, 4, client.Options{Rank: client.Rank{DP: 2}})
	refused(t, err, "outside the topology")
	if _, err = client.Peek(t.Context(), "127.0.0.1:1", 4, client.Options{}); fault.ClassOf(err) != fault.Lost {
		t.Errorf("nobody there: %v", err)
	}
}

func sameTensors(a, b client.Microbatch) bool {
	return slices.EqualFunc(a.Tensors, b.Tensors, func(x, y client.Tensor) bool { return x.Name == y.Name && slices.Equal(x.Data, y.Data) })
}
