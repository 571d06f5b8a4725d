package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/client"
)

// TestLogBranches has ranks go back with another mix, and then on with a token of what was left:
// the log keeps all of it, in the folder and in the mirror, and each life's batches are those of
// its own past.
func TestLogBranches(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	mirror := "file://" + filepath.Join(dir, "mirror")
	s := serve(t, dir, "--log-dir", "log", "--log-mirror", mirror)
	live := func(from []byte, steps int, during func()) (token []byte, digest [32]byte) {
		t.Helper()
		var ranks []*client.Client
		for dp := range 2 {
			c, err := open(t, s, client.Options{Rank: client.Rank{DP: dp}, Token: from})
			if err != nil {
				t.Fatal(err)
			}
			ranks = append(ranks, c)
		}
		take(t, ranks, 1)
		during()
		take(t, ranks, steps-1)
		for _, c := range ranks {
			var err error
			if token, digest, err = c.State(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range ranks {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		return token, digest
	}
	nothing := func() {}
	early, _ := live(nil, 4, nothing)   // branch 0
	late, _ := live(early, 16, nothing) // goes on
	middle, _, err := client.StateAt(t.Context(), s.address, 11, client.Security{})
	if err != nil {
		t.Fatal(err)
	}
	_, first := live(late, 5, nothing)                                                           // up to step 24
	live(early, 16, func() { s.verb(t, dir, "mix set", "words=0.9", "notes=0.1").expect(t, 0) }) // branch 1, of 0 up to step 3
	_, again := live(late, 5, nothing)                                                           // branch 2, of 0 up to step 19
	if again, _, err := client.StateAt(t.Context(), s.address, 11, client.Security{}); err != nil || !bytes.Equal(again, middle) {
		t.Errorf("the state of step 11 is another one after the job went back and forward: %v", err)
	}
	_, other := live(early, 21, func() { s.verb(t, dir, "mix set", "words=0.8", "notes=0.2").expect(t, 0) }) // branch 3, of 0 up to step 3
	live(late, 5, nothing)                                                                                   // branch 4, of 0 up to step 19
	if first != again || first == other {
		t.Errorf("the steps after the token have the digests %x and, again, %x; with another mix %x", first, again, other)
	}
	s.stop(t)
	for _, where := range [][]string{{"--log-dir", "log"}, {"--log-mirror", mirror}} {
		plans := map[int]map[int64]string{} // of each branch
		for branch, want := range [][2]int64{{0, 25}, {0, 20}, {0, 25}, {0, 25}, {0, 25}} {
			plans[branch] = plansOf(t, dir, append(slices.Clone(where), "--branch", fmt.Sprint(branch)))
			for step := range int64(25) {
				if _, ok := plans[branch][step]; ok != (want[0] <= step && step < want[1]) && step < 20 {
					t.Errorf("%v branch %d: step %d is there: %v", where, branch, step, ok)
				}
			}
		}
		for step := int64(20); step < 25; step++ {
			if p := plans[0][step]; p == "" || p != plans[2][step] || p == plans[3][step] {
				t.Errorf("%v: step %d has the plans %s, %s and %s in branches 0, 2 and 3", where, step, p, plans[2][step], plans[3][step])
			}
		}
		if plans[0][19] == plans[1][19] {
			t.Errorf("%v: step 19 has the plan %s with either mix", where, plans[0][19])
		}
	}
	out := millrace(t, dir, "verify", "job.yaml", "--log-dir", "log") // without the changes of the other branches
	out.expect(t, 0)
	if strings.Contains(out.stdout, "steps 0 to ") {
		t.Errorf("verify says\n%s", out.stdout)
	}
	out = millrace(t, dir, "log", "read", "--log-dir", "log", "--branch", "9")
	out.expect(t, exitUser, "no branch 9")
	out = millrace(t, dir, "log", "check", "--log-dir", "log", "--log-mirror", mirror)
	out.expect(t, 0)
	for _, word := range []string{"is whole", "branch 1, of branch 0 up to step 3", "branch 2, of branch 0 up to step 19", "branch 3"} {
		if !strings.Contains(out.stdout, word) {
			t.Errorf("log check does not say %q:\n%s", word, out.stdout)
		}
	}
}

// plansOf are the digests of the plans that `millrace log read` prints.
func plansOf(t *testing.T, dir string, args []string) map[int64]string {
	t.Helper()
	out := millrace(t, dir, append([]string{"log", "read", "--json"}, args...)...)
	out.expect(t, 0)
	plans := map[int64]string{}
	for line := range strings.Lines(out.stdout) {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Kind == "step" {
			plans[*e.Step] = e.Plan
		}
	}
	return plans
}
