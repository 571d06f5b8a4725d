package cli

import (
	"encoding/json"
	"testing"

	"github.com/millrace-data/millrace/client"
)

// TestStatusCounts: status says how many samples were drawn, and what share of them a source has, where that is known
// since the first step, and nothing else after the job went on from a token.
func TestStatusCounts(t *testing.T) {
	t.Parallel()
	dir := folder(t, "mix:\n", "mix:\n  unit: samples\n")
	s := serve(t, dir, "--log-dir", "log")
	counted := func(from []byte) (token []byte, samples, shares int) {
		t.Helper()
		var ranks []*client.Client
		for dp := range 2 {
			c, err := open(t, s, client.Options{Rank: client.Rank{DP: dp}, Token: from})
			if err != nil {
				t.Fatal(err)
			}
			ranks = append(ranks, c)
		}
		take(t, ranks, 3)
		token, _, err := ranks[0].State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var status struct {
			Sources []struct {
				Samples *int64   `json:"samples"`
				Share   *float64 `json:"realised_share"`
				Tokens  int64    `json:"tokens"`
			} `json:"sources"`
		}
		out := s.verb(t, dir, "status", "--json")
		out.expect(t, 0)
		if err := json.Unmarshal([]byte(out.stdout), &status); err != nil || len(status.Sources) != 2 {
			t.Fatalf("%v of\n%s", err, out.stdout)
		}
		for _, x := range status.Sources {
			if x.Samples != nil && *x.Samples > 0 {
				samples++
			}
			if x.Share != nil && *x.Share > 0 {
				shares++
			}
			if x.Tokens == 0 {
				t.Errorf("no tokens were drawn:\n%s", out.stdout)
			}
		}
		s.verb(t, dir, "status").expect(t, 0)
		for _, c := range ranks {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		return token, samples, shares
	}
	token, samples, shares := counted(nil)
	if samples != 2 || shares != 2 {
		t.Errorf("of a job that began at its first step, the samples of %d sources are known, and the shares of %d", samples, shares)
	}
	counted(token) // it goes on
	if _, samples, shares = counted(token); samples != 0 || shares != 0 {
		t.Errorf("after the job went back to a token, the samples of %d sources are known, and the shares of %d", samples, shares)
	}
}
