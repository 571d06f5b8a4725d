package cli

import (
	"strings"
	"testing"
)

// TestChangesOfOneStep: a service that goes on from a token makes the changes of a step as often, and in the order, as the
// token has them, whatever part of them a file has, with a log and without one, and says so.
func TestChangesOfOneStep(t *testing.T) {
	t.Parallel()
	const first, last, skip = `{"step":6,"weights":{"words":1}}` + "\n", `{"step":6,"weights":{"notes":1}}` + "\n", `{"step":6,"skip":1}` + "\n"
	for name, all := range map[string]string{"equal": skip + skip, "ordered": first + last} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := changing(t)
			lines := strings.SplitAfter(all, "\n")
			put(t, dir, "all.jsonl", all)
			put(t, dir, "last.jsonl", lines[1])
			put(t, dir, "turned.jsonl", lines[1]+lines[0])
			millrace(t, dir, "run", "job.yaml", "--changes", "all.jsonl", "--steps", "3", "--save-token", "3.json").digest(t)
			want := millrace(t, dir, "reference", "job.yaml", "--changes", "all.jsonl", "--steps", "9").digest(t)
			check := func(args string) {
				t.Helper()
				if got := millrace(t, dir, append([]string{"run", "job.yaml"}, strings.Fields(args)...)...).digest(t); got != want {
					t.Errorf("run %s ends with %s, want %s", args, got, want)
				}
			}
			for _, args := range []string{"", " --changes all.jsonl", " --changes last.jsonl", " --changes turned.jsonl", " --changes last.jsonl --log-dir log"} {
				check("--steps 6 --resume 3.json" + args)
			}
			check("--steps 9 --log-dir log --changes last.jsonl")
			millrace(t, dir, "verify", "job.yaml", "--log-dir", "log").expect(t, 0)
			put(t, dir, "said.jsonl", millrace(t, dir, "changes", "--log-dir", "log").stdout)
			if got := millrace(t, dir, "reference", "job.yaml", "--changes", "said.jsonl", "--steps", "9").digest(t); got != want {
				t.Errorf("with what the log says the reference ends with %s, want %s", got, want)
			}
			millrace(t, dir, "run", "job.yaml", "--changes", "last.jsonl", "--steps", "8", "--log-dir", "other").digest(t) // it has the step otherwise
			check("--steps 6 --resume 3.json --log-dir other")
		})
	}
}
