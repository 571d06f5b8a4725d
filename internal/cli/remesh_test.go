package cli

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/client"
)

// TestStateOfOtherMesh: a rank that loads a state of another mesh than its own hears how the job goes on with its mesh, and
// that is so.
func TestStateOfOtherMesh(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	s := serve(t, dir)
	var token []byte
	for dp := range 2 {
		c, err := open(t, s, client.Options{Rank: client.Rank{DP: dp}, Prefetch: -1})
		if err == nil {
			_, err = c.Next(t.Context())
		}
		if err == nil {
			token, _, err = c.State(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	alone := client.Options{Mesh: client.Mesh{DP: 1}, Token: token}
	_, err := open(t, s, alone)
	refused(t, err, "the trainer has dp size 1, job \"tiny\" has 2 where its state was saved", "`millrace topology ADDRESS dp=1 --from TOKEN`")
	put(t, dir, "one.token", string(token))
	s.verb(t, dir, "topology", "dp=1", "--from", "one.token").expect(t, 0)
	c, err := open(t, s, alone)
	if err == nil {
		_, err = c.Next(t.Context())
	}
	if err != nil {
		t.Error(err)
	}
}

// TestTopologyFrom loses one of two ranks: the other one goes on alone from the checkpoint,
// and the log is that of the job as it was meant.
func TestTopologyFrom(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	s := serve(t, dir, "--log-dir", "log")
	var ranks [2]*client.Client
	for dp := range ranks {
		var err error
		if ranks[dp], err = open(t, s, client.Options{Rank: client.Rank{DP: dp}, Prefetch: -1}); err != nil {
			t.Fatal(err)
		}
	}
	take := func(c *client.Client, steps int) {
		for range steps {
			if _, err := c.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	var token, later []byte
	for step := range 6 {
		for _, c := range ranks {
			take(c, 1)
		}
		saved, _, err := ranks[0].State(t.Context())
		switch {
		case err != nil:
			t.Fatal(err)
		case step == 2:
			token = saved
		}
		later = saved
	}
	ranks[1].Close()
	if err := writeToken(dir+"/three.token", tokenFile{"tiny", 3, token}); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "raw.token", string(token)) // as State gave it
	put(t, dir, "later.token", string(later))
	s.verb(t, dir, "topology", "dp=1", "--from", "raw.token", "--step", "9").expect(t, exitUser, "is of step 3: leave the step out")
	s.verb(t, dir, "topology", "dp=1", "--from", "nothing.token").expect(t, exitUser, "reading the resume token")
	s.verb(t, dir, "topology", "dp=1", "--from", "job.yaml").expect(t, exitUser, "job.yaml is not a resume token")
	s.verb(t, dir, "topology", "dp=1", "--from", "three.token", "--step", "9").expect(t, exitUser, "is of step 3: leave the step out")
	s.verb(t, dir, "change", `{"skip":1}`, "--from", "three.token").expect(t, exitUser, "only a change of the topology")
	s.verb(t, dir, "topology", "dp=1", "--from-step", "99").expect(t, exitUser, "does not hold step 99: it is not planned and assembled yet")
	s.verb(t, dir, "topology", "dp=1", "--from-step", "3", "--from", "three.token").expect(t, exitUsage, "can't be used together")
	s.verb(t, dir, "topology", "dp=1", "--save-token", "x").expect(t, exitUsage, "--save-token goes with --from-step")
	made := s.verb(t, dir, "topology", "dp=1", "--from-step", "3", "--save-token", "found.token", "--reason", "node lost")
	if made.expect(t, 0); !regexp.MustCompile("\nvoid from now on: steps 3 to [0-9]+ as the ranks before were given them, and the states that those saved after step 3\n").MatchString(made.stdout) {
		t.Errorf("it prints %q", made.stdout)
	}
	token, err := readToken(dir + "/found.token") // what was saved at the step is asked for again below
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		made := s.verb(t, dir, "topology", "dp=1", "--from", "three.token", "--reason", "node lost")
		if made.expect(t, 0); made.stdout != "from step 3 on: the ranks are those of a mesh with dp=1; start them from the state of that step\n" {
			t.Errorf("it prints %q", made.stdout)
		}
	}
	alone, err := open(t, s, client.Options{Token: token, Prefetch: -1})
	if err != nil {
		t.Fatal(err)
	}
	take(alone, 7)
	_, digest, err := alone.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := millrace(t, dir, "reference", "job.yaml", "--steps", "10").digest(t)
	if got := fmt.Sprintf("digest step=10 %x", digest); got != want {
		t.Errorf("the rank that is left came to %s, want %s", got, want)
	}
	journal := s.verb(t, dir, "changes")
	if journal.expect(t, 0); strings.Count(journal.stdout, "\n") != 1 || !strings.Contains(journal.stdout, `{"step":3,"topology":{"dp":1},"from":"`) {
		t.Errorf("the journal is\n%s", journal.stdout)
	}
	put(t, dir, "journal.jsonl", journal.stdout)
	s.stop(t)
	millrace(t, dir, "verify", "job.yaml", "--log-dir", "log").expect(t, 0)
	for _, args := range []string{"reference job.yaml --changes journal.jsonl", "run job.yaml --changes journal.jsonl", "run job.yaml --log-dir log"} {
		if got := millrace(t, dir, append(strings.Fields(args), "--steps", "10")...).digest(t); got != want {
			t.Errorf("%s ends with %s, want %s", args, got, want)
		}
	}
	millrace(t, dir, "verify", "job.yaml", "--log-dir", "log").expect(t, 0)
	millrace(t, dir, "run", "job.yaml", "--log-dir", "log", "--resume", "later.token", "--steps", "4").
		expect(t, exitUser, "is void; resume from the token of that step, or from one that was saved since, or start the service with another, empty log")
	if got := millrace(t, dir, "run", "job.yaml", "--log-dir", "other", "--resume", "later.token", "--steps", "4").digest(t); got != want {
		t.Errorf("with another log it ends with %s, want %s", got, want)
	}
}
